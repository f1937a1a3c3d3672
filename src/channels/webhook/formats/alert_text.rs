//! An alert in sentences, for people who read a chat: the facts that a mail tells, without its layout. Pure.

use std::cmp::Ordering;

use crate::channels::channel::AlertPurpose;
use crate::channels::templating::{starts_at_ms, thousands, wall_clock};
use crate::types::text::printable;
use crate::types::{Alert, Window};

/// The longest name of a plan that is shown, in characters. The names of subjects and metrics are bounded where they
/// come in.
const PLAN_CHARS_MAX: usize = 100;

/// What a chat shows of an alert. Names that come from outside are escaped for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AlertText {
    /// What it is, in two words.
    pub(super) heading: &'static str,
    /// What has happened.
    pub(super) sentence: String,
    /// The numbers, each with its name.
    pub(super) facts: [(&'static str, String); 5],
    /// What follows, and when it was measured.
    pub(super) note: String,
}

/// How bad an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// It is none: a message that is made up.
    Test,
    /// A threshold below the limit was reached.
    Warning,
    /// The limit was reached.
    Exceeded,
}

impl Severity {
    pub(super) const fn from_alert(alert: &Alert, purpose: AlertPurpose) -> Self {
        match purpose {
            AlertPurpose::Test => Self::Test,
            AlertPurpose::Alert | AlertPurpose::Copy if alert.threshold_percent.get() < 100 => Self::Warning,
            AlertPurpose::Alert | AlertPurpose::Copy => Self::Exceeded,
        }
    }
}

impl AlertText {
    /// Writes it. `escape` keeps a name from being more than text where it is shown.
    pub(super) fn from_alert(alert: &Alert, purpose: AlertPurpose, escape: impl Fn(&str) -> String) -> Self {
        let name = |text: &str| escape(&printable(text));
        let (subject, metric) = (name(alert.subject.as_str()), name(alert.metric.as_str()));
        let plan = name(&alert.plan.chars().take(PLAN_CHARS_MAX).collect::<String>());
        let (used, limit, percent) = (thousands(alert.used), thousands(alert.limit), alert.used_percent());
        let zone = printable(&alert.timezone);
        let (resets_at, raised_at) =
            (wall_clock(alert.resets_at_ms, &alert.timezone), wall_clock(alert.raised_at_ms, &alert.timezone));
        let (a_window, period) = (a_window(alert.window), period_of(alert));
        let (heading, has_done) = match alert.used.cmp(&alert.limit) {
            Ordering::Less => ("Quota warning", format!("used {percent:.1}% of")),
            Ordering::Equal => ("Quota used up", "used all of".to_owned()),
            Ordering::Greater => ("Quota exceeded", "exceeded".to_owned()),
        };
        let is_test = purpose == AlertPurpose::Test;
        let test_notice = if is_test { "This is a test message from quotabell. The numbers are made up. " } else { "" };
        let what_follows = match alert.used < alert.limit {
            true => "This is a warning: nothing is refused below the limit.".to_owned(),
            false => format!("Further {metric} may be refused until the count starts over."),
        };
        Self {
            heading: if is_test { "Test message" } else { heading },
            sentence: format!("{test_notice}{subject} has {has_done} its {metric} quota for {period}."),
            facts: [
                ("Used", format!("{used} of {limit} {metric} {a_window} ({percent:.1}%)")),
                ("Remaining", thousands(alert.limit.saturating_sub(alert.used))),
                ("Threshold", format!("{}%", alert.threshold_percent)),
                ("Plan", plan),
                ("Resets", format!("{resets_at} ({zone})")),
            ],
            note: format!(
                "{what_follows} Measured {raised_at} ({zone}). Each threshold is reported once {a_window}, and again under a higher \
                 limit."
            ),
        }
    }

    /// All of it as lines of plain text.
    pub(super) fn lines(&self) -> String {
        let facts: String = self.facts.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!("{}\n{facts}{}", self.sentence, self.note)
    }
}

const fn a_window(window: Window) -> &'static str {
    match window {
        Window::Hour => "an hour",
        Window::Day => "a day",
        Window::Week => "a week",
        Window::Month => "a month",
    }
}

/// The period in words. As in the mails, an hour is named by the clock of the subject's zone.
fn period_of(alert: &Alert) -> String {
    let start = wall_clock(starts_at_ms(alert), &alert.timezone);
    match alert.window {
        Window::Day => alert.period.to_string(),
        Window::Hour => format!("the hour from {start}"),
        window => format!("the {} from {}", window.as_str(), start.get(..10).unwrap_or_default()),
    }
}
