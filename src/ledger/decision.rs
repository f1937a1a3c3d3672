//! The decision of a check and its JSON form for API nodes and the command line. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::types::subject::LEVELS_MAX;
use crate::types::{
    EventId, LimitUnits, Metric, MetricFormat, MetricUnit, Period, Subject, TraceParent, Units, Window,
};
use quotabell_throttle::Admission;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRequest {
    /// The subject.
    pub subject: Subject,
    /// The metric.
    pub metric: Metric,
    /// The units.
    pub units: Units,
    /// The id of the usage event that records an admitted request; `None` records nothing.
    pub record: Option<EventId>,
    /// The trace of the request, which the event carries on.
    pub traceparent: Option<TraceParent>,
}

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckDecision {
    /// Whether the decision follows from the subject's settings. `false`: the settings can't be read and never could,
    /// or Redis did not answer.
    pub is_judged: bool,
    /// The rates for the metric: that of the subject, then those of the levels above it.
    pub rates: Vec<RateStatus>,
    /// The limits for the metric: those of the subject, then those of the levels above it; of each level ascending by
    /// window.
    pub limits: Vec<PeriodStatus>,
    /// Whether the usage event was appended.
    pub recorded: Recorded,
}

/// Whether the usage event was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It was appended.
    Yes,
    /// It was not appended, or the result is unknown.
    No,
}

/// The status of a rate or a limit for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStatus {
    /// Whether it admits the request. If only limits refuse, the rate's status for one unit, unless the rate can never
    /// admit the requested units.
    pub admission: Admission,
    /// Units per interval or period.
    pub limit: LimitUnits,
    /// Remaining units. For a period, without what this request was just granted, because that is not committed yet.
    pub remaining: u64,
    /// Time until all units are free again; until the end of the calendar for a total.
    pub reset: Duration,
    /// Length of the interval or period; that of the calendar for a total.
    pub length: Duration,
}

/// The status of the rate of a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateStatus {
    /// The level.
    pub subject: Subject,
    /// Its number from the top, from 1, if it is above the subject.
    pub level_above: Option<usize>,
    /// The status of its rate.
    pub status: LimitStatus,
}

/// The status of a limit in its current period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodStatus {
    /// The level whose limit it is.
    pub subject: Subject,
    /// Its number from the top, from 1, if it is above the subject.
    pub level_above: Option<usize>,
    /// The period.
    pub period: Period,
    /// Committed units of the period.
    pub used: u64,
    /// The status of the limit.
    pub status: LimitStatus,
}

impl LimitStatus {
    /// Whether this limit admits the request.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.admission, Admission::Admitted)
    }

    /// When a retry may succeed; `never` if it can't succeed.
    fn retry_after(&self, never: Duration) -> Option<Duration> {
        match self.admission {
            Admission::Admitted => None,
            Admission::Rejected { retry_after } => Some(retry_after.unwrap_or(never)),
        }
    }

    /// The same status for a request of `units`; the limiter may have judged fewer. A request above the limit never
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
        let Self { ref subject, period, used, status, .. } = *self;
        let RateResponse { limit, remaining, reset_s } = status.response();
        let subject = subject.clone();
        let reset_s = period.has_end().then_some(reset_s);
        LimitResponse { subject, window: period.window(), period, limit, used, remaining, reset_s }
    }
}

impl CheckDecision {
    /// The decision if nothing could be judged.
    pub const fn not_judged() -> Self {
        Self { is_judged: false, rates: Vec::new(), limits: Vec::new(), recorded: Recorded::No }
    }

    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.statuses().all(|(_, status)| status.is_admitted())
    }

    /// How long to wait before a retry: the longest wait if several limits refuse. `None` if the request is allowed.
    ///
    /// No wait helps a request that never fits. The wait is then a whole interval of the rate, or the rest of the
    /// period, or an hour for a total, so that a client that retries anyway does not retry constantly.
    pub fn retry_after(&self) -> Option<Duration> {
        const AFTER_TOTAL: Duration = Duration::from_secs(3600);
        let rates = self.rates.iter().filter_map(|RateStatus { status, .. }| status.retry_after(status.length));
        let never = |limit: &PeriodStatus| if limit.period.has_end() { limit.status.reset } else { AFTER_TOTAL };
        let limits = self.limits.iter().filter_map(|limit| limit.status.retry_after(never(limit)));
        rates.chain(limits).max()
    }

    /// The limit that refuses for the longest time; `None` if only the rate refuses, or nothing.
    pub fn longest_refusal(&self) -> Option<Window> {
        let refusing = self.limits.iter().filter(|limit| !limit.status.is_admitted());
        refusing.map(|limit| limit.period.window()).max()
    }

    /// [`Self::retry_after`] in whole seconds, at least 1, because 0 would ask for another try at once.
    pub fn retry_after_s(&self) -> u64 {
        self.retry_after().map_or(1, |wait| whole_seconds(wait).max(1))
    }

    /// Whether a limit refuses the request regardless of the wait.
    pub fn never_fits(&self) -> bool {
        self.statuses().any(|(_, status)| status.admission == Admission::Rejected { retry_after: None })
    }

    /// Why the request may not proceed.
    pub fn refusal(&self, request: &CheckRequest, format: &MetricFormat) -> String {
        let CheckRequest { subject, metric, units, .. } = request;
        let units = format.amount(units.get());
        let is_used_up = |limit: &PeriodStatus| !limit.period.has_end() && !limit.status.is_admitted();
        match self.never_fits() {
            true if self.limits.iter().any(is_used_up) => {
                let whose = self.of_whom(subject);
                format!("{subject} asks for {units} of {metric}, more than is left of its total{whose}")
            }
            true => {
                format!("{subject} asks for {units} of {metric}, more than the whole limit{}", self.of_whom(subject))
            }
            false => format!("{subject} may not use {units} of {metric} now{}", self.of_whom(subject)),
        }
    }

    /// Which levels above refuse; empty if the subject's own limits refuse.
    fn of_whom(&self, subject: &Subject) -> String {
        let levels: BTreeSet<&Subject> =
            self.statuses().filter(|(_, status)| !status.is_admitted()).map(|of| of.0).collect();
        if levels.contains(subject) || levels.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = levels.into_iter().map(Subject::as_str).collect();
        format!(", by the limit of {}", names.join(" and of "))
    }

    fn statuses(&self) -> impl Iterator<Item = (&Subject, &LimitStatus)> {
        let rates = self.rates.iter().map(|RateStatus { subject, status, .. }| (subject, status));
        rates.chain(self.limits.iter().map(|limit| (&limit.subject, &limit.status)))
    }
}

/// Whole seconds, rounded up, so that a client waits long enough.
pub fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The decision in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CheckResponse {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The subject.
    pub subject: String,
    /// The metric.
    pub metric: String,
    /// Its unit and scale.
    #[serde(flatten)]
    pub unit: MetricUnit,
    /// The rate of the plan; null if it has none for the metric.
    pub rate: Option<RateResponse>,
    /// The rates of the levels above the subject, the nearest one first; absent if they have none for the metric.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = LEVELS_MAX - 1))]
    pub rates_above: Vec<LevelRateResponse>,
    /// The limits for the metric: those of the subject, then those of each level above it, the shortest window first.
    #[schemars(length(max = LEVELS_MAX * Window::ALL.len()))]
    pub limits: Vec<LimitResponse>,
    /// Present if the request exceeds a whole limit, or what is left of a total: no wait helps, so do not retry with as
    /// many units.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [false]))]
    pub fits: Option<bool>,
    /// Present if nothing could be judged: Redis is unavailable or out of memory, or the subject's settings can't be
    /// read and have no last good value. `check.on_error` then decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [false]))]
    pub judged: Option<bool>,
    /// Present with `record`: whether the usage event was appended. If `judged` is false it may have been appended
    /// anyway: append it under `event_id`, and it counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<bool>,
    /// Present with `record`: the id of the usage event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

/// The status of the subject's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RateStatus")]
pub struct RateResponse {
    /// Units per interval.
    pub limit: LimitUnits,
    /// Remaining units.
    pub remaining: u64,
    /// Seconds until all units are free again, rounded up.
    pub reset_s: u64,
}

/// The status of the rate of a level above the subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LevelRateStatus")]
pub struct LevelRateResponse {
    /// The level.
    pub subject: Subject,
    /// The status.
    #[serde(flatten)]
    pub rate: RateResponse,
}

/// The status of one of the limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LimitStatus")]
pub struct LimitResponse {
    /// The subject, or the level above it whose limit it is.
    pub subject: Subject,
    /// The window of the limit.
    pub window: Window,
    /// The current period.
    pub period: Period,
    /// Units per period, with those of grants.
    pub limit: LimitUnits,
    /// Committed units of the period.
    pub used: u64,
    /// The limit minus the committed units.
    pub remaining: u64,
    /// Seconds until the period ends, rounded up; null for a total.
    pub reset_s: Option<u64>,
}

impl CheckResponse {
    /// The response to a request. `allowed` comes from the decision; if nothing could be judged, the caller sets it.
    pub fn new(request: &CheckRequest, decision: &CheckDecision, format: &MetricFormat) -> Self {
        let (own, above): (Vec<_>, Vec<_>) = decision.rates.iter().partition(|rate| rate.level_above.is_none());
        let own = own.first();
        let level = |RateStatus { subject, status, .. }: &RateStatus| LevelRateResponse {
            subject: subject.clone(),
            rate: status.response(),
        };
        let above = above.into_iter().map(level).collect();
        Self {
            allowed: decision.is_allowed(),
            subject: request.subject.to_string(),
            metric: request.metric.to_string(),
            unit: format.unit(),
            rate: own.map(|rate| rate.status.response()),
            rates_above: above,
            limits: decision.limits.iter().map(PeriodStatus::response).collect(),
            fits: decision.never_fits().then_some(false),
            judged: (!decision.is_judged).then_some(false),
            recorded: request.record.is_some().then_some(decision.recorded == Recorded::Yes),
            event_id: request.record.clone(),
        }
    }
}
