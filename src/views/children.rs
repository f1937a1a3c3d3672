//! The level below a subject: what each child used, and its share.

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::SubjectSettings;
use crate::ledger::batch::MetricPeriod;
use crate::ledger::children::{self, CHILDREN_MAX};
use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::query;
use crate::redis_client::Partition;
use crate::subjects::Plans;
use crate::types::alert::used_percent;
use crate::types::{Metric, MetricFormat, Period, PeriodSpan, Subject, UnixMs, Window};

/// What the children of a subject used of a metric in the current period of a window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ChildList")]
pub struct ChildrenView {
    pub subject: Subject,
    pub metric: Metric,
    #[serde(flatten)]
    pub format: MetricFormat,
    pub window: Window,
    pub period: Period,
    /// Committed units of the subject itself, those of all levels below included. `null` if it has no counter: nothing
    /// was used, or it is not counted in this window, because neither it nor a level above has a limit there.
    pub used: Option<u64>,
    /// The children with a count in the period, the largest first: of the 1,000 that were used last.
    #[schemars(length(max = CHILDREN_MAX))]
    pub children: Vec<ChildView>,
}

/// What one child used.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Child")]
pub struct ChildView {
    pub subject: Subject,
    pub used: u64,
    /// Its share of what the level above used, percent, rounded down to one decimal; `null` if that is.
    #[schemars(range(min = 0))]
    pub percent: Option<f64>,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct ChildrenRequest {
    pub subject: Subject,
    pub settings: SubjectSettings,
    pub metric: Metric,
    pub window: Window,
    pub now: UnixMs,
}

/// Reads the children. `None` if `now` is outside the calendar.
pub async fn read(partition: &Partition, plans: &Plans, request: ChildrenRequest) -> RedisResult<Option<ChildrenView>> {
    let ChildrenRequest { subject, settings, metric, window, now } = request;
    let Some(span) = PeriodSpan::containing(window, settings.zone, settings.billing, now) else { return Ok(None) };
    let of = MetricPeriod { metric, period: span.period };
    let counts = children::counts(partition, &subject, &of).await?;
    let used = query::used(partition, &subject, &of).await?;
    let child = |count: SubjectCount| {
        let percent = used.map(|used| used_percent(count.used, used));
        ChildView { subject: count.subject, used: count.used, percent }
    };
    let children = counts.into_iter().map(child).collect();
    let format = plans.format_of(&of.metric);
    Ok(Some(ChildrenView { subject, metric: of.metric, format, window, period: span.period, used, children }))
}
