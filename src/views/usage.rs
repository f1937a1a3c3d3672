//! What a subject used in one day, of which limit.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::RedisResult;
use serde::Serialize;

use super::{Rfc3339, SubjectSettings};
use crate::ledger::query::{self, MetricUsage};
use crate::ledger::retention;
use crate::types::alert::used_percent;
use crate::types::{Alert, AlertId, Day, DaySpan, Keys, Limits, Metric, Percent, Subject, UnixMs, Window};
use crate::wire::RedisClient;

/// The usage of one subject in one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageView {
    /// Who.
    pub subject: Subject,
    /// The plan, today.
    pub plan: String,
    /// The zone of the subject's days, today.
    pub timezone: &'static str,
    /// The day.
    pub day: Day,
    /// Whether the day is over. Then a limit may have been another one on that day.
    pub over: bool,
    /// Whether the counts of that day are still kept. If not, what was used is unknown.
    pub kept: bool,
    /// Each metric that the subject used that day or has a limit of.
    pub metrics: Vec<MetricUsageView>,
}

/// The usage of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricUsageView {
    /// The metric.
    pub metric: Metric,
    /// Units used; `null` where that is not kept any more.
    pub used: Option<u64>,
    /// The limit of the day, units; `null` where there is none.
    pub limit: Option<u64>,
    /// Which limit that is; `null` where there is none.
    pub limit_from: Option<LimitSource>,
    /// How much of the limit is used, percent.
    pub used_percent: Option<f64>,
    /// The alerts that were raised, ascending by threshold.
    pub alerts: Vec<UsageAlertView>,
}

/// Where a limit was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitSource {
    /// The settings as they are now.
    Settings,
    /// The newest alert of that day, which has the limit that was in force.
    Alert,
}

/// An alert of the day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageAlertView {
    /// The id.
    pub id: AlertId,
    /// The threshold that was reached.
    pub threshold_percent: Percent,
    /// When it was raised.
    pub raised_at: Rfc3339,
    /// The same in milliseconds.
    pub raised_at_ms: UnixMs,
}

/// What to read.
#[derive(Debug, Clone)]
pub struct UsageRequest {
    /// Who.
    pub subject: Subject,
    /// What is set for it.
    pub settings: SubjectSettings,
    /// The day; `None` for today.
    pub day: Option<Day>,
    /// The server's time.
    pub now: UnixMs,
    /// How long after its day an event may arrive (`stream.late_max`): so long no day is closed.
    pub late_max: Duration,
}

/// Reads the usage. `None` where no day is named and `now` is in none.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn read(client: &RedisClient, keys: &Keys, request: UsageRequest) -> RedisResult<Option<UsageView>> {
    let UsageRequest { subject, settings, day, now, late_max } = request;
    let today = DaySpan::containing(settings.zone, now).map(|span| span.day);
    let Some(day) = day.or(today) else { return Ok(None) };
    let limited: Vec<Metric> = settings.limits.keys().cloned().collect();
    let usage = query::usage(client, keys, &subject, day.into(), &limited).await?;
    let found = usage.iter().any(|usage| usage.used.is_some() || !usage.alerts.is_empty());
    let counted = usage.iter().any(|usage| usage.used.is_some()) || now < retention::kept_until(day, late_max);
    let over = today.is_some_and(|today| day < today);
    let of_day = |(metric, limits): (Metric, Limits)| limits.of(Window::Day).map(|limit| (metric, limit.get()));
    let limits = settings.limits.into_iter().filter_map(of_day).collect();
    let period = JudgedDay { counted, over, limits };
    let metrics = usage.into_iter().map(|usage| period.judge(usage)).collect();
    let timezone = settings.zone.name();
    Ok(Some(UsageView { subject, plan: settings.plan, timezone, day, over, kept: counted || found, metrics }))
}

/// What is known of the day.
struct JudgedDay {
    /// Whether a counter that is absent means that nothing was used.
    counted: bool,
    /// Whether the day is over, so that today's limits may not be its own.
    over: bool,
    /// Today's limits a day.
    limits: BTreeMap<Metric, u64>,
}

impl JudgedDay {
    fn judge(&self, usage: MetricUsage) -> MetricUsageView {
        let MetricUsage { metric, used, alerts } = usage;
        let used = used.or(self.counted.then_some(0));
        let of_alert = alerts.iter().filter(|_| self.over).max_by_key(|alert| alert.raised_at_ms);
        let of_alert = of_alert.map(|alert| (alert.limit, LimitSource::Alert));
        let limit = of_alert.or(self.limits.get(&metric).map(|limit| (*limit, LimitSource::Settings)));
        let used_percent = used.zip(limit).map(|(used, (limit, _))| used_percent(used, limit));
        MetricUsageView {
            metric,
            used,
            limit: limit.map(|(limit, _)| limit),
            limit_from: limit.map(|(_, from)| from),
            used_percent,
            alerts: alerts.into_iter().map(UsageAlertView::from).collect(),
        }
    }
}

impl From<Alert> for UsageAlertView {
    fn from(Alert { id, threshold_percent, raised_at_ms, .. }: Alert) -> Self {
        Self { id, threshold_percent, raised_at: Rfc3339(raised_at_ms), raised_at_ms }
    }
}
