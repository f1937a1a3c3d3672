//! What people see: lines as things happen, and on a terminal bars that grow below them.
//!
//! Lines go to stdout (to stderr with `--json`), bars to stderr. Where there is no terminal, lines say now and then how far the
//! counts are, and nothing is coloured.

use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::cast::Actor;
use super::words::{clock, grouped};
use crate::cli::output::{Format, printable};
use crate::types::alert::used_percent;

/// Without a terminal, between two lines about the counts.
const USAGE_EVERY: Duration = Duration::from_secs(2);
/// The width of the label of a line, so that most lines fit into 80 columns.
const LABEL_WIDTH: usize = 7;
/// The same while the scene is set.
const SCENE_LABEL_WIDTH: usize = 8;

/// What a line is about; it decides label and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The scene is set.
    Scene(&'static str),
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

impl About {
    const fn label(self) -> &'static str {
        match self {
            Self::Scene(label) => label,
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
            Self::Scene(_) | Self::Daemon => Colour::Cyan,
            Self::Alert => Colour::Green,
            Self::Failed | Self::Refused => Colour::Yellow,
            Self::Kill => Colour::Red,
            Self::Usage => Colour::Dim,
        }
    }
}

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    Stdout,
    /// Stdout belongs to the JSON.
    Stderr,
}

/// Whether lines are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paint {
    Coloured,
    Plain,
}

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    voice: Voice,
    paint: Paint,
    started: Instant,
    multi: Option<MultiProgress>,
}

impl Screen {
    /// The screen of this process; the clock of its lines starts now.
    pub(super) fn new(format: Format) -> Self {
        let voice = if format == Format::Json { Voice::Stderr } else { Voice::Stdout };
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = match voice {
            Voice::Stdout => io::stdout().is_terminal(),
            Voice::Stderr => io::stderr().is_terminal(),
        };
        let paint = if terminal && !no_color && !dumb { Paint::Coloured } else { Paint::Plain };
        let bars = io::stderr().is_terminal() && !dumb;
        let multi = bars.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Self { voice, paint, started: Instant::now(), multi }
    }

    /// How long it has been.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Text in a colour, where there are colours.
    pub(super) fn paint(&self, colour: Colour, text: impl fmt::Display) -> String {
        match self.paint {
            Paint::Coloured => format!("\x1b[{}m{text}\x1b[0m", colour.code()),
            Paint::Plain => text.to_string(),
        }
    }

    /// Prints a line as it is.
    pub(super) fn line(&self, line: impl fmt::Display) -> anyhow::Result<()> {
        let write = || match self.voice {
            Voice::Stdout => writeln!(io::stdout().lock(), "{line}"),
            // Nobody listens any more: the JSON is still wanted.
            Voice::Stderr => writeln!(io::stderr().lock(), "{line}").or(Ok(())),
        };
        let written = match &self.multi {
            Some(multi) => multi.suspend(write),
            None => write(),
        };
        written.context("write to stdout")
    }

    /// Says what has happened, and when.
    pub(super) fn say(&self, about: About, what: impl fmt::Display) -> anyhow::Result<()> {
        let width = if matches!(about, About::Scene(_)) { SCENE_LABEL_WIDTH } else { LABEL_WIDTH };
        let label = self.paint(about.colour(), format_args!("{:width$}", about.label()));
        let what = printable(&what.to_string());
        let what = if about == About::Usage { self.paint(Colour::Dim, what) } else { what };
        let time = match about {
            About::Scene(_) => String::new(),
            _ => format!("{}  ", clock(self.elapsed())),
        };
        self.line(format_args!("{}{label}  {what}", self.paint(Colour::Dim, time)))
    }

    /// The same, with an explanation where there is room for it: lines of a terminal would wrap.
    pub(super) fn say_more(&self, about: About, what: impl fmt::Display, why: &str) -> anyhow::Result<()> {
        match self.multi {
            Some(_) => self.say(about, what),
            None => self.say(about, format_args!("{what}: {why}")),
        }
    }

    /// Begins to show how the counts grow.
    pub(super) fn gauges(&self, cast: &[Actor], events: u64) -> Gauges {
        let bars = self.multi.as_ref().map(|multi| {
            let limited = cast.iter().enumerate().filter_map(|(index, actor)| Some((index, actor.limit?.get(), actor)));
            let subjects = limited.map(|(index, limit, actor)| {
                let bar = multi.add(ProgressBar::new(limit).with_prefix(actor.subject.to_string()));
                SubjectBar { index, bar, level: None }
            });
            let subjects = subjects.collect();
            let sent = multi.add(ProgressBar::new(events).with_prefix("sent"));
            sent.set_style(style(self.paint, None));
            Bars { subjects, sent, paint: self.paint }
        });
        Gauges { bars, told: Instant::now(), events }
    }
}

/// How the counts grow: bars on a terminal, lines elsewhere.
#[derive(Debug)]
pub(super) struct Gauges {
    bars: Option<Bars>,
    told: Instant,
    events: u64,
}

#[derive(Debug)]
struct Bars {
    subjects: Vec<SubjectBar>,
    sent: ProgressBar,
    paint: Paint,
}

#[derive(Debug)]
struct SubjectBar {
    /// Its place in the cast.
    index: usize,
    bar: ProgressBar,
    level: Option<Level>,
}

/// How much of a limit is used, as a colour says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Below,
    Warned,
    Full,
}

/// One look at the counts.
#[derive(Debug)]
pub(super) struct Look<'a> {
    /// Who.
    pub(super) cast: &'a [Actor],
    /// Units counted, in the order of the cast.
    pub(super) counts: &'a [u64],
    /// Events sent.
    pub(super) sent: u64,
    /// The thresholds of each subject whose alert has arrived, in the order of the cast.
    pub(super) alerted: &'a [Vec<u16>],
}

impl Gauges {
    /// Shows the counts.
    pub(super) fn show(&mut self, screen: &Screen, look: &Look<'_>) -> anyhow::Result<()> {
        if let Some(bars) = &mut self.bars {
            bars.show(look);
            return Ok(());
        }
        if self.told.elapsed() < USAGE_EVERY || look.sent == 0 {
            return Ok(());
        }
        self.told = Instant::now();
        let limited = look.cast.iter().zip(look.counts).filter_map(|(actor, count)| Some((actor, actor.limit?, count)));
        let shares: Vec<String> = limited
            .map(|(actor, limit, count)| format!("{} {:.0} %", actor.subject, used_percent(*count, limit.get())))
            .collect();
        let sent = format!("{} of {} events", grouped(look.sent), grouped(self.events));
        screen.say(About::Usage, format_args!("{sent}: {}", shares.join(", ")))
    }

    /// Takes the bars away.
    pub(super) fn clear(&self) {
        if let Some(bars) = &self.bars {
            bars.subjects.iter().for_each(|subject| subject.bar.finish_and_clear());
            bars.sent.finish_and_clear();
        }
    }
}

impl Drop for Gauges {
    fn drop(&mut self) {
        // An error is easier to read without half-drawn bars around it.
        self.clear();
    }
}

impl Bars {
    fn show(&mut self, look: &Look<'_>) {
        for SubjectBar { index, bar, level } in &mut self.subjects {
            let (Some(actor), Some(count)) = (look.cast.get(*index), look.counts.get(*index)) else { continue };
            let limit = bar.length().unwrap_or(1);
            let percent = used_percent(*count, limit);
            let now = level_of(actor, percent);
            if *level != Some(now) {
                *level = Some(now);
                bar.set_style(style(self.paint, Some(now)));
            }
            bar.set_position((*count).min(limit));
            let alerted = look.alerted.get(*index).map_or(&[][..], Vec::as_slice);
            let marks: Vec<String> = alerted.iter().map(ToString::to_string).collect();
            let marks = if marks.is_empty() { String::new() } else { format!("  alerts {}", marks.join(" ")) };
            let share = format!("{percent:.0}");
            bar.set_message(format!("{:>9} / {:<9} {share:>4} %{marks}", grouped(*count), grouped(limit)));
        }
        self.sent.set_position(look.sent);
        let events = self.sent.length().unwrap_or(0);
        self.sent.set_message(format!("{:>9} / {:<9} events", grouped(look.sent), grouped(events)));
    }
}

fn level_of(actor: &Actor, percent: f64) -> Level {
    let first = actor.thresholds.first().map_or(100.0, |percent| f64::from(percent.get()));
    if percent >= 100.0 {
        Level::Full
    } else if percent >= first {
        Level::Warned
    } else {
        Level::Below
    }
}

fn style(paint: Paint, level: Option<Level>) -> ProgressStyle {
    let colours = match (paint, level) {
        (Paint::Plain, _) => "",
        (_, None) => ".cyan/black.bright",
        (_, Some(Level::Below)) => ".green/black.bright",
        (_, Some(Level::Warned)) => ".yellow/black.bright",
        (_, Some(Level::Full)) => ".red/black.bright",
    };
    let template = format!("  {{prefix:7}} {{bar:24{colours}}} {{msg}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars(if speaks_utf8() { "━╸─" } else { "=>-" })
}

/// Whether the terminal's locale shows more than ASCII: the first of these that is set decides, as in the C library.
fn speaks_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
