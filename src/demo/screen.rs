//! What people see: lines as things happen, and on a terminal bars that grow below them.
//!
//! Lines go to stdout (to stderr with `--json`), bars to stderr. Where there is no terminal, lines say now and then how far the
//! counts are, and nothing is coloured. Read next: `progress`, the bars.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressDrawTarget};

use super::number_format::clock;
use crate::terminal::output::{Format, printable};

/// The width of the label of a line, so that most lines fit into 80 columns.
const LABEL_WIDTH: usize = 7;
/// The same while the scene is set.
const SETUP_LABEL_WIDTH: usize = 8;

/// What a line is kind; it decides label and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// The scene is set.
    Setup(&'static str),
    /// An alert was taken by its receiver.
    Alert,
    /// A receiver failed.
    Failed,
    /// An event was refused.
    Refused,
    /// The daemon was killed.
    Kill,
    /// The daemon's life otherwise.
    Daemon,
    /// How far the counts are.
    Usage,
}

/// The colours that are used, as SGR codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colour {
    /// Good news.
    Green,
    /// Trouble that passes.
    Yellow,
    /// Trouble.
    Red,
    /// Plain facts.
    Cyan,
    /// What may be overlooked.
    Dim,
    /// Headings.
    Bold,
}

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "1;31",
            Self::Cyan => "36",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }
}

impl LineKind {
    const fn label(self) -> &'static str {
        match self {
            Self::Setup(label) => label,
            Self::Alert => "alert",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Kill => "kill -9",
            Self::Daemon => "daemon",
            Self::Usage => "usage",
        }
    }

    const fn colour(self) -> Colour {
        match self {
            Self::Setup(_) | Self::Daemon => Colour::Cyan,
            Self::Alert => Colour::Green,
            Self::Failed | Self::Refused => Colour::Yellow,
            Self::Kill => Colour::Red,
            Self::Usage => Colour::Dim,
        }
    }
}

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputStream {
    Stdout,
    /// Stdout belongs to the JSON.
    Stderr,
}

/// Whether lines are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColourMode {
    /// They are.
    Coloured,
    /// They are not.
    Plain,
}

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    stream: OutputStream,
    colours: ColourMode,
    started: Instant,
    multi: Option<MultiProgress>,
}

impl Screen {
    /// The screen of this process; the clock of its lines starts now.
    pub(super) fn new(format: Format) -> Self {
        let stream = if format == Format::Json { OutputStream::Stderr } else { OutputStream::Stdout };
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = match stream {
            OutputStream::Stdout => io::stdout().is_terminal(),
            OutputStream::Stderr => io::stderr().is_terminal(),
        };
        let colours = if terminal && !no_color && !dumb { ColourMode::Coloured } else { ColourMode::Plain };
        let bars = io::stderr().is_terminal() && !dumb;
        let multi = bars.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Self { stream, colours, started: Instant::now(), multi }
    }

    /// How long it has been.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Text in a colour, where there are colours.
    pub(super) fn paint(&self, colour: Colour, text: impl fmt::Display) -> String {
        match self.colours {
            ColourMode::Coloured => format!("\x1b[{}m{text}\x1b[0m", colour.code()),
            ColourMode::Plain => text.to_string(),
        }
    }

    /// Prints a line as it is.
    pub(super) fn line(&self, line: impl fmt::Display) -> anyhow::Result<()> {
        let write = || match self.stream {
            OutputStream::Stdout => writeln!(io::stdout().lock(), "{line}"),
            // Nobody listens any more: the JSON is still wanted.
            OutputStream::Stderr => writeln!(io::stderr().lock(), "{line}").or(Ok(())),
        };
        let written = match &self.multi {
            Some(multi) => multi.suspend(write),
            None => write(),
        };
        written.context("write to stdout")
    }

    /// Says what has happened, and when.
    pub(super) fn say(&self, kind: LineKind, what: impl fmt::Display) -> anyhow::Result<()> {
        let width = if matches!(kind, LineKind::Setup(_)) { SETUP_LABEL_WIDTH } else { LABEL_WIDTH };
        let label = self.paint(kind.colour(), format_args!("{:width$}", kind.label()));
        let what = printable(&what.to_string());
        let what = if kind == LineKind::Usage { self.paint(Colour::Dim, what) } else { what };
        let time = match kind {
            LineKind::Setup(_) => String::new(),
            _ => format!("{}  ", clock(self.elapsed())),
        };
        self.line(format_args!("{}{label}  {what}", self.paint(Colour::Dim, time)))
    }

    /// The same, with an explanation where there is room for it: lines of a terminal would wrap.
    pub(super) fn say_with_reason(&self, kind: LineKind, what: impl fmt::Display, why: &str) -> anyhow::Result<()> {
        match self.multi {
            Some(_) => self.say(kind, what),
            None => self.say(kind, format_args!("{what}: {why}")),
        }
    }

    /// What bars are drawn with; `None` where there is no terminal for them.
    pub(super) const fn multi(&self) -> Option<&MultiProgress> {
        self.multi.as_ref()
    }

    /// Whether there are colours.
    pub(super) const fn colour_mode(&self) -> ColourMode {
        self.colours
    }
}
