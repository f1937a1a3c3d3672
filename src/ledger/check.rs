//! The wrapper of `check.lua`: may a subject use some units now?
//!
//! One round trip: the day's committed count, a window limiter, and the usage event that records it. The day is the one that Redis'
//! clock is in, in the subject's zone; ours only guesses which two days are worth sending. Read next: [`super::decision`], what the
//! answer says.

use redis::{RedisError, RedisResult, Value};

use crate::subjects::Profile;
use crate::throttle::limiter::FUNCTIONS;
use crate::throttle::{Admission, Limiter, bounded};
use crate::types::{DaySpan, Keys, Units, UnixMs, keys};
use crate::wire::{RedisClient, Script, ServerClock};

use super::decision::{CheckDecision, CheckRequest, LimitStatus, Recorded};

/// The days may be wrong once: when nothing of the server's clock is known yet, or it jumped.
const TRIES: u32 = 2;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// What Redis or the connection said. The script may have run.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// The server's clock is in no day, or jumps.
    #[error("the server's clock shows {0}, which is in none of the days that were asked about")]
    Clock(UnixMs),
    /// The reply is none of the script's.
    #[error("the reply of check.lua is none that it gives")]
    Reply,
}

/// Asks.
#[derive(Debug)]
pub struct CheckScript {
    keys: Keys,
    script: Script,
    clock: ServerClock,
}

/// A day and the one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days {
    first: DaySpan,
    second: DaySpan,
}

/// What a request is judged by.
struct AppliedLimits<'a> {
    limit: Option<Units>,
    limiter: Option<&'a Limiter>,
    days: Days,
}

/// What the script answered.
enum CheckReply {
    Judged { now: UnixMs, used: i64, window: Vec<i64>, entry: String },
    WrongDay(UnixMs),
}

impl CheckScript {
    /// Checks in the partition with these keys.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        let script = Script::with_functions(include_str!("check.lua"), &FUNCTIONS);
        Self { keys, script, clock: ServerClock::default() }
    }

    /// The server's clock, to be told what it shows.
    #[must_use]
    pub const fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Judges a request by the subject's settings; takes from the window and records only where both the day and the window admit
    /// it. Without a limit and a limiter, or while the settings can't be read, there is nothing to judge and the answer is yes.
    ///
    /// Not repeatable as far as the window goes: a request that is asked again takes again. The event counts once, by its id.
    ///
    /// # Errors
    ///
    /// [`CheckError`]; after a broken connection the script may have run.
    pub async fn judge(
        &self,
        client: &RedisClient,
        request: &CheckRequest,
        profile: &Profile,
    ) -> Result<CheckDecision, CheckError> {
        let (limit, limiter) = match profile.is_judged() {
            true => (profile.limit(&request.metric), profile.limiter(&request.metric)),
            false => (None, None),
        };
        if limit.is_none() && limiter.is_none() && request.record.is_none() {
            return Ok(CheckDecision::of_nothing(profile));
        }
        let mut now = UnixMs(self.clock.now_ms());
        for _ in 0..TRIES {
            let days = Days::around(profile, now).ok_or(CheckError::Clock(now))?;
            let terms = AppliedLimits { limit, limiter, days };
            match reply_of(self.call(client, request, &terms).await?)? {
                CheckReply::WrongDay(then) => {
                    self.clock.set(then.0);
                    now = then;
                }
                CheckReply::Judged { now, used, window, entry } => {
                    self.clock.set(now.0);
                    let day =
                        terms.limit.map(|limit| day_status(limit, used, request.units, days.containing(now), now));
                    let denied = day.as_ref().is_some_and(|day| !day.is_admitted());
                    // As the script: a day that says no leaves the window alone.
                    let taken = if denied { 0 } else { request.units.get() };
                    let window = match limiter {
                        Some(limiter) => {
                            let status = window_status(limiter, &window, taken).ok_or(CheckError::Reply)?;
                            Some(status.asked_for(request.units))
                        }
                        None => None,
                    };
                    let recorded = if entry.is_empty() { Recorded::No } else { Recorded::Yes };
                    return Ok(CheckDecision { window, day, recorded, ..CheckDecision::of_nothing(profile) });
                }
            }
        }
        Err(CheckError::Clock(now))
    }

    async fn call(
        &self,
        client: &RedisClient,
        request: &CheckRequest,
        terms: &AppliedLimits<'_>,
    ) -> RedisResult<Value> {
        let CheckRequest { subject, metric, units, record } = request;
        let AppliedLimits { limit, limiter, days: Days { first, second } } = terms;
        let bucket = keys::bucket(subject.as_str());
        let algorithm = limiter.map(|limiter| limiter.algorithm()).unwrap_or_default();
        let window = self.keys.window(algorithm.as_str(), metric, subject);
        let mut call = self
            .script
            .call()
            .key(self.keys.usage(metric, first.day, bucket))
            .key(self.keys.usage(metric, second.day, bucket))
            .key(bounded(&window))
            .key(self.keys.stream())
            .arg(subject.as_str())
            .arg(units.get())
            .arg(first.start.0)
            .arg(second.start.0)
            .arg(second.end.0)
            .arg(limit.map(|limit| limit.to_string()).unwrap_or_default());
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
}

impl Days {
    /// The day that holds this instant in the subject's zone, and its nearer neighbour, so that half a day of error does no harm.
    fn around(profile: &Profile, at: UnixMs) -> Option<Self> {
        let zone = profile.zone();
        let today = DaySpan::containing(zone, at)?;
        if at.0 - today.start.0 < today.end.0 - at.0 {
            Some(Self { first: DaySpan::containing(zone, today.start.plus(-1))?, second: today })
        } else {
            Some(Self { first: today, second: DaySpan::containing(zone, today.end)? })
        }
    }

    /// The one that the script has looked at.
    const fn containing(&self, now: UnixMs) -> DaySpan {
        if now.0 < self.second.start.0 { self.first } else { self.second }
    }
}

fn reply_of(reply: Value) -> Result<CheckReply, CheckError> {
    let Value::Array(parts) = &reply else { return Err(CheckError::Reply) };
    match parts.len() {
        2 => {
            let (_, now): (String, i64) = redis::from_redis_value(reply).map_err(|_| CheckError::Reply)?;
            Ok(CheckReply::WrongDay(UnixMs(now)))
        }
        _ => {
            let judged: (String, i64, i64, Vec<i64>, String) =
                redis::from_redis_value(reply).map_err(|_| CheckError::Reply)?;
            let (_, now, used, window, entry) = judged;
            Ok(CheckReply::Judged { now: UnixMs(now), used, window, entry })
        }
    }
}

fn day_status(limit: Units, used: i64, units: Units, day: DaySpan, now: UnixMs) -> LimitStatus {
    let remaining = limit.get().saturating_sub(u64::try_from(used).unwrap_or(0));
    let reset = day.end.since(now);
    let admission = if units.get() <= remaining {
        Admission::Admitted
    } else {
        Admission::Rejected { retry_after: (units <= limit).then_some(reset) }
    };
    LimitStatus { admission, limit, remaining, reset, length: day.end.since(day.start) }
}

fn window_status(limiter: &Limiter, reply: &[i64], taken: u64) -> Option<LimitStatus> {
    let decision = limiter.decision(reply, taken)?;
    Some(LimitStatus {
        admission: decision.admission,
        limit: decision.limit,
        remaining: decision.remaining,
        reset: decision.reset,
        length: limiter.rate().window(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::Plans;
    use crate::subjects::config::PlanConfig;
    use proptest::prelude::*;

    fn profile(zone: &str) -> Profile {
        let plan = PlanConfig { limits: [].into(), thresholds: Vec::new(), rate: Default::default() };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("free is there");
        Profile::read(&[(b"timezone".to_vec(), zone.as_bytes().to_vec())], &plans, None).0
    }

    proptest! {
        /// Our guess of the server's clock may be wrong by hours: the day that it is in must be one of the two all the same.
        #[test]
        fn two_days_forgive_a_guess_that_is_ten_hours_wrong(
            zone in 0..chrono_tz::TZ_VARIANTS.len(),
            second in 1_000_000_000_i64..4_102_444_800,
            wrong_s in -36_000_i64..36_000,
        ) {
            let profile = profile(chrono_tz::TZ_VARIANTS[zone].name());
            let now = UnixMs(second * 1000);
            let days = Days::around(&profile, now.plus(wrong_s * 1000)).expect("in range");
            prop_assert_eq!(days.first.end, days.second.start);
            prop_assert!(days.first.contains(now) || days.second.contains(now));
            prop_assert!(days.containing(now).contains(now));
        }
    }

    /// More than a day's limit never fits, however long one waits.
    #[test]
    fn a_day_says_when_a_retry_helps() {
        let units = |units| Units::new(units).expect("in range");
        let day = DaySpan::containing(chrono_tz::Tz::UTC, UnixMs(0)).expect("in range");
        let judged = |used, asked| {
            let status = day_status(units(10), used, units(asked), day, UnixMs(1));
            (status.admission, status.remaining)
        };
        let reset = day.end.since(UnixMs(1));
        assert_eq!(judged(0, 10), (Admission::Admitted, 10));
        assert_eq!(judged(9, 1), (Admission::Admitted, 1));
        assert_eq!(judged(9, 2), (Admission::Rejected { retry_after: Some(reset) }, 1));
        assert_eq!(judged(12, 1), (Admission::Rejected { retry_after: Some(reset) }, 0));
        assert_eq!(judged(0, 11), (Admission::Rejected { retry_after: None }, 10));
    }
}
