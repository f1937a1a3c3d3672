//! What a check answers, and how it is written for API nodes and on the command line. Pure.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::subjects::Profile;
use crate::throttle::Admission;
use crate::types::{EventId, Metric, Period, Subject, Units, Window};

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
    /// The rate; `None` where the plan has none for the metric.
    pub rate: Option<LimitStatus>,
    /// Each limit that the subject has for the metric, ascending by window.
    pub limits: Vec<PeriodStatus>,
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

/// How a subject stands with its rate or with one of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    /// Whether it admits what was asked for; where only limits refuse, what the rate says of one unit, unless it never
    /// admits as many as were asked for.
    pub admission: Admission,
    /// Units of a whole interval or period.
    pub limit: Units,
    /// What is left. Of a period, without what was just admitted: that is not committed yet.
    pub remaining: u64,
    /// How long until all of it is free again.
    pub reset: Duration,
    /// How long the interval or period is.
    pub length: Duration,
}

/// How a subject stands with a limit in its current period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodStatus {
    /// The period.
    pub period: Period,
    /// Units that were committed in it.
    pub used: u64,
    /// What is left of the limit.
    pub status: LimitStatus,
}

impl LimitStatus {
    /// Whether this limit lets the request proceed.
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

    /// The same status for a request of so many units; the limiter may have judged fewer. More than the limit never
    /// fits.
    pub(super) const fn asked_for(self, units: Units) -> Self {
        if units.get() > self.limit.get() {
            Self { admission: Admission::Rejected { retry_after: None }, ..self }
        } else {
            self
        }
    }

    fn response(&self) -> RateResponse {
        RateResponse { limit: self.limit, remaining: self.remaining, reset_s: whole_seconds(self.reset) }
    }
}

impl PeriodStatus {
    fn response(&self) -> LimitResponse {
        let Self { period, used, status } = *self;
        let RateResponse { limit, remaining, reset_s } = status.response();
        LimitResponse { window: period.window(), period, limit, used, remaining, reset_s }
    }
}

impl CheckDecision {
    /// Nothing was there to judge by.
    pub const fn nothing_to_judge(profile: &Profile) -> Self {
        let basis = if profile.has_known_limits() { DecisionBasis::Settings } else { DecisionBasis::Nothing };
        Self { basis, rate: None, limits: Vec::new(), recorded: Recorded::No }
    }

    /// Nobody could judge.
    pub const fn not_judged() -> Self {
        Self { basis: DecisionBasis::Nothing, rate: None, limits: Vec::new(), recorded: Recorded::No }
    }

    /// Whether the request may proceed.
    pub fn is_allowed(&self) -> bool {
        self.statuses().all(LimitStatus::is_admitted)
    }

    /// How long to wait before asking again: the longest wait, where several refuse. `None` where the request may
    /// proceed.
    ///
    /// No wait helps what never fits. A whole interval of the rate, or what is left of the period, then keeps a client
    /// that asks all the same from asking all the time: what is used of the rate says nothing, it may be nothing.
    pub fn retry_after(&self) -> Option<Duration> {
        let rate = self.rate.and_then(|rate| rate.retry_after(rate.length));
        let limits = self.limits.iter().filter_map(|limit| limit.status.retry_after(limit.status.reset));
        rate.max(limits.max())
    }

    /// The limit that refuses for the longest time; `None` where only the rate does, or nothing.
    pub fn longest_refusal(&self) -> Option<Window> {
        let refusing = self.limits.iter().filter(|limit| !limit.status.is_admitted());
        refusing.map(|limit| limit.period.window()).max()
    }

    /// Whether a limit refuses that would refuse as much however long one waits.
    pub fn never_fits(&self) -> bool {
        self.statuses().any(|status| status.admission == Admission::Rejected { retry_after: None })
    }

    fn statuses(&self) -> impl Iterator<Item = &LimitStatus> {
        self.rate.iter().chain(self.limits.iter().map(|limit| &limit.status))
    }
}

/// Whole seconds, rounded up: who waits that long waits long enough.
pub fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// An answer as it is written in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CheckResponse {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Who.
    pub subject: String,
    /// Of what.
    pub metric: String,
    /// The rate of the plan; null where it has none for the metric.
    pub rate: Option<RateResponse>,
    /// Each limit that the subject has for the metric, the shortest window first.
    #[schemars(length(max = 4))]
    pub limits: Vec<LimitResponse>,
    /// Only where more units are asked for than a whole limit: no wait helps, so don't ask again for as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [false]))]
    pub fits: Option<bool>,
    /// Only where nothing could be judged: Redis is away or can't do it (its memory is full), or the subject's settings
    /// can't be read and never could. `check.on_error` decides then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [false]))]
    pub judged: Option<bool>,
    /// Only with `record`: whether the usage event was appended. With `judged` false it may have been all the same:
    /// append it under `event_id`, and it counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<bool>,
    /// Only with `record`: the id of the usage event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

/// How a subject stands with its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RateStatus")]
pub struct RateResponse {
    /// Units an interval.
    pub limit: Units,
    /// What is left.
    pub remaining: u64,
    /// Seconds until the whole rate is free again, rounded up.
    pub reset_s: u64,
}

/// How a subject stands with one of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LimitStatus")]
pub struct LimitResponse {
    /// Over what it counts.
    pub window: Window,
    /// The current period.
    pub period: Period,
    /// Units a period.
    pub limit: Units,
    /// Units that have been committed in the period.
    pub used: u64,
    /// The limit less what has been committed.
    pub remaining: u64,
    /// Seconds until the period ends, rounded up.
    pub reset_s: u64,
}

impl CheckResponse {
    /// The response to a request. `allowed` is what the decision says; where nothing could be judged, the caller sets
    /// it.
    pub fn new(request: &CheckRequest, decision: &CheckDecision) -> Self {
        Self {
            allowed: decision.is_allowed(),
            subject: request.subject.to_string(),
            metric: request.metric.to_string(),
            rate: decision.rate.as_ref().map(LimitStatus::response),
            limits: decision.limits.iter().map(PeriodStatus::response).collect(),
            fits: decision.never_fits().then_some(false),
            judged: (decision.basis == DecisionBasis::Nothing).then_some(false),
            recorded: request.record.is_some().then_some(decision.recorded == Recorded::Yes),
            event_id: request.record.clone(),
        }
    }
}
