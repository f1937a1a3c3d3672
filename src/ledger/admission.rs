//! What a check answers, and how it is written for API nodes and on the command line. Pure.

use std::time::Duration;

use serde::Serialize;

use crate::subjects::Profile;
use crate::throttle::Verdict;
use crate::types::{EventId, Units};

use super::check::Question;

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What the settings allowed to judge.
    pub basis: Basis,
    /// The window; `None` where the plan has no rate for the metric.
    pub window: Option<Standing>,
    /// The day; `None` where the subject has no limit for the metric.
    pub day: Option<Standing>,
    /// Whether the usage event was appended.
    pub recorded: Recorded,
}

/// What a judgement rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The subject's settings.
    Settings,
    /// Nothing: they can't be read and never could, or Redis did not answer.
    Nothing,
}

/// What became of the usage event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It was appended.
    Yes,
    /// It was not, or nobody knows.
    No,
}

/// How a subject stands with one of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Whether it admits what was asked for; where only the day refuses, what the window says of one unit, unless it never admits
    /// as many as were asked for.
    pub verdict: Verdict,
    /// The limit.
    pub limit: Units,
    /// What is left. Of the day, without what was just admitted: that is not committed yet.
    pub remaining: u64,
    /// How long until the whole limit is free again.
    pub reset: Duration,
    /// How long the window or the day is.
    pub length: Duration,
}

impl Standing {
    /// Whether this limit lets the request proceed.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admitted)
    }

    /// When asking again may help; for what never fits, `never`.
    fn retry_after(&self, never: Duration) -> Option<Duration> {
        match self.verdict {
            Verdict::Admitted => None,
            Verdict::Rejected { retry_after } => Some(retry_after.unwrap_or(never)),
        }
    }

    /// The same for a request of so many units, of which the limiter may not have been told: more than the limit never fits.
    pub(super) const fn asked_for(self, units: Units) -> Self {
        if units.get() > self.limit.get() {
            Self { verdict: Verdict::Rejected { retry_after: None }, ..self }
        } else {
            self
        }
    }

    fn figures(&self) -> Figures {
        Figures { limit: self.limit, remaining: self.remaining, reset_s: whole_seconds(self.reset) }
    }
}

impl Judgement {
    /// Nothing was there to judge by.
    #[must_use]
    pub const fn of_nothing(profile: &Profile) -> Self {
        let basis = if profile.is_judged() { Basis::Settings } else { Basis::Nothing };
        Self { basis, window: None, day: None, recorded: Recorded::No }
    }

    /// Nobody could judge.
    #[must_use]
    pub const fn none() -> Self {
        Self { basis: Basis::Nothing, window: None, day: None, recorded: Recorded::No }
    }

    /// Whether the request may proceed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.standings().all(Standing::is_admitted)
    }

    /// How long to wait before asking again: the longer wait, where both refuse. `None` where the request may proceed.
    ///
    /// No wait helps what never fits. A whole window, or what is left of the day, then keeps a client that asks all the same from
    /// asking all the time: what is used of the window says nothing, it may be empty.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let window = self.window.and_then(|window| window.retry_after(window.length));
        let day = self.day.and_then(|day| day.retry_after(day.reset));
        window.max(day)
    }

    /// Whether a limit refuses that would refuse as much however long one waits.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        self.standings().any(|standing| standing.verdict == Verdict::Rejected { retry_after: None })
    }

    fn standings(&self) -> impl Iterator<Item = &Standing> {
        self.window.iter().chain(&self.day)
    }
}

/// Whole seconds, rounded up: who waits that long waits long enough.
#[must_use]
pub fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// An answer as it is written in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Who.
    pub subject: String,
    /// Of what.
    pub metric: String,
    /// The window.
    pub window: Option<Figures>,
    /// The day.
    pub day: Option<Figures>,
    /// `false` where more is asked for than a whole limit, so that no wait helps; not there otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits: Option<bool>,
    /// `false` where nothing could be judged; not there otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<bool>,
    /// Whether the usage event was appended, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<bool>,
    /// Its id, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

/// How a subject stands with one of its limits, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The limit.
    pub limit: Units,
    /// What is left.
    pub remaining: u64,
    /// Until the whole limit is free again.
    pub reset_s: u64,
}

/// The answer, where nobody could judge, is the caller's to decide; here it says what the judgement says.
#[must_use]
pub fn written(question: &Question, judgement: &Judgement) -> Written {
    let recorded = question.record.is_some().then_some(judgement.recorded == Recorded::Yes);
    Written {
        allowed: judgement.is_allowed(),
        subject: question.subject.to_string(),
        metric: question.metric.to_string(),
        window: judgement.window.as_ref().map(Standing::figures),
        day: judgement.day.as_ref().map(Standing::figures),
        fits: judgement.never_fits().then_some(false),
        judged: (judgement.basis == Basis::Nothing).then_some(false),
        recorded,
        event_id: question.record.clone(),
    }
}
