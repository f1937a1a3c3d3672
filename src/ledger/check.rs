//! The wrapper of `check.lua`: decides whether a subject may use some units now.
//!
//! One round trip reads the committed counts of the subject's limits, asks the limiter of its rate, and appends the
//! usage event that records the request. The clock of Redis decides the period of each window; the daemon sends the two
//! most likely periods. Read next: [`super::decision`], the decision.

use std::sync::LazyLock;

use redis::{FromRedisValue, RedisError, RedisResult, Value};

use crate::redis_client::{Partition, Script, ServerClock};
use crate::subjects::limiter::FUNCTIONS;
use crate::subjects::{Limiter, Profile};
use crate::types::{PeriodSpan, Units, UnixMs, WindowLimit, keys};
use quotabell_throttle::{Admission, RateDecision, stored_key};

use super::decision::{CheckDecision, CheckRequest, LimitStatus, PeriodStatus, Recorded};

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

/// A limit with its probable current period and the nearer neighbor of that period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AppliedLimit {
    limit: WindowLimit,
    /// The most units that may be used: `refuse_at` of the plan.
    units_max: u64,
    first: PeriodSpan,
    /// The period after it; for a total, an empty one at the end of time.
    second: PeriodSpan,
}

/// Decides a request by the subject's settings. Takes from the rate and records the event only if every limit and the
/// rate admit the request. If there is no limit and no rate, or the settings are unreadable, it allows the request.
///
/// `clock` is the estimate of the server's clock; each reply sets it.
///
/// Not repeatable with respect to the rate: a repeated request takes again. The event counts once, by its id.
///
/// # Errors
///
/// [`CheckError`]; if the connection broke, the script may have run.
pub async fn check(
    partition: &Partition,
    clock: &ServerClock,
    request: &CheckRequest,
    profile: &Profile,
) -> Result<CheckDecision, CheckError> {
    let (limits, limiter) = match profile.has_known_limits() {
        true => (profile.limits_of(&request.metric), profile.limiter(&request.metric)),
        false => (&[][..], None),
    };
    if limits.is_empty() && limiter.is_none() && request.record.is_none() {
        return Ok(CheckDecision::nothing_to_judge(profile));
    }
    let mut now = UnixMs(clock.now_ms());
    for _ in 0..TRIES {
        let around = |limit: &WindowLimit| AppliedLimit::around(profile, *limit, now);
        let applied: Vec<AppliedLimit> =
            limits.iter().map(around).collect::<Option<_>>().ok_or(CheckError::Clock(now))?;
        let reply = call(partition, request, &applied, limiter).await?;
        if let Value::Array(parts) = &reply
            && parts.len() == 2
        {
            let (_, then): (String, i64) = parsed(reply)?;
            clock.set(then);
            now = UnixMs(then);
            continue;
        }
        let (_, then, used, rate, entry): (String, i64, Vec<u64>, Vec<i64>, String) = parsed(reply)?;
        clock.set(then);
        let status = |(limit, used): (&AppliedLimit, u64)| limit.status(used, request.units, UnixMs(then));
        let limits: Vec<PeriodStatus> = applied.iter().zip(used).map(status).collect();
        // As in the script: if a limit refuses, the rate is not used.
        let is_taken = limits.iter().all(|limit| limit.status.is_admitted());
        let rate = limiter.map(|limiter| {
            let decision = limiter.decision(&rate, if is_taken { request.units.get() } else { 0 })?;
            let RateDecision { admission, limit, remaining, reset } = decision;
            let (limit, length) = (Units::new(limit)?, limiter.rate().window());
            Some(LimitStatus { admission, limit, remaining, reset, length }.asked_for(request.units))
        });
        let rate = rate.map(|status| status.ok_or(CheckError::Reply)).transpose()?;
        let recorded = if entry.is_empty() { Recorded::No } else { Recorded::Yes };
        return Ok(CheckDecision { rate, limits, recorded, ..CheckDecision::nothing_to_judge(profile) });
    }
    Err(CheckError::Clock(now))
}

async fn call(
    Partition { client, keys }: &Partition,
    request: &CheckRequest,
    limits: &[AppliedLimit],
    limiter: Option<&Limiter>,
) -> RedisResult<Value> {
    let CheckRequest { subject, metric, units, record } = request;
    let bucket = keys::bucket(subject.as_str());
    let algorithm = limiter.map(|limiter| limiter.algorithm()).unwrap_or_default();
    let window = keys.limiter(algorithm.as_str(), metric, subject);
    let mut call = SCRIPT.call().key(stored_key(&window)).key(keys.stream());
    call = call.arg(subject.as_str()).arg(units.get()).arg(limits.len());
    for AppliedLimit { first, second, units_max, .. } in limits {
        for period in [first, second] {
            call = call.key(keys.usage(metric, period.period, bucket));
        }
        call = call.arg(units_max).arg(first.start.0).arg(second.start.0).arg(second.end.0);
    }
    call = match limiter {
        Some(limiter) => {
            let arguments = limiter.arguments(units.get());
            call.arg(limiter.function()).arg(arguments.len()).arg(&arguments[..])
        }
        None => call.arg("").arg(0),
    };
    if let Some(id) = record {
        call = call.arg("subject").arg(subject.as_str()).arg("metric").arg(metric.as_str());
        call = call.arg("units").arg(units.get()).arg("id").arg(id.as_str());
    }
    call.run(client).await
}

impl AppliedLimit {
    /// The limit with the period that contains this instant and the nearer neighbor of that period: the estimated time
    /// may be wrong by half a period.
    fn around(profile: &Profile, limit: WindowLimit, at: UnixMs) -> Option<Self> {
        let containing = |at| PeriodSpan::containing(limit.window, profile.zone(), profile.billing(), at);
        let current = containing(at)?;
        let units_max = profile.refuse_at().units_max(limit.units);
        if !current.period.has_end() {
            // No second period begins, so the script takes the first.
            return Some(Self {
                limit,
                units_max,
                first: current,
                second: PeriodSpan { start: current.end, ..current },
            });
        }
        if at.0 - current.start.0 < current.end.0 - at.0 {
            Some(Self { limit, units_max, first: containing(current.start.plus(-1))?, second: current })
        } else {
            Some(Self { limit, units_max, first: current, second: containing(current.end)? })
        }
    }

    /// The period that the script judged.
    const fn containing(&self, now: UnixMs) -> PeriodSpan {
        if now.0 < self.second.start.0 { self.first } else { self.second }
    }

    /// The status for a subject that has used `used` units and asks for more.
    fn status(&self, used: u64, asked: Units, now: UnixMs) -> PeriodStatus {
        let (limit, period) = (self.limit.units, self.containing(now));
        let remaining = limit.get().saturating_sub(used);
        let reset = period.end.since(now);
        let admission = if asked.get() <= self.units_max.saturating_sub(used) {
            Admission::Admitted
        } else {
            let fits = asked.get() <= self.units_max && period.period.has_end();
            Admission::Rejected { retry_after: fits.then_some(reset) }
        };
        let status = LimitStatus { admission, limit, remaining, reset, length: period.end.since(period.start) };
        PeriodStatus { period: period.period, used, status }
    }
}

fn parsed<T: FromRedisValue>(reply: Value) -> Result<T, CheckError> {
    redis::from_redis_value(reply).map_err(|_| CheckError::Reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::Plans;
    use crate::types::Window;
    use proptest::prelude::*;

    fn profile(zone: &str, month: u8, day: u8) -> Profile {
        let billing = [("billing_month", month.to_string()), ("billing_day", day.to_string())];
        let fields = billing.into_iter().chain([("timezone", zone.to_owned())]);
        let fields: Vec<_> = fields.map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect();
        Profile::read(&fields, &Plans::without_limits(), None).0
    }

    fn limit(window: Window, units: u64) -> WindowLimit {
        WindowLimit { window, units: Units::new(units).expect("in range") }
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
                let applied = AppliedLimit::around(&profile, limit(window, 1), guess).expect("in range");
                prop_assert_eq!(applied.first.end, applied.second.start);
                prop_assert!(applied.first.contains(now) || applied.second.contains(now), "{:?}", window);
                prop_assert!(applied.containing(now).contains(now), "{:?}", window);
            }
        }
    }

    /// A request above the whole limit never fits, however long the client waits.
    #[test]
    fn a_limit_says_when_a_retry_helps() {
        let day = AppliedLimit::around(&profile("UTC", 1, 1), limit(Window::Day, 10), UnixMs(1)).expect("in range");
        let judged = |used, asked| {
            let PeriodStatus { used: told, status, .. } =
                day.status(used, Units::new(asked).expect("legal"), UnixMs(1));
            assert_eq!(told, used);
            (status.admission, status.remaining)
        };
        let reset = day.second.end.since(UnixMs(1));
        assert_eq!(judged(0, 10), (Admission::Admitted, 10));
        assert_eq!(judged(9, 1), (Admission::Admitted, 1));
        assert_eq!(judged(9, 2), (Admission::Rejected { retry_after: Some(reset) }, 1));
        assert_eq!(judged(12, 1), (Admission::Rejected { retry_after: Some(reset) }, 0));
        assert_eq!(judged(0, 11), (Admission::Rejected { retry_after: None }, 10));
    }
}
