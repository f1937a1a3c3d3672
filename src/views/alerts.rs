//! The raised alerts.

use std::time::Duration;

use redis::RedisResult;
use serde::{Deserialize, Serialize};

use crate::ledger::batch::MetricPeriod;
use crate::ledger::query;
use crate::ledger::retention::KEPT_DAYS_MAX;
use crate::redis_client::{Partition, Partitions};
use crate::types::{Alert, AlertId, Day, Period, Subject, UnixMs};
use crate::zones::Zone;

/// The filter of a list of alerts.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    pub subject: Option<Subject>,
    pub since: Option<UnixMs>,
}

/// Ten years; a longer setting has no effect.
const STORED_DAYS_MAX: u64 = 3_653;

/// Every period whose alerts may still be stored. An alert may be raised for a period that ended long ago, because an
/// event may arrive or be read late. Empty if `now` is outside the calendar.
pub fn kept_periods(now: UnixMs) -> Vec<Period> {
    periods(now, KEPT_DAYS_MAX)
}

/// Every period with stored data, if events up to this age are counted. Counters live for 14 days after that.
pub fn stored_periods(now: UnixMs, event_age_max: Duration) -> Vec<Period> {
    periods(now, (event_age_max.as_secs() / 86_400).min(STORED_DAYS_MAX) + KEPT_DAYS_MAX)
}

/// Every period that overlaps today or yesterday, in any zone. Empty if `now` is outside the calendar.
pub fn recent_periods(now: UnixMs) -> Vec<Period> {
    periods(now, 1)
}

/// Every period that has begun in some zone and has not ended in every zone. Empty if `now` is outside the calendar.
pub fn open_periods(now: UnixMs) -> Vec<Period> {
    let goes_on = |period: &Period| {
        // Dates begin first at UTC+14.
        let has_begun = |start: UnixMs| start.plus(-EARLIEST_ZONE_MS) <= now;
        now < period.ends_everywhere() && period.starts_in(Zone::UTC).is_none_or(has_begun)
    };
    recent_periods(now).into_iter().filter(goes_on).collect()
}

/// How much earlier a date begins in the first zone than in UTC.
const EARLIEST_ZONE_MS: i64 = 14 * 3_600_000;

/// The periods of the last days, and of the day that has already begun in zones ahead of UTC.
fn periods(now: UnixMs, back: u64) -> Vec<Period> {
    let Some(today) = Day::in_utc(now) else { return Vec::new() };
    Period::touching(today.before(back).unwrap_or(today), today.next().unwrap_or(today))
}

/// Reads the alerts of these periods that pass the filter, ordered by time. If one event reaches several thresholds,
/// the lower one comes first, each with its state at `now`, server time. The work is bounded by the number of alerts in
/// these periods.
pub async fn of_periods(
    partition: &Partition,
    periods: &[Period],
    filter: &AlertFilter,
    now: UnixMs,
) -> RedisResult<Vec<Alert>> {
    let alerts = match &filter.subject {
        Some(subject) => query::alerts_of(partition, subject, periods, now).await?,
        None => query::alerts(partition, periods, now).await?,
    };
    let passed = alerts.into_iter().filter(|alert| filter.since.is_none_or(|since| since <= alert.raised_at_ms));
    Ok(in_order(passed.collect()))
}

/// Reads the alerts of a subject in these quotas, in the order of [`of_periods`], each with its state at `now`, server
/// time.
pub async fn of_quotas(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    quotas: &[MetricPeriod],
    now: UnixMs,
) -> RedisResult<Vec<Alert>> {
    let records = query::records_of(client, keys, subject, quotas).await?;
    Ok(in_order(records.into_iter().flat_map(|stored| stored.into_stated(now)).collect()))
}

/// Like [`of_periods`], for every partition, or for the subject's if the filter names one.
pub async fn of_partitions(
    partitions: &Partitions,
    periods: &[Period],
    filter: &AlertFilter,
    now: UnixMs,
) -> RedisResult<Vec<Alert>> {
    let mut listed = Vec::new();
    for partition in partitions.of_subject_or_all(filter.subject.as_ref()) {
        listed.extend(of_periods(partition, periods, filter, now).await?);
    }
    Ok(in_order(listed))
}

fn in_order(mut listed: Vec<Alert>) -> Vec<Alert> {
    listed.sort_by_cached_key(|alert| {
        let Alert { raised_at_ms, subject, metric, threshold, threshold_units, period, .. } = alert;
        let threshold = (alert.threshold_share(), *threshold_units, *threshold);
        (*raised_at_ms, subject.clone(), metric.clone(), threshold, *period, alert.id.clone())
    });
    listed
}

/// The position of a list of alerts: after this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertCursor {
    raised_at_ms: UnixMs,
    id: AlertId,
}

impl AlertCursor {
    /// The first `limit` alerts after the cursor, and the cursor for the following ones; `None` if there are none. If
    /// the alert of the cursor has been deleted, the other alerts of its millisecond are listed again, so that none is
    /// missing.
    pub fn slice(after: Option<&Self>, mut alerts: Vec<Alert>, limit: usize) -> (Vec<Alert>, Option<Self>) {
        if let Some(Self { raised_at_ms, id }) = after {
            let found = alerts.iter().position(|alert| alert.id == *id);
            let older = || alerts.partition_point(|alert| alert.raised_at_ms < *raised_at_ms);
            alerts.drain(..found.map_or_else(older, |at| at + 1));
        }
        let more = alerts.len() > limit;
        alerts.truncate(limit);
        let of = |alert: &Alert| Self { raised_at_ms: alert.raised_at_ms, id: alert.id.clone() };
        let next = alerts.last().filter(|_| more).map(of);
        (alerts, next)
    }
}
