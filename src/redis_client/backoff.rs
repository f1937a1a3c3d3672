//! Delays between retries. Only this file uses the `backoff` crate.
//!
//! The crate is unmaintained (RUSTSEC-2025-0012) but required by the product, so it stays behind this file: `backon`
//! can replace it without a change elsewhere. This file sets every field, because the crate's defaults (15 minutes,
//! +-50 % jitter) are wrong here.

use std::time::Duration;

use ::backoff::ExponentialBackoff;
use ::backoff::backoff::Backoff as _;

/// Jitter, as in Svix: each delay is drawn from +-20 % around its center, so that deliveries that failed together are
/// not retried together.
const JITTER: f64 = 0.2;

/// How delays between retries grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffPolicy {
    /// The delay after the first failure.
    pub first: Duration,
    /// Factor between one delay and the next; at least 1.
    pub factor: f64,
    /// Maximum delay, jitter included.
    pub max_interval: Duration,
}

impl BackoffPolicy {
    /// For connections: 100 ms, doubling up to 5 s.
    pub const RECONNECT: Self =
        Self { first: Duration::from_millis(100), factor: 2.0, max_interval: Duration::from_secs(5) };

    /// The delay after the `failures`th failure in a row (1 for the first), with jitter.
    pub fn delay(&self, failures: u32) -> Duration {
        let steps = failures.saturating_sub(1).min(1_000_000);
        let grown = self.first.as_secs_f64() * self.factor.powi(steps as i32);
        let centre = if grown.is_finite() {
            grown.min(self.max_interval.as_secs_f64())
        } else {
            self.max_interval.as_secs_f64()
        };
        let mut exponential = ExponentialBackoff {
            current_interval: Duration::from_secs_f64(centre),
            initial_interval: self.first,
            randomization_factor: JITTER,
            multiplier: self.factor,
            max_interval: self.max_interval,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        exponential.next_backoff().unwrap_or(self.max_interval).min(self.max_interval)
    }
}

/// Counts failures in a row and computes the next delay, for loops that retry.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
}

impl Backoff {
    /// Starts with no failures.
    pub const fn new(policy: BackoffPolicy) -> Self {
        Self { policy, failures: 0 }
    }

    /// Counts a failure and returns the delay before the next retry.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.policy.delay(self.failures)
    }

    /// Resets the count after a success: the next failure starts from the first delay.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row so far.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A delay outside its bounds would overload a receiver or delay a delivery for too long.
        #[test]
        fn delays_stay_within_a_fifth_of_their_centre(failures in 1_u32..200, first_ms in 1_u64..10_000, factor in 1.0_f64..8.0) {
            let policy = BackoffPolicy { first: Duration::from_millis(first_ms), factor, max_interval: Duration::from_secs(21_600) };
            let centre = (first_ms as f64 / 1000.0 * factor.powi(failures as i32 - 1)).min(21_600.0);
            let delay = policy.delay(failures).as_secs_f64();
            prop_assert!(delay >= centre * 0.79 && delay <= centre * 1.21 && delay <= 21_600.0, "{} for {}", delay, centre);
        }
    }
}
