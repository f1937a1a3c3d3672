//! The findings of `check-config`.

use std::fmt;

use crate::terminal::hint;
use crate::terminal::output::say;

/// The findings. Each is printed at once, because the next check may take a minute.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) checks: usize,
    /// The subject of each failed check.
    failed: Vec<&'static str>,
}

impl Findings {
    /// Prints the result of one check.
    pub(super) fn note(&mut self, what: &'static str, found: anyhow::Result<String>) {
        self.checks += 1;
        match found {
            Ok(text) => say(format_args!("ok: {text}")),
            Err(error) => {
                let told = hint::report(&Err(error)).text;
                let (problem, hint) = told.split_once("\nhint: ").unwrap_or((&told, ""));
                let hint = hint.trim_end();
                say(format_args!("failed: {}", problem.strip_prefix("error: ").unwrap_or(problem)));
                say(format_args!("  hint: {hint}"));
                self.failed.push(what);
            }
        }
    }

    /// Prints a value in use that can't be wrong.
    pub(super) fn inform(&self, text: impl fmt::Display) {
        say(format_args!("ok: {text}"));
    }

    /// Prints a warning about something allowed but unwise.
    pub(super) fn warn(&self, text: &str) {
        say(format_args!("warning: {text}"));
    }

    pub(super) fn into_result(self) -> anyhow::Result<()> {
        let hint = match self.failed.len() {
            0 => return Ok(()),
            1 => "the line that begins with failed has its hint below it",
            _ => "each line that begins with failed has its hint below it",
        };
        let mut names: Vec<&str> = Vec::new();
        for name in &self.failed {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let (failed, names) = (self.failed.len(), names.join(", "));
        Err(hint::failed(format_args!("{failed} of {} checks failed: {names}", self.checks), hint))
    }
}
