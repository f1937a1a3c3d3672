//! Progress of long operations, on stderr and only on a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Events or subjects.
    Items,
    Bytes,
}

/// A bar for `total` steps, hidden if stderr is not a terminal. It draws at most a few times per second, so counting is
/// cheap.
pub fn bar(total: u64, unit: ProgressUnit) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = match unit {
        ProgressUnit::Items => "{bar:30} {human_pos} of {human_len}, {eta} left",
        ProgressUnit::Bytes => "{bar:30} {bytes} of {total_bytes}, {eta} left",
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
