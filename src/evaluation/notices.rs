//! Which notices the usage of a subject raises, and whether a raised one is still true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::RedisResult;

use super::silence::is_still_silent;
use crate::channels::BoxFuture;
use crate::forecast::observation::weekday;
use crate::forecast::window::{LimitInPeriod, hour_of, may_be_foreseen};
use crate::forecast::{DayUsage, ForecastState, UsageProfile, WindowForecast, is_spike};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::usage_notices::{self, RaiseReply};
use crate::ledger::{daily_usage, query, usage_profiles};
use crate::outbox::{NoticeJudge, ResolvedVerdict};
use crate::redis_client::{ErrorKind, Partition, Partitions, error_kind};
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, AlertId, ContactId, Day, DaySpan, DeploymentId, Metric, NoticeTopic, PeriodSpan, ResolvedNotice, Subject,
    UnixMs, UsageNotice, UsageNoticeKind,
};

/// Below this number of units a usual day says too little for a notice of a forecast.
const USUAL_DAY_MIN: f64 = 20.0;

/// A subject that used something in the last hour.
#[derive(Debug)]
pub(super) struct ActiveSubject<'a> {
    pub(super) subject: &'a Subject,
    pub(super) metric: &'a Metric,
    pub(super) settings: &'a Profile,
    pub(super) profile: &'a UsageProfile,
    /// Units used today.
    pub(super) used_today: u64,
}

/// Raises what is due for these subjects, and returns how many notices that were. The number of requests depends only
/// on the number of notices.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub(super) async fn raise_due(
    partition: &Partition,
    erasures: u64,
    active: &[ActiveSubject<'_>],
    now: UnixMs,
) -> RedisResult<usize> {
    let judged: Vec<JudgedSubject> = active.iter().filter_map(|of| JudgedSubject::new(of, now)).collect();
    if judged.is_empty() {
        return Ok(0);
    }
    let Some(instance) = usage_notices::instance(partition).await? else { return Ok(0) };
    let mut due: Vec<UsageNotice> = judged.iter().filter_map(|of| of.spike(&instance)).collect();
    let mut limits: Vec<JudgedLimit> = judged.iter().flat_map(JudgedSubject::limits).collect();
    let counters: Vec<(&Subject, MetricPeriod)> =
        limits.iter().map(|limit| (limit.of.active.subject, limit.counter())).collect();
    for (limit, used) in limits.iter_mut().zip(query::used_each(partition, &counters).await?) {
        limit.used = used.unwrap_or(0);
    }
    limits.retain(|limit| may_be_foreseen(limit.used, limit.limit));
    let asked: BTreeSet<(&Subject, &Metric)> =
        limits.iter().map(|limit| (limit.of.active.subject, limit.of.active.metric)).collect();
    let asked: Vec<(&Subject, &Metric)> = asked.into_iter().collect();
    let days = daily_usage::read_each(partition, &asked, now).await?;
    let days: BTreeMap<(&Subject, &Metric), BTreeMap<Day, u64>> = asked.into_iter().zip(days).collect();
    due.extend(limits.iter().filter_map(|limit| {
        let days = days.get(&(limit.of.active.subject, limit.of.active.metric))?;
        limit.forecast(days, &instance)
    }));
    let mut raised = 0;
    for notice in due {
        if usage_notices::raise(partition, erasures, &notice).await? == RaiseReply::Raised {
            let UsageNotice { id, subject, metric, period, kind, .. } = &notice;
            tracing::info!(notice = %id, %subject, %metric, %period, %kind, "notice raised");
            raised += 1;
        }
    }
    Ok(raised)
}

/// A subject whose plan asks for notices.
struct JudgedSubject<'a> {
    active: &'a ActiveSubject<'a>,
    now: UnixMs,
    today: DaySpan,
    usual: Usual<'a>,
}

impl<'a> JudgedSubject<'a> {
    fn new(active: &'a ActiveSubject<'a>, now: UnixMs) -> Option<Self> {
        let ActiveSubject { settings, profile, .. } = *active;
        let asks = settings.forecast().is_some() || settings.spike().is_some();
        let today = DaySpan::containing(settings.zone(), now).filter(|_| asks && settings.has_known_limits())?;
        let number = i32::try_from(today.day.since_epoch()).ok()?;
        let usual = Usual { profile, number, hour: hour_of(&today, now) };
        Some(Self { active, now, today, usual })
    }

    fn spike(&self, instance: &DeploymentId) -> Option<UsageNotice> {
        let ActiveSubject { subject, metric, settings, used_today, .. } = *self.active;
        let times = settings.spike().filter(|times| self.usual.is_spike(used_today, f64::from(*times)))?;
        tracing::debug!(%subject, times = f64::from(times), "usage is far above the usual");
        let limit = settings.limit_of(metric, self.today.day.into()).map(|limit| limit.get());
        // The limit of a day may change; a spike is told once.
        let id = UsageNotice::id_of(instance, UsageNoticeKind::Spike, (subject, metric, self.today.day.into()), None);
        Some(self.notice(id, UsageNoticeKind::Spike, self.today.into(), used_today, limit))
    }

    /// The limits whose forecasts its plan asks for, without their usage.
    fn limits(&'a self) -> impl Iterator<Item = JudgedLimit<'a>> {
        let ActiveSubject { metric, settings, .. } = *self.active;
        let config = settings.forecast().filter(|_| self.usual.day() >= USUAL_DAY_MIN);
        config.into_iter().flat_map(move |config| {
            let windows = settings.limits_of(metric).iter().map(|limit| limit.window);
            let asked = windows.filter(|window| window.has_forecast() && config.windows.contains(window));
            asked.filter_map(move |window| {
                let span = PeriodSpan::containing(window, settings.zone(), settings.billing(), self.now)?;
                let limit = settings.limit_of(metric, span.period)?.get();
                let likely_from = config.probability.map(f64::from);
                Some(JudgedLimit { of: self, span, limit, likely_from, used: 0 })
            })
        })
    }

    fn notice(
        &self,
        id: String,
        kind: UsageNoticeKind,
        span: PeriodSpan,
        used: u64,
        limit: Option<u64>,
    ) -> UsageNotice {
        let ActiveSubject { subject, metric, settings, used_today, .. } = *self.active;
        let topic = NoticeTopic { subject, metric, span, plan: settings.plan(), timezone: settings.zone().name() };
        let usual_by_now = self.usual.by_now();
        UsageNotice {
            used,
            limit,
            usual_by_now: usual_by_now as u64,
            times_usual_tenths: tenths(used_today as f64 / usual_by_now.max(1.0)),
            ..UsageNotice::new(id, kind, topic, self.now)
        }
    }
}

/// A limit whose forecast may be due.
struct JudgedLimit<'a> {
    of: &'a JudgedSubject<'a>,
    span: PeriodSpan,
    limit: u64,
    likely_from: Option<f64>,
    /// Units used in the period.
    used: u64,
}

impl JudgedLimit<'_> {
    fn counter(&self) -> MetricPeriod {
        MetricPeriod { metric: self.of.active.metric.clone(), period: self.span.period }
    }

    fn forecast(&self, days: &BTreeMap<Day, u64>, instance: &DeploymentId) -> Option<UsageNotice> {
        let Self { of, span, limit, likely_from, used } = *self;
        let ActiveSubject { subject, metric, settings, profile, used_today } = *of.active;
        let (zone, now) = (settings.zone(), of.now);
        let in_period = LimitInPeriod { span, zone, now, used, used_today, limit, days, likely_from };
        let forecast = WindowForecast::new(Some(profile), in_period);
        if forecast.state != ForecastState::Likely {
            return None;
        }
        let [expected_at, earliest_at, latest_at] =
            [forecast.expected_at, forecast.earliest_at, forecast.latest_at].map(|at| at.map(Rfc3339));
        let kind = UsageNoticeKind::Forecast;
        let id = UsageNotice::id_of(instance, kind, (subject, metric, span.period), Some(limit));
        Some(UsageNotice {
            probability_percent: forecast.probability.map(|probability| (probability * 100.0) as u8),
            expected_at,
            earliest_at,
            latest_at,
            times_usual_tenths: tenths(forecast.times_usual),
            ..of.notice(id, kind, span, used, Some(limit))
        })
    }
}

/// What is usual now.
struct Usual<'a> {
    profile: &'a UsageProfile,
    /// Today, as days since 1970-01-01.
    number: i32,
    hour: f64,
}

impl Usual<'_> {
    fn day(&self) -> f64 {
        self.profile.usual_day(weekday(self.number))
    }

    fn by_now(&self) -> f64 {
        self.profile.usual_by(weekday(self.number), self.hour)
    }

    fn is_spike(&self, used: u64, times: f64) -> bool {
        is_spike(self.profile, DayUsage { weekday: weekday(self.number), hour: self.hour, used }, times)
    }
}

fn tenths(times: f64) -> u32 {
    (times * 10.0).round() as u32
}

/// Judges notices with what is stored when they are sent.
#[derive(Debug)]
pub struct StoredNoticeJudge {
    /// Every partition.
    pub partitions: Partitions,
    /// The plans.
    pub plans: Plans,
}

impl NoticeJudge for StoredNoticeJudge {
    fn is_true<'a>(&'a self, notice: &'a UsageNotice, now: UnixMs) -> BoxFuture<'a, RedisResult<bool>> {
        Box::pin(self.judge(notice, now))
    }

    fn is_alert_true<'a>(
        &'a self,
        alert: &'a Alert,
        contact: Option<&'a ContactId>,
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<bool>> {
        Box::pin(self.judge_alert(alert, contact, now))
    }

    fn resolved<'a>(
        &'a self,
        notice: &'a ResolvedNotice,
        contact: &'a ContactId,
        sent_together: &'a [&'a AlertId],
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<ResolvedVerdict>> {
        Box::pin(self.judge_resolved(notice, (contact, sent_together), now))
    }
}

impl StoredNoticeJudge {
    /// The settings of a subject; `None` if they can't be read.
    pub(super) async fn settings_of(
        &self,
        partition: &Partition,
        subject: &Subject,
    ) -> RedisResult<Option<Arc<Profile>>> {
        match StoredLevels::read(&partition.client, &partition.keys, subject).await {
            Ok(stored) => Ok(Some(stored.own_profile(&self.plans))),
            Err(error) if error_kind(&error) == ErrorKind::WrongType => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn judge(&self, notice: &UsageNotice, now: UnixMs) -> RedisResult<bool> {
        let UsageNotice { kind, subject, metric, window, period, .. } = notice;
        let partition = self.partitions.partition_of(subject);
        let stored = StoredLevels::read(&partition.client, &partition.keys, subject).await?;
        let settings = stored.own_profile(&self.plans);
        let found = usage_profiles::read_each(partition, &[(subject, metric)]).await?.pop();
        let Some(profile) = found.and_then(usage_profiles::FoundProfile::read) else { return Ok(false) };
        if *kind == UsageNoticeKind::Silence {
            return is_still_silent(partition, notice, (&settings, &profile), now).await;
        }
        let span = PeriodSpan::containing(*window, settings.zone(), settings.billing(), now);
        let today = DaySpan::containing(settings.zone(), now);
        // The period is over, or the subject has another zone.
        let (Some(span), Some(today)) = (span.filter(|span| span.period == *period), today) else { return Ok(false) };
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        let used = query::used(partition, subject, &of).await?.unwrap_or(0);
        let days = daily_usage::read_each(partition, &[(subject, metric)], now).await?.pop().unwrap_or_default();
        match kind {
            // What was used stays true, although more is usual later in the day.
            UsageNoticeKind::Spike => Ok(settings.spike().is_some() && used >= notice.used),
            UsageNoticeKind::Silence => Ok(false),
            UsageNoticeKind::Forecast => {
                // Another limit has a notice of its own.
                let limit = settings.limit_of(metric, *period).map(|limit| limit.get());
                let Some(limit) = limit.filter(|limit| Some(*limit) == notice.limit) else { return Ok(false) };
                let (zone, used_today) = (settings.zone(), days.get(&today.day).copied().unwrap_or(0));
                let of = LimitInPeriod { span, zone, now, used, used_today, limit, days: &days, likely_from: None };
                let state = WindowForecast::new(Some(&profile), of).state;
                Ok(matches!(state, ForecastState::Possible | ForecastState::Likely))
            }
        }
    }
}
