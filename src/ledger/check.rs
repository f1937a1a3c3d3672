//! The wrapper of `check.lua`: decides whether a subject may use some units now.
//!
//! One round trip reads the committed counts of the limits of all levels, asks the limiters of their rates, and appends
//! the usage event that records the request. The clock of Redis decides the period of each window; the daemon sends the
//! two most likely periods. Read next: [`super::decision`], the decision.

use std::sync::{Arc, LazyLock};

use redis::{FromRedisValue, RedisError, RedisResult, Value};

use crate::redis_client::{Partition, Script, ServerClock};
use crate::subjects::limiter::FUNCTIONS;
use crate::subjects::{Limiter, Profile, SubjectLevel};
use crate::types::{LimitUnits, Metric, PeriodSpan, Subject, Units, UnixMs, Window, keys};
use quotabell_throttle::{Admission, RateDecision, stored_key};

use super::decision::{CheckDecision, CheckRequest, LimitStatus, PeriodStatus, RateStatus, Recorded};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_functions(include_str!("check.lua"), &FUNCTIONS));

/// Number of attempts: the first may send wrong periods, if the server's clock is unknown or jumped.
const TRIES: u32 = 2;

/// Why there is no decision.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The error of Redis or of the connection. The script may have run.
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("the server's time {0} is in none of the periods that the check sent")]
    Clock(UnixMs),
    #[error("check.lua gave an unexpected reply")]
    Reply,
}

/// A limit of a level, with its probable current period and the nearer neighbor of that period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AppliedLimit {
    /// The index of the level: 0 for the subject itself.
    level: usize,
    first: AppliedPeriod,
    /// The period after it; for a total, an empty one at the end of time.
    second: AppliedPeriod,
}

/// A period with its limit, which grants may raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AppliedPeriod {
    span: PeriodSpan,
    limit: LimitUnits,
    /// The most units that may be used: `refuse_at` of the plan.
    units_max: u64,
}

/// The limiter of a level's rate.
#[derive(Debug, Clone, Copy)]
struct AppliedRate<'a> {
    /// The index of the level: 0 for the subject itself.
    level: usize,
    limiter: &'a Limiter,
}

/// Decides a request by the settings of the subject and of the levels above it: `levels`, in this order. Takes from the
/// rates and records the event only if every limit and every rate admit the request. If there is no limit and no rate,
/// or the settings of a level are unreadable, it allows the request.
///
/// `clock` is the estimate of the server's clock; each reply sets it.
///
/// Not repeatable with respect to the rates: a repeated request takes again. The event counts once, by its id.
///
/// # Errors
///
/// [`CheckError`]; if the connection broke, the script may have run.
pub async fn check(
    partition: &Partition,
    clock: &ServerClock,
    request: &CheckRequest,
    levels: &[SubjectLevel],
) -> Result<CheckDecision, CheckError> {
    let is_judged = levels.iter().all(|level| level.profile.has_known_limits());
    let judged = || levels.iter().enumerate().filter(|_| is_judged);
    let rates: Vec<AppliedRate<'_>> = judged()
        .filter_map(|(level, of)| Some(AppliedRate { level, limiter: of.profile.limiter(&request.metric)? }))
        .collect();
    let has_limits = judged().any(|(_, level)| !level.profile.limits_of(&request.metric).is_empty());
    if !has_limits && rates.is_empty() && request.record.is_none() {
        return Ok(CheckDecision { is_judged, ..CheckDecision::not_judged() });
    }
    let level_above = |level: usize| (level > 0).then(|| levels.len() - level);
    let mut now = UnixMs(clock.now_ms());
    for _ in 0..TRIES {
        let around = |(index, level): (usize, &SubjectLevel)| {
            let profile = Arc::clone(&level.profile);
            let limits = level.profile.limits_of(&request.metric).iter().copied();
            let metric = &request.metric;
            limits
                .map(move |limit| AppliedLimit::around(&profile, index, (metric, limit.window), now))
                .collect::<Vec<_>>()
        };
        let applied: Vec<AppliedLimit> =
            judged().flat_map(around).collect::<Option<_>>().ok_or(CheckError::Clock(now))?;
        let reply = call(partition, request, levels, &applied, &rates).await?;
        if let Value::Array(parts) = &reply
            && parts.len() == 2
        {
            let (_, then): (String, i64) = parsed(reply)?;
            clock.set(then);
            now = UnixMs(then);
            continue;
        }
        let (_, then, used, replies, entry): (String, i64, Vec<u64>, Vec<Vec<i64>>, String) = parsed(reply)?;
        clock.set(then);
        let status = |(limit, used): (&AppliedLimit, u64)| {
            let of = (levels[limit.level].subject.clone(), level_above(limit.level));
            limit.status(of, used, request.units, UnixMs(then))
        };
        let limits: Vec<PeriodStatus> = applied.iter().zip(used).map(status).collect();
        // As in the script: if a limit refuses, the rates are not used.
        let asked = if limits.iter().all(|limit| limit.status.is_admitted()) { request.units.get() } else { 0 };
        let rate = |(AppliedRate { level, limiter }, reply): (&AppliedRate<'_>, &Vec<i64>)| {
            let RateDecision { admission, limit, remaining, reset } = limiter.decision(reply, asked)?;
            let (limit, length) = (Units::new(limit)?.into(), limiter.rate().window());
            let status = LimitStatus { admission, limit, remaining, reset, length }.asked_for(request.units);
            Some(RateStatus { subject: levels[*level].subject.clone(), level_above: level_above(*level), status })
        };
        let rates: Option<Vec<RateStatus>> = rates.iter().zip(&replies).map(rate).collect();
        let recorded = if entry.is_empty() { Recorded::No } else { Recorded::Yes };
        return Ok(CheckDecision { is_judged, rates: rates.ok_or(CheckError::Reply)?, limits, recorded });
    }
    Err(CheckError::Clock(now))
}

async fn call(
    Partition { client, keys }: &Partition,
    request: &CheckRequest,
    levels: &[SubjectLevel],
    limits: &[AppliedLimit],
    rates: &[AppliedRate<'_>],
) -> RedisResult<Value> {
    let CheckRequest { subject, metric, units, record, traceparent } = request;
    let mut call = SCRIPT.call().key(keys.stream()).arg(units.get()).arg(limits.len()).arg(rates.len());
    for AppliedLimit { level, first, second } in limits {
        let level = levels[*level].subject.as_str();
        for AppliedPeriod { span, .. } in [first, second] {
            call = call.key(keys.usage(metric, span.period, keys::bucket(level)));
        }
        call = call.arg(level).arg(first.units_max).arg(second.units_max);
        call = call.arg(first.span.start.0).arg(second.span.start.0).arg(second.span.end.0);
    }
    for AppliedRate { level, limiter } in rates {
        let window = keys.limiter(limiter.algorithm().as_str(), metric, &levels[*level].subject);
        let arguments = limiter.arguments(units.get());
        call = call.key(stored_key(&window)).arg(limiter.function()).arg(arguments.len()).arg(&arguments[..]);
    }
    if let Some(id) = record {
        call = call.arg("subject").arg(subject.as_str()).arg("metric").arg(metric.as_str());
        call = call.arg("units").arg(units.get()).arg("id").arg(id.as_str());
        if let Some(traceparent) = traceparent {
            call = call.arg("traceparent").arg(traceparent.as_str());
        }
    }
    call.run(client).await
}

impl AppliedLimit {
    /// The limit with the period that contains this instant and the nearer neighbor of that period: the estimated time
    /// may be wrong by half a period.
    fn around(profile: &Profile, level: usize, (metric, window): (&Metric, Window), at: UnixMs) -> Option<Self> {
        let containing = |at| {
            let span = PeriodSpan::containing(window, profile.zone(), profile.billing(), at)?;
            let limit = profile.limit_of(metric, span.period)?;
            Some(AppliedPeriod { span, limit, units_max: profile.refuse_at().units_max(limit) })
        };
        let current = containing(at)?;
        let PeriodSpan { start, end, period } = current.span;
        if !period.has_end() {
            // No second period begins, so the script takes the first.
            let second = AppliedPeriod { span: PeriodSpan { start: end, ..current.span }, ..current };
            return Some(Self { level, first: current, second });
        }
        if at.0 - start.0 < end.0 - at.0 {
            Some(Self { level, first: containing(start.plus(-1))?, second: current })
        } else {
            Some(Self { level, first: current, second: containing(end)? })
        }
    }

    /// The period that the script judged.
    const fn containing(&self, now: UnixMs) -> AppliedPeriod {
        if now.0 < self.second.span.start.0 { self.first } else { self.second }
    }

    /// The status for a level that has used `used` units, if more are asked for.
    fn status(&self, of: (Subject, Option<usize>), used: u64, asked: Units, now: UnixMs) -> PeriodStatus {
        let AppliedPeriod { span: period, limit, units_max } = self.containing(now);
        let remaining = limit.get().saturating_sub(used);
        let reset = period.end.since(now);
        let admission = if asked.get() <= units_max.saturating_sub(used) {
            Admission::Admitted
        } else {
            let fits = asked.get() <= units_max && period.period.has_end();
            Admission::Rejected { retry_after: fits.then_some(reset) }
        };
        let status = LimitStatus { admission, limit, remaining, reset, length: period.end.since(period.start) };
        let (subject, level_above) = of;
        PeriodStatus { subject, level_above, period: period.period, used, status }
    }
}

fn parsed<T: FromRedisValue>(reply: Value) -> Result<T, CheckError> {
    redis::from_redis_value(reply).map_err(|_| CheckError::Reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::Plans;
    use proptest::prelude::*;

    /// A subject with a limit of 10 in every window.
    fn profile(zone: &str, month: u8, day: u8) -> Profile {
        let limits = Window::ALL.map(|window| format!("10/{window}")).join(" ");
        let billing = [("billing_month", month.to_string()), ("billing_day", day.to_string())];
        let fields = billing.into_iter().chain([("timezone", zone.to_owned()), ("limit:requests", limits)]);
        let fields: Vec<_> = fields.map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect();
        Profile::read(&fields, &Plans::without_limits(), 0, None).0
    }

    proptest! {
        /// The estimated server time may be wrong by nearly half a period; the two periods must contain the real time
        /// for every window.
        #[test]
        fn two_periods_forgive_a_guess_that_is_wrong_by_less_than_half_of_one(
            zone in crate::zones::any_zone(),
            second in 1_000_000_000_i64..4_102_444_800,
            month in 1..=12_u8,
            day in 1..=31_u8,
            wrong in -1.0..1.0_f64,
        ) {
            let profile = profile(zone.name(), month, day);
            let now = UnixMs(second * 1000);
            for (window, wrong_h) in Window::ALL.into_iter().zip([0.49, 10.0, 80.0, 300.0, 1000.0, 4300.0]) {
                let guess = now.plus((wrong * wrong_h * 3_600_000.0) as i64);
                let applied = AppliedLimit::around(&profile, 0, (&Metric::default(), window), guess).expect("in range");
                prop_assert_eq!(applied.first.span.end, applied.second.span.start);
                prop_assert!(applied.first.span.contains(now) || applied.second.span.contains(now), "{:?}", window);
                prop_assert!(applied.containing(now).span.contains(now), "{:?}", window);
            }
        }
    }

    /// A request above the whole limit never fits, however long the client waits.
    #[test]
    fn a_limit_says_when_a_retry_helps() {
        let requests = Metric::default();
        let day =
            AppliedLimit::around(&profile("UTC", 1, 1), 0, (&requests, Window::Day), UnixMs(1)).expect("in range");
        let judged = |used, asked| {
            let PeriodStatus { used: told, status, .. } =
                day.status(("who".parse().expect("legal"), None), used, Units::new(asked).expect("legal"), UnixMs(1));
            assert_eq!(told, used);
            (status.admission, status.remaining)
        };
        let reset = day.second.span.end.since(UnixMs(1));
        assert_eq!(judged(0, 10), (Admission::Admitted, 10));
        assert_eq!(judged(9, 1), (Admission::Admitted, 1));
        assert_eq!(judged(9, 2), (Admission::Rejected { retry_after: Some(reset) }, 1));
        assert_eq!(judged(12, 1), (Admission::Rejected { retry_after: Some(reset) }, 0));
        assert_eq!(judged(0, 11), (Admission::Rejected { retry_after: None }, 10));
    }
}
