//! The usage of a subject on each day.

use std::time::Duration;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::SubjectSettings;
use crate::ledger::daily_usage;
use crate::ledger::retention::KEPT_DAYS_MAX;
use crate::redis_client::Partition;
use crate::subjects::Plans;
use crate::types::{Day, DaySpan, Metric, MetricFormat, Subject, UnixMs};

/// What a subject used, day by day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "History")]
pub struct HistoryView {
    pub subject: Subject,
    /// An IANA time zone: that of the subject's days, today.
    pub timezone: &'static str,
    /// The first day that was looked at.
    pub from: Day,
    /// The last day that was looked at.
    pub to: Day,
    /// Each metric that the subject used on these days.
    pub metrics: Vec<MetricHistoryView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "MetricHistory")]
pub struct MetricHistoryView {
    pub metric: Metric,
    #[serde(flatten)]
    pub format: MetricFormat,
    /// Days on which something was used, the oldest first.
    #[schemars(length(min = 1))]
    pub days: Vec<DayUsageView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DayUsage")]
pub struct DayUsageView {
    pub day: Day,
    pub used: u64,
    /// Whether events may still be added: the day goes on, or late events may come.
    pub open: bool,
}

/// A range of days; each end may be open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayRange {
    from: Option<Day>,
    to: Option<Day>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{from} is after {to}, the last day that is asked for")]
pub struct DayRangeError {
    from: Day,
    to: Day,
}

impl DayRange {
    /// Checks the first and the last day.
    pub fn new(from: Option<Day>, to: Option<Day>) -> Result<Self, DayRangeError> {
        match (from, to) {
            (Some(from), Some(to)) if from > to => Err(DayRangeError { from, to }),
            _ => Ok(Self { from, to }),
        }
    }
}

#[derive(Debug, Clone)]
pub struct HistoryRequest {
    pub subject: Subject,
    pub settings: SubjectSettings,
    /// The metric; `None` for all.
    pub metric: Option<Metric>,
    pub range: DayRange,
    pub now: UnixMs,
    /// How long after the end of its day an event may arrive (`stream.late_max`).
    pub late_max: Duration,
    /// Number of archived days (`history.days`).
    pub days: u32,
}

/// Reads the history. `None` if `now` is outside the calendar.
pub async fn read(
    Partition { client, keys }: &Partition,
    plans: &Plans,
    request: HistoryRequest,
) -> RedisResult<Option<HistoryView>> {
    let HistoryRequest { subject, settings, metric, range, now, late_max, days } = request;
    let zone = settings.zone;
    let (Some(today), Some(utc)) = (DaySpan::containing(zone, now), Day::in_utc(now)) else { return Ok(None) };
    let kept_from = today.day.before(KEPT_DAYS_MAX.max(days.into())).unwrap_or(today.day);
    let from = range.from.unwrap_or(kept_from);
    // A subject that has moved westwards may have a day that has not begun for it yet.
    let to = range.to.unwrap_or_else(|| today.day.next().unwrap_or(today.day)).max(from);
    let is_asked = |day: &Day| (from.max(kept_from)..=to).contains(day);
    let counted: Vec<Day> =
        std::iter::successors(utc.before(KEPT_DAYS_MAX), |day| day.next().filter(|day| Some(*day) <= utc.next()))
            .filter(is_asked)
            .collect();
    let usage = daily_usage::read(client, keys, &subject, metric.as_ref(), &counted).await?;
    let is_open = |day| DaySpan::for_day(zone, day).is_some_and(|span| now <= span.end.after(late_max));
    let metrics = usage.into_iter().filter_map(|(metric, days)| {
        let days: Vec<DayUsageView> = days
            .into_iter()
            .filter(|(day, _)| is_asked(day))
            .map(|(day, used)| DayUsageView { day, used, open: is_open(day) })
            .collect();
        let format = plans.format_of(&metric);
        (!days.is_empty()).then_some(MetricHistoryView { metric, format, days })
    });
    Ok(Some(HistoryView { subject, timezone: zone.name(), from, to, metrics: metrics.collect() }))
}
