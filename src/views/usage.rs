//! The usage of a subject, and its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::SubjectSettings;
use super::forecast::{ForecastView, KnownUsage, read_known};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::query::{self, PeriodUsage};
use crate::ledger::retention;
use crate::redis_client::Partition;
use crate::subjects::{FieldError, Plans};
use crate::types::alert::percent_of_limit;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, Day, DaySpan, DisplayName, Metric, MetricFormat, Period, PeriodSpan, Subject, UnixMs, Window,
};

/// The usage of one subject: now, or on a day.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub struct UsageView {
    pub subject: Subject,
    /// Its display name; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<DisplayName>,
    /// The plan, today.
    pub plan: String,
    /// An IANA time zone: that of the subject's days and longer periods, today.
    pub timezone: &'static str,
    /// Each metric that the subject used or has a limit of.
    pub metrics: Vec<MetricUsageView>,
    /// The unreadable settings, without a replacement; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub unreadable: Vec<FieldError>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "MetricUsage")]
pub struct MetricUsageView {
    pub metric: Metric,
    #[serde(flatten)]
    pub format: MetricFormat,
    /// Each window in which it is counted, the shortest first.
    #[schemars(length(min = 1, max = Window::ALL.len()))]
    pub windows: Vec<WindowUsageView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "WindowUsage")]
pub struct WindowUsageView {
    pub window: Window,
    pub period: Period,
    /// Null for a total.
    pub starts_at: Option<Rfc3339>,
    /// When it ends, and the count begins again; null for a total.
    pub resets_at: Option<Rfc3339>,
    /// Committed units; null if the count is no longer stored.
    pub used: Option<u64>,
    /// Units, with those of grants; null without a limit.
    pub limit: Option<u64>,
    /// The units of the limit that grants add; absent without grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub granted: Option<u64>,
    /// Only of a period that is over: whether its newest alert has recorded the limit, or it is today's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_from: Option<LimitSource>,
    /// How much of the limit is used, rounded down to one decimal; null without a limit, or if it is 0.
    #[schemars(range(min = 0))]
    pub used_percent: Option<f64>,
    /// Whether and when the limit will be reached; absent without a limit, and for a period that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastView>,
    /// The alerts that were raised, ascending by threshold and then by time.
    pub alerts: Vec<Alert>,
}

/// The source of the limit of a past period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitSource {
    /// The settings as they are now. It may have been another one then.
    Settings,
    /// The newest alert of the period, which has the limit that was in force.
    Alert,
}

#[derive(Debug, Clone)]
pub struct UsageRequest {
    pub subject: Subject,
    pub settings: SubjectSettings,
    /// The day, with the longer periods that contain it; `None` for the present periods.
    pub day: Option<Day>,
    pub now: UnixMs,
    /// How long after the end of its day an event may arrive (`stream.late_max`). Until then no period is closed.
    pub late_max: Duration,
}

/// Reads the usage. `None` if `now` or the day is outside the calendar.
pub async fn read(partition: &Partition, plans: &Plans, request: UsageRequest) -> RedisResult<Option<UsageView>> {
    let UsageRequest { subject, settings, day, now, late_max } = request;
    let Some(periods) = periods(&settings, day, now) else { return Ok(None) };
    let limited = settings.limits.iter().flat_map(|(metric, limits)| {
        let periods = periods.values().filter(|span| limits.limit_of(span.period.window()).is_some());
        periods.map(|span| MetricPeriod { metric: metric.clone(), period: span.period })
    });
    let limited: BTreeSet<MetricPeriod> = limited.collect();
    let asked: Vec<Period> = periods.values().map(|span| span.period).collect();
    let usages = query::usage(partition, &subject, &asked, &limited, now).await?;
    let with_forecast: BTreeSet<&Metric> =
        limited.iter().filter(|of| of.period.window().has_forecast()).map(|of| &of.metric).collect();
    let with_forecast: Vec<(&Subject, &Metric)> = with_forecast.into_iter().map(|metric| (&subject, metric)).collect();
    let known: Vec<KnownUsage> = read_known(partition, &with_forecast, now).await?;
    let known: BTreeMap<&Metric, KnownUsage> = with_forecast.iter().map(|(_, metric)| *metric).zip(known).collect();
    let judge = JudgedAt { settings: &settings, now, late_max };
    let mut metrics: Vec<MetricUsageView> = Vec::new();
    for usage in usages {
        let metric = usage.of.metric.clone();
        let known = known.get(&metric);
        let Some(mut window) = judge.window(periods[&usage.of.period.window()], usage, known) else { continue };
        plans.add_units(&mut window.alerts);
        match metrics.last_mut() {
            Some(last) if last.metric == metric => last.windows.push(window),
            _ => {
                let format = plans.format_of(&metric);
                metrics.push(MetricUsageView { metric, format, windows: vec![window] });
            }
        }
    }
    let SubjectSettings { plan, zone, name, unreadable, .. } = settings;
    Ok(Some(UsageView { subject, name, plan, timezone: zone.name(), metrics, unreadable }))
}

/// The present periods of the subject, or those that contain a whole day.
fn periods(settings: &SubjectSettings, day: Option<Day>, now: UnixMs) -> Option<BTreeMap<Window, PeriodSpan>> {
    let SubjectSettings { zone, billing, .. } = *settings;
    let today = DaySpan::containing(zone, now)?;
    let day = match day {
        Some(day) if day != today.day => Some(DaySpan::for_day(zone, day)?),
        _ => None,
    };
    let containing = |window| match (window, day) {
        (window, None) => PeriodSpan::containing(window, zone, billing, now),
        (Window::Day, Some(day)) => Some(day.into()),
        (window, Some(day)) => PeriodSpan::containing(window, zone, billing, day.start),
    };
    let windows = Window::ALL.into_iter().filter(|window| day.is_none() || *window != Window::Hour);
    windows.map(|window| Some((window, containing(window)?))).collect()
}

/// The values by which counts are judged.
struct JudgedAt<'a> {
    settings: &'a SubjectSettings,
    now: UnixMs,
    late_max: Duration,
}

impl JudgedAt<'_> {
    /// The usage of a period. `None` if there is nothing to show: without a limit, only days are counted.
    fn window(&self, span: PeriodSpan, usage: PeriodUsage, known: Option<&KnownUsage>) -> Option<WindowUsageView> {
        let PeriodUsage { of: MetricPeriod { metric, .. }, used, alerts } = usage;
        let PeriodSpan { period, start, end } = span;
        let over = end <= self.now;
        let of_settings = self.settings.limit_of(&metric, period);
        let granted = of_settings.map_or(0, |_| self.settings.added.units_of(&metric, period));
        let of_settings = of_settings.map(|limit| (limit.get(), LimitSource::Settings));
        let of_alert = alerts.iter().filter(|_| over).max_by_key(|alert| alert.raised_at_ms);
        let limit = of_alert.map(|alert| (alert.limit, LimitSource::Alert)).or(of_settings);
        if limit.is_none() && alerts.is_empty() && period.window() != Window::Day {
            return None;
        }
        // Before that time, a missing counter means that nothing was used.
        let counted = self.now < retention::kept_until(period, self.late_max);
        let used = used.or(counted.then_some(0));
        let forecast = used.zip(limit).and_then(|(used, (limit, _))| {
            let known = known.unwrap_or(const { &KnownUsage::NOTHING });
            ForecastView::new(known, self.settings.zone, span, self.now, used, limit)
        });
        Some(WindowUsageView {
            window: period.window(),
            period,
            starts_at: span.resets_at().map(|_| Rfc3339(start)),
            resets_at: span.resets_at(),
            used,
            limit: limit.map(|(limit, _)| limit),
            granted: Some(granted).filter(|units| *units > 0),
            limit_from: limit.filter(|_| over).map(|(_, from)| from),
            used_percent: used.zip(limit).and_then(|(used, (limit, _))| percent_of_limit(used, limit)),
            forecast,
            alerts,
        })
    }
}
