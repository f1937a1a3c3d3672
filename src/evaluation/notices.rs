//! Which notices the usage of a subject raises, and what is still true of a raised one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::RedisResult;

use super::silence::still_silent;
use crate::channels::BoxFuture;
use crate::forecast::observation::weekday;
use crate::forecast::window::{LimitInPeriod, hour_of, may_be_foreseen};
use crate::forecast::{DayUsage, ForecastState, UsageProfile, WindowForecast, is_spike};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::usage_notices::{self, RaiseReply};
use crate::ledger::{daily_usage, query, usage_profiles};
use crate::outbox::{AlertVerdict, NoticeJudge, ResolvedVerdict};
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
        let forecast = limit.forecast(days.get(&(limit.of.active.subject, limit.of.active.metric))?);
        (forecast.state == ForecastState::Likely).then(|| limit.notice(limit.id(&instance), &forecast))
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
        // The limit of a day may change; a spike is told once.
        let id = UsageNotice::id_of(instance, UsageNoticeKind::Spike, (subject, metric, self.today.day.into()), None);
        Some(self.spike_notice(id))
    }

    fn spike_notice(&self, id: String) -> UsageNotice {
        let ActiveSubject { metric, settings, used_today, .. } = *self.active;
        let limit = settings.limit_of(metric, self.today.day.into()).map(|limit| limit.get());
        let usual_by_now = self.usual.by_now().round() as u64;
        UsageNotice { limit, usual_by_now, ..self.notice(id, UsageNoticeKind::Spike, self.today.into(), used_today) }
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

    fn notice(&self, id: String, kind: UsageNoticeKind, span: PeriodSpan, used: u64) -> UsageNotice {
        let ActiveSubject { subject, metric, settings, .. } = *self.active;
        let topic = NoticeTopic { subject, metric, span, plan: settings.plan(), timezone: settings.zone().name() };
        UsageNotice { used, ..UsageNotice::new(id, kind, topic, self.now) }
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

    fn forecast(&self, days: &BTreeMap<Day, u64>) -> WindowForecast {
        let Self { of, span, limit, likely_from, used } = *self;
        let ActiveSubject { settings, profile, used_today, .. } = *of.active;
        let (zone, now) = (settings.zone(), of.now);
        WindowForecast::new(
            Some(profile),
            LimitInPeriod { span, zone, now, used, used_today, limit, days, likely_from },
        )
    }

    fn id(&self, instance: &DeploymentId) -> String {
        let ActiveSubject { subject, metric, .. } = *self.of.active;
        let of = (subject, metric, self.span.period);
        UsageNotice::id_of(instance, UsageNoticeKind::Forecast, of, Some(self.limit))
    }

    fn notice(&self, id: String, forecast: &WindowForecast) -> UsageNotice {
        let [expected_at, earliest_at, latest_at] =
            [forecast.expected_at, forecast.earliest_at, forecast.latest_at].map(|at| at.map(Rfc3339));
        UsageNotice {
            limit: Some(self.limit),
            probability_percent: forecast.probability.map(|probability| (probability * 100.0) as u8),
            expected_at,
            earliest_at,
            latest_at,
            usual_by_now: forecast.usual_by_now,
            ..self.of.notice(id, UsageNoticeKind::Forecast, self.span, self.used)
        }
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

/// Judges notices with what is stored when they are sent.
#[derive(Debug)]
pub struct StoredNoticeJudge {
    /// Every partition.
    pub partitions: Partitions,
    /// The plans.
    pub plans: Plans,
}

impl NoticeJudge for StoredNoticeJudge {
    fn usage<'a>(&'a self, notice: &'a UsageNotice, now: UnixMs) -> BoxFuture<'a, RedisResult<Option<UsageNotice>>> {
        Box::pin(self.judge_usage(notice, now))
    }

    fn alert<'a>(
        &'a self,
        alert: &'a Alert,
        contact: Option<&'a ContactId>,
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<AlertVerdict>> {
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

    async fn judge_usage(&self, notice: &UsageNotice, now: UnixMs) -> RedisResult<Option<UsageNotice>> {
        let UsageNotice { id, kind, subject, metric, window, period, .. } = notice;
        let partition = self.partitions.partition_of(subject);
        let stored = StoredLevels::read(&partition.client, &partition.keys, subject).await?;
        let settings = stored.own_profile(&self.plans);
        let found = usage_profiles::read_each(partition, &[(subject, metric)]).await?.pop();
        let Some(profile) = found.and_then(usage_profiles::FoundProfile::read) else { return Ok(None) };
        if *kind == UsageNoticeKind::Silence {
            return still_silent(partition, notice, (&settings, &profile), now).await;
        }
        let span = PeriodSpan::containing(*window, settings.zone(), settings.billing(), now);
        // If not, the period is over, or the subject has another zone.
        let Some(span) = span.filter(|span| span.period == *period) else { return Ok(None) };
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        let used = query::used(partition, subject, &of).await?.unwrap_or(0);
        let days = daily_usage::read_each(partition, &[(subject, metric)], now).await?.pop().unwrap_or_default();
        let today = DaySpan::containing(settings.zone(), now).map(|today| today.day);
        let used_today = today.and_then(|today| days.get(&today)).copied().unwrap_or(0);
        let active = ActiveSubject { subject, metric, settings: &settings, profile: &profile, used_today };
        let Some(of) = JudgedSubject::new(&active, now) else { return Ok(None) };
        let present = match kind {
            UsageNoticeKind::Silence => None,
            UsageNoticeKind::Spike => settings.spike().and_then(|times| {
                let present = of.spike_notice(id.clone());
                // More is usual later in the day: nearer to the usual than to a spike, it came to nothing.
                (present.times_usual() >= (1.0 + f64::from(times)) / 2.0).then_some(present)
            }),
            UsageNoticeKind::Forecast => {
                let limit = settings.limit_of(metric, *period).map(|limit| limit.get());
                // Another limit has a notice of its own.
                let limit = limit.filter(|limit| Some(*limit) == notice.limit && !is_disproved(notice, now));
                limit.and_then(|limit| {
                    let limit = JudgedLimit { of: &of, span, limit, likely_from: None, used };
                    let forecast = limit.forecast(&days);
                    let is_true = matches!(forecast.state, ForecastState::Possible | ForecastState::Likely);
                    is_true.then(|| limit.notice(id.clone(), &forecast))
                })
            }
        };
        Ok(present.map(|present| UsageNotice { raised_at: notice.raised_at, ..present }))
    }
}

/// Whether the limit should have been reached by now. A forecast that was so wrong is not told in another form.
fn is_disproved(forecast: &UsageNotice, now: UnixMs) -> bool {
    forecast.latest_at.is_some_and(|Rfc3339(latest)| now >= latest)
}
