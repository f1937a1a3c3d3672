//! The alerts that were raised.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::Rfc3339;
use crate::ledger::query;
use crate::ledger::retention::KEPT_DAYS_MAX;
use crate::redis_client::{Partition, Partitions};
use crate::types::{Alert, AlertId, Day, Metric, Percent, Period, StreamId, Subject, UnixMs, Window};

/// An alert, with the facts that [`Alert`] has of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Alert")]
pub struct AlertView {
    #[schemars(regex(pattern = "^alert_[0-9a-f]{32}$"))]
    pub id: AlertId,
    pub subject: Subject,
    pub metric: Metric,
    /// Percent of the limit.
    pub threshold_percent: Percent,
    /// The same in units. A higher limit lets the percentage be raised again in one period, at more units.
    pub threshold_units: u64,
    /// The count before the batch of entries that raised it.
    pub used_before: u64,
    /// The count when it was raised.
    pub used: u64,
    /// The limit in force then.
    #[schemars(range(min = 1))]
    pub limit: u64,
    pub window: Window,
    pub period: Period,
    pub raised_at: Rfc3339,
    pub raised_at_ms: UnixMs,
    pub plan: String,
    pub timezone: String,
    /// The id of the first entry of that batch in the usage stream.
    pub first_entry: StreamId,
    /// The id of its last entry.
    pub last_entry: StreamId,
}

impl From<Alert> for AlertView {
    fn from(alert: Alert) -> Self {
        Self {
            id: alert.id,
            subject: alert.subject,
            metric: alert.metric,
            threshold_percent: alert.threshold_percent,
            threshold_units: alert.threshold_units,
            used_before: alert.used_before,
            used: alert.used,
            limit: alert.limit,
            window: alert.window,
            period: alert.period,
            raised_at: Rfc3339(alert.raised_at_ms),
            raised_at_ms: alert.raised_at_ms,
            plan: alert.plan,
            timezone: alert.timezone,
            first_entry: alert.first_entry,
            last_entry: alert.last_entry,
        }
    }
}

/// Which alerts to list.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    pub subject: Option<Subject>,
    pub since: Option<UnixMs>,
}

/// Ten years: a setting that is longer has no end.
const STORED_DAYS_MAX: u64 = 3_653;

/// Every period whose alerts may still be kept. An alert may be raised for a period that is long over: an event may
/// come late, or be read late. Empty where `now` is in no day.
pub fn kept_periods(now: UnixMs) -> Vec<Period> {
    periods(now, KEPT_DAYS_MAX)
}

/// Every period of which anything may be stored, if events of this age are counted. Counters live for a fortnight after
/// that.
pub fn stored_periods(now: UnixMs, event_age_max: Duration) -> Vec<Period> {
    periods(now, (event_age_max.as_secs() / 86_400).min(STORED_DAYS_MAX) + KEPT_DAYS_MAX)
}

/// Every period that touches today or yesterday, in any zone. Empty where `now` is in no day.
pub fn recent_periods(now: UnixMs) -> Vec<Period> {
    periods(now, 1)
}

/// The periods of the last days, and of the one that zones ahead of UTC call today already.
fn periods(now: UnixMs, back: u64) -> Vec<Period> {
    let Some(today) = Day::in_utc(now) else { return Vec::new() };
    Period::touching(today.before(back).unwrap_or(today), today.next().unwrap_or(today))
}

/// Reads the alerts of these periods that pass the filter, in the order of time. One event may reach several thresholds
/// in one moment: then the lower one comes first. Work is bounded by what was raised in these periods.
pub async fn of_periods(
    partition: &Partition,
    periods: &[Period],
    filter: &AlertFilter,
) -> RedisResult<Vec<AlertView>> {
    let alerts = match &filter.subject {
        Some(subject) => query::alerts_of(partition, subject, periods).await?,
        None => query::alerts(partition, periods).await?,
    };
    let passed = alerts.into_iter().filter(|alert| filter.since.is_none_or(|since| since <= alert.raised_at_ms));
    Ok(in_order(passed.map(AlertView::from).collect()))
}

/// As [`of_periods`], of every partition, or of the subject's where the filter names one.
pub async fn of_partitions(
    partitions: &Partitions,
    periods: &[Period],
    filter: &AlertFilter,
) -> RedisResult<Vec<AlertView>> {
    if let Some(subject) = &filter.subject {
        return of_periods(partitions.partition_of(subject), periods, filter).await;
    }
    let mut listed = Vec::new();
    for partition in partitions.iter() {
        listed.extend(of_periods(partition, periods, filter).await?);
    }
    Ok(in_order(listed))
}

fn in_order(mut listed: Vec<AlertView>) -> Vec<AlertView> {
    listed.sort_by_cached_key(|alert| {
        let AlertView { raised_at_ms, subject, metric, threshold_percent, period, .. } = alert;
        (*raised_at_ms, subject.clone(), metric.clone(), *threshold_percent, *period, alert.id.clone())
    });
    listed
}

/// Where a listing of alerts goes on: behind this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertCursor {
    raised_at_ms: UnixMs,
    id: AlertId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not the `next` of a list of alerts")]
pub struct AlertCursorError;

impl AlertCursor {
    /// The first `limit` alerts behind the cursor, and the cursor of those that follow; none where none do. Where the
    /// alert of the cursor has been forgotten since, those of its moment are listed again rather than left out.
    pub fn slice(after: Option<&Self>, mut alerts: Vec<AlertView>, limit: usize) -> (Vec<AlertView>, Option<Self>) {
        if let Some(Self { raised_at_ms, id }) = after {
            let found = alerts.iter().position(|alert| alert.id == *id);
            let older = || alerts.partition_point(|alert| alert.raised_at_ms < *raised_at_ms);
            alerts.drain(..found.map_or_else(older, |at| at + 1));
        }
        let more = alerts.len() > limit;
        alerts.truncate(limit);
        let of = |alert: &AlertView| Self { raised_at_ms: alert.raised_at_ms, id: alert.id.clone() };
        let next = alerts.last().filter(|_| more).map(of);
        (alerts, next)
    }
}

/// `<ms>-<alert id>`.
impl fmt::Display for AlertCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.raised_at_ms.0, self.id)
    }
}

impl FromStr for AlertCursor {
    type Err = AlertCursorError;

    fn from_str(text: &str) -> Result<Self, AlertCursorError> {
        let (raised_at_ms, id) = text.split_once('-').ok_or(AlertCursorError)?;
        let raised_at_ms = UnixMs(raised_at_ms.parse().map_err(|_| AlertCursorError)?);
        Ok(Self { raised_at_ms, id: AlertId::from_stored(id) })
    }
}
