//! How the counts grow: bars below the lines on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::number_format::grouped;
use super::scenario::SimulatedSubject;
use super::screen::{ColourMode, LineKind, Screen};
use crate::types::alert::used_percent;

/// Without a terminal, between two lines about the counts.
const USAGE_EVERY: Duration = Duration::from_secs(2);

/// How the counts grow: bars on a terminal, lines elsewhere.
#[derive(Debug)]
pub(super) struct ProgressDisplay {
    bars: Option<Bars>,
    told: Instant,
    events: u64,
}

#[derive(Debug)]
struct Bars {
    multi: MultiProgress,
    /// An empty line above the others. The terminal's echo of Ctrl-C moves the cursor down by one line, so that clearing misses
    /// the topmost.
    gap: ProgressBar,
    subjects: Vec<SubjectBar>,
    sent: ProgressBar,
    colours: ColourMode,
}

#[derive(Debug)]
struct SubjectBar {
    /// Its position in the scenario.
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

/// One snapshot at the counts.
#[derive(Debug)]
pub(super) struct ProgressSnapshot<'a> {
    /// The subjects.
    pub(super) subjects: &'a [SimulatedSubject],
    /// Units counted, in the order of the scenario.
    pub(super) counts: &'a [u64],
    /// Events sent.
    pub(super) sent: u64,
    /// The thresholds of each subject whose alert has arrived, in the order of the scenario.
    pub(super) alerted: &'a [Vec<u16>],
}

impl ProgressDisplay {
    /// Begins to show the counts of everybody who has a limit, and how many of `events` were sent.
    pub(super) fn new(screen: &Screen, subjects: &[SimulatedSubject], events: u64) -> Self {
        let bars = screen.multi().map(|multi| Bars::new(multi.clone(), screen.colour_mode(), subjects, events));
        Self { bars, told: Instant::now(), events }
    }

    /// Shows the counts.
    pub(super) fn show(&mut self, screen: &Screen, snapshot: &ProgressSnapshot<'_>) -> anyhow::Result<()> {
        if let Some(bars) = &mut self.bars {
            bars.show(snapshot);
            return Ok(());
        }
        if self.told.elapsed() < USAGE_EVERY || snapshot.sent == 0 {
            return Ok(());
        }
        self.told = Instant::now();
        let limited = snapshot
            .subjects
            .iter()
            .zip(snapshot.counts)
            .filter_map(|(simulated, count)| Some((simulated, simulated.limit?, count)));
        let shares: Vec<String> = limited
            .map(|(simulated, limit, count)| {
                format!("{} {:.0} %", simulated.subject, used_percent(*count, limit.get()))
            })
            .collect();
        let sent = format!("{} of {} events", grouped(snapshot.sent), grouped(self.events));
        screen.say(LineKind::Usage, format_args!("{sent}: {}", shares.join(", ")))
    }

    /// Takes the bars away.
    pub(super) fn clear(&self) {
        if let Some(bars) = &self.bars {
            bars.gap.finish_and_clear();
            bars.subjects.iter().for_each(|subject| subject.bar.finish_and_clear());
            bars.sent.finish_and_clear();
            // What the drawing held back so as not to flicker would stay behind.
            let _ = bars.multi.clear();
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        // An error is easier to read without half-drawn bars around it.
        self.clear();
    }
}

impl Bars {
    fn new(multi: MultiProgress, colours: ColourMode, subjects: &[SimulatedSubject], events: u64) -> Self {
        let gap = multi.add(ProgressBar::new(1));
        gap.set_style(ProgressStyle::with_template(" ").unwrap_or_else(|_| ProgressStyle::default_bar()));
        let limited = subjects
            .iter()
            .enumerate()
            .filter_map(|(index, simulated)| Some((index, simulated.limit?.get(), simulated)));
        let subjects = limited.map(|(index, limit, simulated)| {
            let bar = multi.add(ProgressBar::new(limit).with_prefix(simulated.subject.to_string()));
            SubjectBar { index, bar, level: None }
        });
        let subjects = subjects.collect();
        let sent = multi.add(ProgressBar::new(events).with_prefix("sent"));
        sent.set_style(style(colours, None));
        Self { multi, gap, subjects, sent, colours }
    }

    fn show(&mut self, snapshot: &ProgressSnapshot<'_>) {
        for SubjectBar { index, bar, level } in &mut self.subjects {
            let (Some(simulated), Some(count)) = (snapshot.subjects.get(*index), snapshot.counts.get(*index)) else {
                continue;
            };
            let limit = bar.length().unwrap_or(1);
            let percent = used_percent(*count, limit);
            let now = level_of(simulated, percent);
            if *level != Some(now) {
                *level = Some(now);
                bar.set_style(style(self.colours, Some(now)));
            }
            bar.set_position((*count).min(limit));
            let alerted = snapshot.alerted.get(*index).map_or(&[][..], Vec::as_slice);
            let marks: Vec<String> = alerted.iter().map(ToString::to_string).collect();
            let marks = if marks.is_empty() { String::new() } else { format!("  alerts {}", marks.join(" ")) };
            let share = format!("{percent:.0}");
            bar.set_message(format!("{:>9} / {:<9} {share:>4} %{marks}", grouped(*count), grouped(limit)));
        }
        self.gap.tick();
        self.sent.set_position(snapshot.sent);
        let events = self.sent.length().unwrap_or(0);
        self.sent.set_message(format!("{:>9} / {:<9} events", grouped(snapshot.sent), grouped(events)));
    }
}

fn level_of(simulated: &SimulatedSubject, percent: f64) -> Level {
    let first = simulated.thresholds.first().map_or(100.0, |percent| f64::from(percent.get()));
    if percent >= 100.0 {
        Level::Full
    } else if percent >= first {
        Level::Warned
    } else {
        Level::Below
    }
}

fn style(colours: ColourMode, level: Option<Level>) -> ProgressStyle {
    let template_colours = match (colours, level) {
        (ColourMode::Plain, _) => "",
        (_, None) => ".cyan/black.bright",
        (_, Some(Level::Below)) => ".green/black.bright",
        (_, Some(Level::Warned)) => ".yellow/black.bright",
        (_, Some(Level::Full)) => ".red/black.bright",
    };
    let template = format!("  {{prefix:7}} {{bar:24{template_colours}}} {{msg}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars(if speaks_utf8() { "━╸─" } else { "=>-" })
}

/// Whether the terminal's locale shows more than ASCII: the first of these that is set decides, as in the C library.
fn speaks_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
