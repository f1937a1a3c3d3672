//! Output of commands: tables for people, JSON for programs, without terminal control characters.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::table::Styling;
pub use super::table::Table;
use super::wrap::{Margins, wrapped};
use crate::app;
pub use crate::types::text::{pluralize, printable};

/// `--json`, for commands that print data.
#[derive(Debug, Clone, Args)]
pub struct FormatArgs {
    /// Print JSON: one object for one thing, one object a line for lists
    #[arg(long)]
    pub json: bool,
}

impl FormatArgs {
    pub const fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Table }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people: aligned columns.
    Table,
    /// For programs: one object per line.
    Json,
}

/// Buffered stdout. Its errors are errors of the command, so that a closed pipe ends it instead of a panic.
#[derive(Debug)]
pub struct Output {
    to: BufWriter<WaitingWriter<StdoutLock<'static>>>,
    styling: Styling,
    /// Width of the terminal; `None` if stdout is not a terminal, so lines may be of any length.
    width: Option<usize>,
}

impl Output {
    pub fn stdout() -> Self {
        let styling = Styling::for_stream(&io::stdout());
        Self { to: BufWriter::new(WaitingWriter(io::stdout().lock())), styling, width: columns_of(&io::stdout()) }
    }

    pub fn line(&mut self, line: impl fmt::Display) -> anyhow::Result<()> {
        writeln!(self.to, "{line}").context(WRITE)
    }

    /// Prints a sentence. On a terminal it is wrapped, with later lines indented, so that the next sentence is
    /// recognizable.
    pub fn sentence(&mut self, text: &str) -> anyhow::Result<()> {
        self.labelled("", Margins { first: 0, others: SENTENCE_INDENT, end: self.width }, text)
    }

    /// Prints text after a label, wrapped on a terminal. `columns` is the width of the label, which may contain colors.
    pub fn behind(&mut self, label: &str, columns: usize, text: &str) -> anyhow::Result<()> {
        self.labelled(label, Margins { first: columns, others: columns, end: self.width }, text)
    }

    fn labelled(&mut self, label: &str, margins: Margins, text: &str) -> anyhow::Result<()> {
        let lines = wrapped(text, margins);
        self.line(format_args!("{label}{}", lines[0]))?;
        lines[1..].iter().try_for_each(|line| self.line(line))
    }

    /// Prints text or bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.to.write_all(bytes).context(WRITE)
    }

    /// Prints one JSON object on its own line.
    pub fn json(&mut self, object: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(object).context("write JSON")?;
        self.line(text)
    }

    /// Prints rows under a heading. Columns are as wide as necessary; on a terminal, shrinkable columns are cut if a
    /// line would not fit. For a list in parts, reuse the same [`Table`].
    pub fn rows(&mut self, table: &mut Table, rows: &[Vec<String>]) -> anyhow::Result<()> {
        table.lines(rows, self.width, self.styling).iter().try_for_each(|line| self.line(line))
    }

    /// Prints a part of a list, one line of JSON or one row per element. For the following parts, reuse the same
    /// [`Table`].
    pub fn list<T: Serialize>(
        &mut self,
        format: Format,
        table: &mut Table,
        part: &[T],
        row: impl Fn(&T) -> Vec<String>,
    ) -> anyhow::Result<()> {
        match format {
            Format::Json => part.iter().try_for_each(|one| self.json(one)),
            Format::Table if part.is_empty() => Ok(()),
            Format::Table => self.rows(table, &part.iter().map(row).collect::<Vec<_>>()),
        }
    }

    /// Prints `name  value` lines with aligned values. On a terminal a long value continues below itself.
    pub fn pairs(&mut self, pairs: &[(&str, String)]) -> anyhow::Result<()> {
        let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let label = |name: &str| format!("{name:width$}{:PAIR_GAP$}", "");
        pairs.iter().try_for_each(|(name, value)| self.behind(&label(name), width + PAIR_GAP, &printable(value)))
    }

    /// Writes the buffer. Without this call the end of the output may be lost.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.to.flush().context(WRITE)
    }
}

/// Prints one object: as JSON, or for people with `table`.
pub fn print(
    format: &FormatArgs,
    object: &impl Serialize,
    table: impl FnOnce(&mut Output) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => output.json(object)?,
        Format::Table => table(&mut output)?,
    }
    output.finish()
}

/// Prints a list, one line of JSON or one row per element; for people an empty list prints `empty`.
pub fn print_list<T: Serialize>(
    format: &FormatArgs,
    listed: &[T],
    mut table: Table,
    empty: &str,
    row: impl Fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    let mut output = Output::stdout();
    if listed.is_empty() && format.format() == Format::Table {
        say_empty(empty);
    }
    output.list(format.format(), &mut table, listed, row)?;
    output.finish()
}

/// Prints text on stderr, beside the data; wrapped on a terminal, as in [`Output::sentence`]. Ignores a closed stderr.
pub fn say(text: impl fmt::Display) {
    let margins = Margins { first: 0, others: SENTENCE_INDENT, end: columns_of(&io::stderr()) };
    for line in text.to_string().split('\n').flat_map(|line| wrapped(&printable(line), margins)) {
        let _ = writeln!(WaitingWriter(io::stderr()), "{line}");
    }
}

/// Waits if a descriptor is non-blocking and full, because another program made a shared pipe or terminal non-blocking.
/// No output may be lost.
#[derive(Debug)]
struct WaitingWriter<W>(W);

impl<W: Write + AsFd> WaitingWriter<W> {
    fn retry<T>(&mut self, mut write: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match write(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => app::wait_until_writable(&self.0),
                written => return written,
            }
        }
    }
}

impl<W: Write + AsFd> Write for WaitingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(|to| to.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.retry(Write::flush)
    }
}

/// Width of a terminal; `None` if the stream is not a terminal, so lines may be of any length.
fn columns_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let columns = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    stream.is_terminal().then(|| columns().unwrap_or(TERMINAL_COLUMNS))
}

/// Prints on a terminal that a list is empty. A program sees that without a message.
pub fn say_empty(what: &str) {
    if io::stderr().is_terminal() {
        say(what);
    }
}

/// Number of spaces between a name and its value.
const PAIR_GAP: usize = 2;

/// Indent of a sentence's later lines.
const SENTENCE_INDENT: usize = 2;

const WRITE: &str = "write to stdout";

/// Assumed width of a terminal that does not report its width.
const TERMINAL_COLUMNS: usize = 80;

/// A value or a dash.
pub fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A duration in its largest whole unit: `59s`, `59m`, `47h`, `14d`.
pub fn rounded(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3_600 => format!("{}m", s / 60),
        s @ 3_600..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An age of more than three characters would shift all later columns.
    #[test]
    fn ages_are_rounded_to_their_largest_unit() {
        for (s, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m"), (3_600, "1h"), (172_799, "47h"), (172_800, "2d")]
        {
            assert_eq!(rounded(Duration::from_secs(s)), text);
        }
    }
}
