//! Which notices the usage of a subject raises, and whether a raised one is still true.

use redis::RedisResult;

use super::known_days::days_of;
use super::silence::is_still_silent;
use crate::channels::BoxFuture;
use crate::forecast::observation::weekday;
use crate::forecast::window::{LimitInPeriod, hour_of};
use crate::forecast::{DayUsage, ForecastState, UsageProfile, WindowForecast, is_spike};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::usage_notices::{self, RaiseReply};
use crate::ledger::{query, usage_profiles};
use crate::outbox::{NoticeJudge, ResolvedVerdict};
use crate::redis_client::{Partition, Partitions};
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::timestamp::Rfc3339;
use crate::types::{
    ContactId, DaySpan, DeploymentId, Metric, NoticeTopic, PeriodSpan, ResolvedNotice, Subject, UnixMs, UsageNotice,
    UsageNoticeKind,
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

impl ActiveSubject<'_> {
    /// Whether its plan asks for notices.
    pub(super) fn is_asked_for(&self) -> bool {
        self.settings.has_known_limits() && (self.settings.forecast().is_some() || self.settings.spike().is_some())
    }

    /// Raises what is due, and returns how many notices that were.
    pub(super) async fn raise(&self, partition: &Partition, erasures: u64, now: UnixMs) -> RedisResult<usize> {
        let Some(instance) = usage_notices::instance(partition).await? else { return Ok(0) };
        let mut raised = 0;
        for notice in self.due(partition, &instance, now).await? {
            if usage_notices::raise(partition, erasures, &notice).await? == RaiseReply::Raised {
                let UsageNotice { id, subject, metric, period, kind, .. } = &notice;
                tracing::info!(notice = %id, %subject, %metric, %period, %kind, "notice raised");
                raised += 1;
            }
        }
        Ok(raised)
    }

    async fn due(&self, partition: &Partition, instance: &DeploymentId, now: UnixMs) -> RedisResult<Vec<UsageNotice>> {
        let Self { subject, metric, settings, .. } = *self;
        let Some(today) = DaySpan::containing(settings.zone(), now) else { return Ok(Vec::new()) };
        let Ok(number) = i32::try_from(today.day.since_epoch()) else { return Ok(Vec::new()) };
        let usual = Usual { profile: self.profile, number, hour: hour_of(&today, now) };
        let mut due = Vec::new();
        let notice = |kind, span: PeriodSpan, used: u64, limit: Option<u64>| {
            let id = UsageNotice::id_of(instance, kind, (subject, metric, span.period), limit);
            let topic = NoticeTopic { subject, metric, span, plan: settings.plan(), timezone: settings.zone().name() };
            UsageNotice {
                used,
                limit,
                usual_by_now: usual.by_now() as u64,
                times_usual_tenths: tenths(self.used_today as f64 / usual.by_now().max(1.0)),
                ..UsageNotice::new(id, kind, topic, now)
            }
        };
        if let Some(times) = settings.spike().filter(|times| usual.is_spike(self.used_today, f64::from(*times))) {
            let limit = settings.limit_of(metric, today.day.into()).map(|limit| limit.get());
            // The limit of a day may change; a spike is told once.
            let id = UsageNotice::id_of(instance, UsageNoticeKind::Spike, (subject, metric, today.day.into()), None);
            due.push(UsageNotice { id, ..notice(UsageNoticeKind::Spike, today.into(), self.used_today, limit) });
            tracing::debug!(%subject, times = f64::from(times), "usage is far above the usual");
        }
        let Some(config) = settings.forecast().filter(|_| usual.day() >= USUAL_DAY_MIN) else { return Ok(due) };
        let limits = settings.limits_of(metric).iter().map(|limit| limit.window);
        let windows: Vec<_> =
            limits.filter(|window| window.has_forecast() && config.windows.contains(window)).collect();
        if windows.is_empty() {
            return Ok(due);
        }
        let days = days_of(partition, subject, metric, today.day).await?;
        for window in windows {
            let span = PeriodSpan::containing(window, settings.zone(), settings.billing(), now);
            let limit = span.and_then(|span| Some((span, settings.limit_of(metric, span.period)?.get())));
            let Some((span, limit)) = limit else { continue };
            let of = MetricPeriod { metric: metric.clone(), period: span.period };
            let used = query::used(partition, subject, &of).await?.unwrap_or(0);
            let (zone, used_today, days) = (settings.zone(), self.used_today, &days);
            let likely_from = config.probability.map(f64::from);
            let of = LimitInPeriod { span, zone, now, used, used_today, limit, days, likely_from };
            let forecast = WindowForecast::new(Some(self.profile), of);
            if forecast.state == ForecastState::Likely {
                let [expected_at, earliest_at, latest_at] =
                    [forecast.expected_at, forecast.earliest_at, forecast.latest_at].map(|at| at.map(Rfc3339));
                let probability = forecast.probability.map(|probability| (probability * 100.0) as u8);
                due.push(UsageNotice {
                    probability_percent: probability,
                    expected_at,
                    earliest_at,
                    latest_at,
                    times_usual_tenths: tenths(forecast.times_usual),
                    ..notice(UsageNoticeKind::Forecast, span, used, Some(limit))
                });
            }
        }
        Ok(due)
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

    fn resolved<'a>(
        &'a self,
        notice: &'a ResolvedNotice,
        contact: &'a ContactId,
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<ResolvedVerdict>> {
        Box::pin(self.judge_resolved(notice, contact, now))
    }
}

impl StoredNoticeJudge {
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
        let days = days_of(partition, subject, metric, today.day).await?;
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
