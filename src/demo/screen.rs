//! The output for people: a line per event, and a table of expected and observed numbers at the end.
//!
//! Lines go to stdout, or to stderr if stdout holds JSON. Colored only on a terminal.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::json;

use super::compare::Comparison;
use crate::terminal::hint;
use crate::terminal::output::{Format, Output, Table, printable, say};
use crate::terminal::table::{Color, Styling};

const LABEL_WIDTH: usize = 8;

pub(super) struct Screen {
    format: Format,
    styling: Styling,
    started: Instant,
}

impl Screen {
    /// The screen of this process; the clock of its lines starts now.
    pub(super) fn new(format: Format) -> Self {
        let styling = if format == Format::Json { Styling::Plain } else { Styling::for_stream(&std::io::stdout()) };
        Self { format, styling, started: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn line(&self, line: impl fmt::Display) -> anyhow::Result<()> {
        if self.format == Format::Json {
            say(line);
            return Ok(());
        }
        let mut output = Output::stdout();
        output.line(line)?;
        output.finish()
    }

    /// Prints a part of the setup.
    pub(super) fn set_up(&self, label: &str, what: impl fmt::Display) -> anyhow::Result<()> {
        self.labelled(&format!("{label:LABEL_WIDTH$}  "), LABEL_WIDTH + 2, &what.to_string())
    }

    /// Prints an event with its time.
    pub(super) fn say(&self, color: Color, label: &str, what: impl fmt::Display) -> anyhow::Result<()> {
        let label = self.styling.paint(color, format_args!("{label:LABEL_WIDTH$}"));
        let time = format!("{:5.1}s", self.elapsed().as_secs_f64());
        let columns = time.len() + LABEL_WIDTH + 4;
        let label = format!("{}  {label}  ", self.styling.paint(Color::Gray, time));
        self.labelled(&label, columns, &printable(&what.to_string()))
    }

    /// Prints text behind a label of `columns` width, wrapped to the terminal.
    fn labelled(&self, label: &str, columns: usize, text: &str) -> anyhow::Result<()> {
        if self.format == Format::Json {
            return self.line(format_args!("{label}{text}"));
        }
        let mut output = Output::stdout();
        output.behind(label, columns, text)?;
        output.finish()
    }

    /// Prints the comparisons; fails if one is wrong, which makes the exit code 1.
    pub(super) fn show(&self, checks: &[Comparison]) -> anyhow::Result<()> {
        let seconds = self.elapsed().as_secs_f64();
        let wrong = checks.iter().filter(|check| !check.ok).count();
        let mut output = Output::stdout();
        match self.format {
            Format::Json => output.json(&json!({"ok": wrong == 0, "seconds": seconds, "checks": checks}))?,
            Format::Table => {
                for section in checks.chunk_by(|a, b| a.section == b.section) {
                    output.line("")?;
                    let heading = [section[0].section, "expected", "seen", "", ""];
                    let color = |mark: &str| match mark {
                        "ok" => Some(Color::Green),
                        "WRONG" => Some(Color::Red),
                        _ => None,
                    };
                    output.rows(
                        &mut Table::new(&heading).colored("", color),
                        &section.iter().map(row).collect::<Vec<_>>(),
                    )?;
                }
            }
        }
        output.finish()?;
        if wrong > 0 {
            return Err(hint::failed(
                format_args!("{wrong} of {} numbers are not as expected; they are marked WRONG above", checks.len()),
                "`quotabell demo --keep` keeps the folder with the daemon's logs and the data",
            ));
        }
        let all = format!("\nall {} numbers are as expected, after {seconds:.1} s", checks.len());
        self.line(self.styling.paint(Color::Green, all))
    }
}

fn row(Comparison { what, expected, seen, note, ok, .. }: &Comparison) -> Vec<String> {
    let mark = if *ok { "ok" } else { "WRONG" };
    vec![format!("  {what}"), expected.clone(), seen.clone(), mark.to_owned(), note.clone()]
}
