//! The retry policy: whether another attempt follows a failed one, and when. Pure except for the jitter.

use std::time::Duration;

use super::config::RetryConfig;
use super::settle::Settlement;
use crate::types::duration::whole_ms;
use crate::types::{Outcome, OutcomeClass, UnixMs};

/// How long a delivery is retried at a receiver that refuses it: somebody may fix the cause, such as a URL or a
/// password, within a day.
const REJECTED_FOR_MAX: Duration = Duration::from_secs(24 * 3600);

/// An attempt that ended.
#[derive(Debug, Clone)]
pub struct EndedAttempt {
    /// Its outcome.
    pub outcome: Outcome,
    /// Its number, from 1.
    pub attempt: u32,
    /// When the first attempt began.
    pub first_attempt: UnixMs,
    /// Duration of pauses since then, which does not count.
    pub paused: Duration,
    /// When this attempt began.
    pub now: UnixMs,
}

/// Decides what follows an attempt: the end of the delivery, or another attempt after a delay in whole milliseconds.
///
/// The delay comes from the schedule for this number of failures, with jitter, but is never shorter than the receiver's
/// Retry-After; both are capped at `max_interval`. `give_up_after` counts from the start of the first attempt to the
/// end of this one, without the operator's pauses. It is checked here after a failure, and in `lease.lua` for
/// deliveries that wait behind an open circuit.
pub fn settlement_after(ended: EndedAttempt, retry: &RetryConfig) -> Settlement {
    let EndedAttempt { outcome, attempt, first_attempt, paused, now } = ended;
    match outcome.class {
        OutcomeClass::Delivered => Settlement::Delivered(outcome),
        OutcomeClass::Permanent => Settlement::Dead(outcome),
        OutcomeClass::Transient | OutcomeClass::Rejected
            if now.since(first_attempt).saturating_sub(paused).saturating_add(outcome.took)
                >= give_up_after(outcome.class, retry.give_up_after) =>
        {
            Settlement::Dead(outcome)
        }
        OutcomeClass::Transient | OutcomeClass::Rejected => {
            let asked = outcome.retry_after.unwrap_or_default().min(retry.max_interval);
            Settlement::Retry(outcome, whole_ms(retry.schedule().delay(attempt).max(asked)))
        }
    }
}

/// How long failures of this class are retried; `configured` is the operator's `retry.give_up_after`.
pub fn give_up_after(class: OutcomeClass, configured: Duration) -> Duration {
    match class {
        OutcomeClass::Rejected => configured.min(REJECTED_FOR_MAX),
        _ => configured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome(class: OutcomeClass, retry_after: Option<Duration>) -> Outcome {
        Outcome { class, retry_after, took: Duration::from_millis(20), ..Outcome::delivered() }
    }

    fn retry() -> RetryConfig {
        RetryConfig {
            first: Duration::from_secs(5),
            factor: 4.0,
            max_interval: Duration::from_secs(6 * 3600),
            give_up_after: Duration::from_secs(3 * 86_400),
        }
    }

    fn after(outcome: &Outcome, attempt: u32, tried_ms: i64) -> Settlement {
        after_pause(outcome, attempt, tried_ms, Duration::ZERO)
    }

    fn after_pause(outcome: &Outcome, attempt: u32, tried_ms: i64, paused: Duration) -> Settlement {
        let first_attempt = UnixMs(1_795_250_000_000);
        let outcome = outcome.clone();
        let ended = EndedAttempt { outcome, attempt, first_attempt, paused, now: first_attempt.plus(tried_ms) };
        settlement_after(ended, &retry())
    }

    /// Success and permanent failure end a delivery at once, whatever delay the receiver requests.
    #[test]
    fn delivered_and_permanent_end_the_delivery() {
        let asked = Some(Duration::from_secs(60));
        assert!(matches!(after(&outcome(OutcomeClass::Delivered, asked), 1, 0), Settlement::Delivered(_)));
        assert!(matches!(after(&outcome(OutcomeClass::Permanent, asked), 1, 0), Settlement::Dead(_)));
    }

    /// A delivery is given up at the first failure after `give_up_after`, not earlier and not without an attempt.
    #[test]
    fn a_delivery_is_given_up_once_it_was_tried_long_enough() {
        let failed = outcome(OutcomeClass::Transient, None);
        let end_ms = 3 * 86_400_000;
        assert!(matches!(after(&failed, 9, end_ms - 21), Settlement::Retry(..)));
        assert!(matches!(after(&failed, 9, end_ms - 20), Settlement::Dead(_)));
        assert!(matches!(after(&failed, 9, end_ms * 100), Settlement::Dead(_)));
    }

    /// A pause over a long weekend must not lose waiting deliveries.
    #[test]
    fn the_time_of_a_pause_does_not_count() {
        let (failed, end_ms) = (outcome(OutcomeClass::Transient, None), 3 * 86_400_000);
        let paused = Duration::from_millis(1000);
        assert!(matches!(after_pause(&failed, 9, end_ms + 979, paused), Settlement::Retry(..)));
        assert!(matches!(after_pause(&failed, 9, end_ms + 980, paused), Settlement::Dead(_)));
    }

    /// A refusing receiver is retried for a day, or for `give_up_after` if that is shorter.
    #[test]
    fn a_rejected_delivery_is_given_up_after_a_day() {
        let (failed, day_ms) = (outcome(OutcomeClass::Rejected, None), 86_400_000);
        assert!(matches!(after(&failed, 9, day_ms - 21), Settlement::Retry(..)));
        assert!(matches!(after(&failed, 9, day_ms - 20), Settlement::Dead(_)));
        let hour = RetryConfig { give_up_after: Duration::from_secs(3600), ..retry() };
        assert_eq!(give_up_after(OutcomeClass::Rejected, hour.give_up_after), hour.give_up_after);
    }

    /// A clock that went back must not end a delivery.
    #[test]
    fn a_clock_that_went_back_counts_as_no_time() {
        assert!(matches!(after(&outcome(OutcomeClass::Transient, None), 2, -86_400_000), Settlement::Retry(..)));
    }

    proptest! {
        /// I6: never before Retry-After; and never later than `max_interval`, or a receiver could delay forever.
        #[test]
        fn retries_respect_retry_after_and_max_interval(attempt in 1_u32..100, asked_ms in 0_u64..100_000_000) {
            let asked = Duration::from_millis(asked_ms);
            let max = retry().max_interval;
            match after(&outcome(OutcomeClass::Transient, Some(asked)), attempt, 1000) {
                Settlement::Retry(_, delay) => prop_assert!(delay >= asked.min(max) && delay <= max, "{:?}", delay),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        /// Without Retry-After the delay comes from the schedule, within its jitter.
        #[test]
        fn retries_follow_the_schedule(attempt in 1_u32..100) {
            let centre = (5.0 * 4.0_f64.powi(attempt as i32 - 1)).min(21_600.0);
            match after(&outcome(OutcomeClass::Transient, None), attempt, 1000) {
                Settlement::Retry(_, delay) => {
                    let delay = delay.as_secs_f64();
                    prop_assert!(delay >= centre * 0.79 && delay <= (centre * 1.21).min(21_600.0), "{}", delay);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
