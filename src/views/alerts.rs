//! The alerts that were raised.

use redis::RedisResult;
use serde::Serialize;

use super::Rfc3339;
use crate::ledger::query;
use crate::ledger::retention::KEPT_DAYS_MAX;
use crate::types::{Alert, AlertId, Day, Keys, Metric, Percent, Period, Subject, UnixMs, Window};
use crate::wire::RedisClient;

/// An alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertView {
    /// The id.
    pub id: AlertId,
    /// Whose quota.
    pub subject: Subject,
    /// Of what.
    pub metric: Metric,
    /// The threshold that was reached.
    pub threshold_percent: Percent,
    /// The count when it was raised, units.
    pub used: u64,
    /// The limit in force then, units.
    pub limit: u64,
    /// Over what the limit counts.
    pub window: Window,
    /// The period, in the subject's zone.
    pub period: Period,
    /// When it was raised.
    pub raised_at: Rfc3339,
    /// The same in milliseconds.
    pub raised_at_ms: UnixMs,
    /// The plan in force then.
    pub plan: String,
    /// The subject's zone then.
    pub timezone: String,
}

impl From<Alert> for AlertView {
    fn from(alert: Alert) -> Self {
        let Alert { id, subject, metric, window, period, threshold_percent, limit, .. } = alert;
        let Alert { plan, timezone, used, raised_at_ms, .. } = alert;
        let raised_at = Rfc3339(raised_at_ms);
        Self {
            id,
            subject,
            metric,
            threshold_percent,
            used,
            limit,
            window,
            period,
            raised_at,
            raised_at_ms,
            plan,
            timezone,
        }
    }
}

/// Which alerts to list.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    /// Only those of this subject.
    pub subject: Option<Subject>,
    /// Only those raised at this time or later.
    pub since: Option<UnixMs>,
}

impl AlertFilter {
    fn takes(&self, alert: &Alert) -> bool {
        self.subject.as_ref().is_none_or(|subject| *subject == alert.subject)
            && self.since.is_none_or(|since| since <= alert.raised_at_ms)
    }
}

/// Every period whose alerts may still be kept. An alert may be raised for a period that is long over: an event may come late, or be
/// read late. Empty where `now` is in no day.
#[must_use]
pub fn kept_periods(now: UnixMs) -> Vec<Period> {
    periods(now, KEPT_DAYS_MAX)
}

/// Every period that touches today or yesterday, in any zone. Empty where `now` is in no day.
#[must_use]
pub fn recent_periods(now: UnixMs) -> Vec<Period> {
    periods(now, 1)
}

/// The periods of the last days, and of the one that zones ahead of UTC call today already.
fn periods(now: UnixMs, back: u64) -> Vec<Period> {
    let Some(today) = Day::in_utc(now) else { return Vec::new() };
    Period::touching(today.before(back).unwrap_or(today), today.next().unwrap_or(today))
}

/// Reads the alerts of these periods that pass the filter, in no order. Work is bounded by what was raised in them.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn of_periods(
    client: &RedisClient,
    keys: &Keys,
    periods: &[Period],
    filter: &AlertFilter,
) -> RedisResult<Vec<AlertView>> {
    let alerts = query::alerts(client, keys, periods).await?;
    Ok(alerts.into_iter().filter(|alert| filter.takes(alert)).map(AlertView::from).collect())
}

/// Puts alerts in the order of time. One event may reach several thresholds in one moment: then the lower one comes first.
pub fn sort(alerts: &mut [AlertView]) {
    alerts.sort_by_cached_key(|alert| {
        (alert.raised_at_ms, alert.subject.clone(), alert.metric.clone(), alert.threshold_percent)
    });
}
