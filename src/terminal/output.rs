//! What verbs print: tables for people, JSON for programs, nothing that could steer a terminal.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

/// `--json`, for verbs that print data.
#[derive(Debug, Clone, Args)]
pub struct FormatArgs {
    /// Print JSON: one object for one thing, one object a line for lists
    #[arg(long)]
    pub json: bool,
}

impl FormatArgs {
    /// What the flag asks for.
    #[must_use]
    pub const fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Table }
    }
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people: aligned columns.
    Table,
    /// For programs: one object a line.
    Json,
}

/// Stdout, buffered. Its errors are errors of the verb, so that a closed pipe ends it instead of panicking.
#[derive(Debug)]
pub struct Output {
    to: BufWriter<StdoutLock<'static>>,
    emphasis: Emphasis,
}

/// Whether headings stand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Emphasis {
    Bold,
    Plain,
}

impl Output {
    /// Stdout of this process. Bold headings only on a terminal that has not been told otherwise (no-color.org).
    #[must_use]
    pub fn stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let bold = io::stdout().is_terminal() && !no_color && !dumb;
        let emphasis = if bold { Emphasis::Bold } else { Emphasis::Plain };
        Self { to: BufWriter::new(io::stdout().lock()), emphasis }
    }

    /// Prints one line.
    ///
    /// # Errors
    ///
    /// When stdout is closed or full.
    pub fn line(&mut self, line: impl fmt::Display) -> anyhow::Result<()> {
        writeln!(self.to, "{line}").context(WRITE)
    }

    /// Prints text or bytes as they are.
    ///
    /// # Errors
    ///
    /// When stdout is closed or full.
    pub fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.to.write_all(bytes).context(WRITE)
    }

    /// Prints one JSON object on a line of its own.
    ///
    /// # Errors
    ///
    /// When stdout is closed or full.
    pub fn json(&mut self, object: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(object).context("write JSON")?;
        self.line(text)
    }

    /// Prints rows under a heading, as wide as they need. For a list that arrives in parts, use the same [`Table`] again.
    ///
    /// # Errors
    ///
    /// When stdout is closed or full.
    pub fn rows(&mut self, table: &mut Table, rows: &[Vec<String>]) -> anyhow::Result<()> {
        for row in rows {
            for (width, cell) in table.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if table.heading_due {
            table.heading_due = false;
            let heading = table.aligned(&table.heading);
            match self.emphasis {
                Emphasis::Bold => self.line(format_args!("\x1b[1m{heading}\x1b[0m"))?,
                Emphasis::Plain => self.line(heading)?,
            }
        }
        rows.iter().try_for_each(|row| self.line(table.aligned(row)))
    }

    /// Prints `name  value` lines, names aligned.
    ///
    /// # Errors
    ///
    /// When stdout is closed or full.
    pub fn pairs(&mut self, pairs: &[(&str, String)]) -> anyhow::Result<()> {
        let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        pairs.iter().try_for_each(|(name, value)| self.line(format_args!("{name:width$}  {}", printable(value))))
    }

    /// Writes out what is buffered. Without it the end of the output may be lost.
    ///
    /// # Errors
    ///
    /// When stdout is closed or full.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.to.flush().context(WRITE)
    }
}

/// Says something beside the data, on stderr. Where nobody listens any more, there is nobody to tell.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says on a terminal that a list is empty. A program that reads the list sees that by itself.
pub fn say_empty(what: &str) {
    if io::stderr().is_terminal() {
        say(what);
    }
}

const WRITE: &str = "write to stdout";

/// Columns of a list.
#[derive(Debug)]
pub struct Table {
    heading: Vec<String>,
    widths: Vec<usize>,
    heading_due: bool,
}

impl Table {
    /// A table with this heading.
    #[must_use]
    pub fn new(heading: &[&str]) -> Self {
        Self {
            heading: heading.iter().map(ToString::to_string).collect(),
            widths: heading.iter().map(|name| name.len()).collect(),
            heading_due: true,
        }
    }

    fn aligned(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&self.widths) {
            let cell = printable(cell);
            line.push_str(&cell);
            let padding = width.saturating_sub(cell.chars().count()) + 2;
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// A value or a dash.
#[must_use]
pub fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Text that a terminal shows and does not obey: control characters, which strangers may have put into a subject or a refused
/// field, are escaped.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    shown
}

/// Bytes as text: what is not UTF-8 as `\xNN`.
#[must_use]
pub fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refused events hold whatever a producer sent.
    #[test]
    fn bytes_that_are_not_text_are_written_in_hex() {
        assert_eq!(lossless(b"a\xff\xfeb\xc3\xa9"), "a\\xff\\xfeb\u{e9}");
        assert_eq!(lossless(b"\xc3"), "\\xc3");
    }

    /// A subject named by a stranger must not clear the operator's screen.
    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\x1b[2Jb\n\u{85}"), "a\\u{1b}[2Jb\\n\\u{85}");
    }
}
