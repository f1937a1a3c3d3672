//! What a subject used of which limit: in each of its current periods, or in those of another day.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::RedisResult;
use serde::Serialize;

use super::{Rfc3339, SubjectSettings};
use crate::ledger::query::{self, MetricUsage};
use crate::ledger::retention::kept_until;
use crate::types::alert::used_percent;
use crate::types::{Alert, AlertId, Day, Keys, Limits, Metric, Percent, Period, PeriodSpan, Subject, UnixMs, Window};
use crate::wire::RedisClient;

/// The usage of one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageView {
    /// Who.
    pub subject: Subject,
    /// The plan, today.
    pub plan: String,
    /// The zone of the subject's days, weeks and months, today.
    pub timezone: &'static str,
    /// Whether the counts of any of these periods are still kept. If not, what was used is unknown.
    pub kept: bool,
    /// Each metric that the subject used or has a limit of.
    pub metrics: Vec<MetricUsageView>,
}

/// The usage of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricUsageView {
    /// The metric.
    pub metric: Metric,
    /// The day, and each other window that has a limit or was counted, ascending.
    pub windows: Vec<WindowUsageView>,
}

/// The usage of one metric in one period.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowUsageView {
    /// Over what is counted.
    pub window: Window,
    /// The period.
    pub period: Period,
    /// Its first instant.
    pub starts_at: Rfc3339,
    /// The first instant of the next one, when the count starts over.
    pub resets_at: Rfc3339,
    /// Whether the period is over. Then a limit may have been another one in it.
    pub over: bool,
    /// Units used; `null` where that is not kept any more.
    pub used: Option<u64>,
    /// The limit, units; `null` where there is none.
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
    /// The newest alert of that period, which has the limit that was in force.
    Alert,
}

/// An alert of the period.
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
    /// Another day than today: then the day, and the week and the month in which it begins.
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
    let mut metrics: BTreeMap<Metric, Vec<WindowUsageView>> = BTreeMap::new();
    let mut kept = false;
    let Some(spans) = spans(&settings, day, now) else { return Ok(None) };
    for span in spans {
        let window = span.period.window();
        let has_row = |limits: &Limits| window == Window::Day || limits.of(window).is_some();
        let limited: Vec<Metric> =
            settings.limits.iter().filter(|(_, limits)| has_row(limits)).map(|(metric, _)| metric.clone()).collect();
        let usages = query::usage(client, keys, &subject, span.period, &limited).await?;
        let is_kept = usages.iter().any(|usage| usage.used.is_some()) || now < kept_until(span.period, late_max);
        let has_alerts = usages.iter().any(|usage| !usage.alerts.is_empty());
        // A month lives longer than its days, but says nothing where it has no row.
        kept |= (is_kept || has_alerts) && (window == Window::Day || !usages.is_empty());
        for MetricUsage { metric, used, alerts } in usages {
            let used = used.or(is_kept.then_some(0));
            let limit = settings.limits.get(&metric).and_then(|limits| limits.of(window)).map(|limit| limit.get());
            let usage = WindowUsageView::of(span, now, used, limit, alerts);
            metrics.entry(metric).or_default().push(usage);
        }
    }
    let metrics = metrics.into_iter().map(|(metric, windows)| MetricUsageView { metric, windows }).collect();
    Ok(Some(UsageView { subject, plan: settings.plan, timezone: settings.zone.name(), kept, metrics }))
}

/// The periods to read, ascending by window.
fn spans(settings: &SubjectSettings, day: Option<Day>, now: UnixMs) -> Option<Vec<PeriodSpan>> {
    let (at, windows) = match day {
        Some(day) => (Period::from(day).starts_in(settings.zone)?, &Window::ALL[1..]),
        None => (now, &Window::ALL[..]),
    };
    let span = |window: &Window| PeriodSpan::containing(*window, settings.zone, settings.billing_day, at);
    windows.iter().map(span).collect()
}

impl WindowUsageView {
    /// `limit` is today's.
    fn of(span: PeriodSpan, now: UnixMs, used: Option<u64>, limit: Option<u64>, alerts: Vec<Alert>) -> Self {
        let over = span.end <= now;
        let of_alert = alerts.iter().filter(|_| over).max_by_key(|alert| alert.raised_at_ms);
        let of_alert = of_alert.map(|alert| (alert.limit, LimitSource::Alert));
        let limit = of_alert.or(limit.map(|limit| (limit, LimitSource::Settings)));
        Self {
            window: span.period.window(),
            period: span.period,
            starts_at: Rfc3339(span.start),
            resets_at: Rfc3339(span.end),
            over,
            used,
            limit: limit.map(|(limit, _)| limit),
            limit_from: limit.map(|(_, from)| from),
            used_percent: used.zip(limit).map(|(used, (limit, _))| used_percent(used, limit)),
            alerts: alerts.into_iter().map(UsageAlertView::from).collect(),
        }
    }
}

impl From<Alert> for UsageAlertView {
    fn from(Alert { id, threshold_percent, raised_at_ms, .. }: Alert) -> Self {
        Self { id, threshold_percent, raised_at: Rfc3339(raised_at_ms), raised_at_ms }
    }
}
