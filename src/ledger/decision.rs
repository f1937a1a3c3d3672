//! What a check answers, and how it is written for API nodes and on the command line. Pure.

use std::time::Duration;

use serde::Serialize;

use crate::subjects::Profile;
use crate::throttle::Admission;
use crate::types::{EventId, Metric, Subject, Units};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRequest {
    /// Who.
    pub subject: Subject,
    /// Of what.
    pub metric: Metric,
    /// How much.
    pub units: Units,
    /// The id of the usage event that records it where it is admitted; `None` records nothing.
    pub record: Option<EventId>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckDecision {
    /// What the settings allowed to judge.
    pub basis: DecisionBasis,
    /// The window; `None` where the plan has no rate for the metric.
    pub window: Option<LimitStatus>,
    /// The day; `None` where the subject has no limit for the metric.
    pub day: Option<LimitStatus>,
    /// Whether the usage event was appended.
    pub recorded: Recorded,
}

/// What a decision rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionBasis {
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
pub struct LimitStatus {
    /// Whether it admits what was asked for; where only the day refuses, what the window says of one unit, unless it never admits
    /// as many as were asked for.
    pub admission: Admission,
    /// The limit.
    pub limit: Units,
    /// What is left. Of the day, without what was just admitted: that is not committed yet.
    pub remaining: u64,
    /// How long until the whole limit is free again.
    pub reset: Duration,
    /// How long the window or the day is.
    pub length: Duration,
}

impl LimitStatus {
    /// Whether this limit lets the request proceed.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self.admission, Admission::Admitted)
    }

    /// When asking again may help; for what never fits, `never`.
    fn retry_after(&self, never: Duration) -> Option<Duration> {
        match self.admission {
            Admission::Admitted => None,
            Admission::Rejected { retry_after } => Some(retry_after.unwrap_or(never)),
        }
    }

    /// The same for a request of so many units, of which the limiter may not have been told: more than the limit never fits.
    pub(super) const fn asked_for(self, units: Units) -> Self {
        if units.get() > self.limit.get() {
            Self { admission: Admission::Rejected { retry_after: None }, ..self }
        } else {
            self
        }
    }

    fn figures(&self) -> LimitFigures {
        LimitFigures { limit: self.limit, remaining: self.remaining, reset_s: whole_seconds(self.reset) }
    }
}

impl CheckDecision {
    /// Nothing was there to judge by.
    #[must_use]
    pub const fn of_nothing(profile: &Profile) -> Self {
        let basis = if profile.is_judged() { DecisionBasis::Settings } else { DecisionBasis::Nothing };
        Self { basis, window: None, day: None, recorded: Recorded::No }
    }

    /// Nobody could judge.
    #[must_use]
    pub const fn none() -> Self {
        Self { basis: DecisionBasis::Nothing, window: None, day: None, recorded: Recorded::No }
    }

    /// Whether the request may proceed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.statuses().all(LimitStatus::is_admitted)
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
        self.statuses().any(|status| status.admission == Admission::Rejected { retry_after: None })
    }

    fn statuses(&self) -> impl Iterator<Item = &LimitStatus> {
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
pub struct CheckResponse {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Who.
    pub subject: String,
    /// Of what.
    pub metric: String,
    /// The window.
    pub window: Option<LimitFigures>,
    /// The day.
    pub day: Option<LimitFigures>,
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
pub struct LimitFigures {
    /// The limit.
    pub limit: Units,
    /// What is left.
    pub remaining: u64,
    /// Until the whole limit is free again.
    pub reset_s: u64,
}

impl CheckResponse {
    /// The response to a request. `allowed` is what the decision says; where nothing could be judged, the caller sets it.
    #[must_use]
    pub fn new(request: &CheckRequest, decision: &CheckDecision) -> Self {
        Self {
            allowed: decision.is_allowed(),
            subject: request.subject.to_string(),
            metric: request.metric.to_string(),
            window: decision.window.as_ref().map(LimitStatus::figures),
            day: decision.day.as_ref().map(LimitStatus::figures),
            fits: decision.never_fits().then_some(false),
            judged: (decision.basis == DecisionBasis::Nothing).then_some(false),
            recorded: request.record.is_some().then_some(decision.recorded == Recorded::Yes),
            event_id: request.record.clone(),
        }
    }
}
