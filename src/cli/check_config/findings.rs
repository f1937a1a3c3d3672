//! What the checks of `check-config` found.

use crate::terminal::hint;
use crate::terminal::output::say;

/// What the checks found. Each is told at once: the next may take a minute.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) checks: usize,
    failed: Vec<Failed>,
}

#[derive(Debug)]
struct Failed {
    what: &'static str,
    hint: String,
}

impl Findings {
    /// Tells how one check ended.
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
                self.failed.push(Failed { what, hint: hint.to_owned() });
            }
        }
    }

    /// Tells what is allowed but unwise.
    pub(super) fn warn(&self, text: &str) {
        say(format_args!("warning: {text}"));
    }

    pub(super) fn judge(self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.failed.iter().map(|failed| failed.what).collect();
        let hint = match self.failed.as_slice() {
            [] => return Ok(()),
            [one] => one.hint.as_str(),
            _ => "each line that begins with failed has a hint below it",
        };
        Err(hint::failed(format_args!("{} of {} checks failed: {}", names.len(), self.checks, names.join(", ")), hint))
    }
}
