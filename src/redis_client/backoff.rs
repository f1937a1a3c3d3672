//! Delays between tries: the one file that knows the `backoff` crate.
//!
//! The crate is unmaintained (RUSTSEC-2025-0012); it is a requirement of the product, and kept behind this file, where
//! `backon` could replace it without a change elsewhere. Its defaults (15 minutes, +-50 % jitter) are wrong for us, so
//! every field is set.

use std::time::Duration;

use ::backoff::ExponentialBackoff;
use ::backoff::backoff::Backoff as _;

/// Jitter: each delay is drawn from +-20 % around its centre, as Svix does, so that deliveries that failed together do
/// not come back together.
const JITTER: f64 = 0.2;

/// How delays between tries grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffPolicy {
    /// The delay after the first failure.
    pub first: Duration,
    /// How much longer each next delay is; at least 1.
    pub factor: f64,
    /// No delay is longer than this, jitter included.
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

/// Counts failures in a row and says how long to wait; for loops that keep trying.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
}

impl Backoff {
    /// No failure so far.
    pub const fn new(policy: BackoffPolicy) -> Self {
        Self { policy, failures: 0 }
    }

    /// One more failure: the delay before the next try.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.policy.delay(self.failures)
    }

    /// It worked: the next failure starts from the first delay.
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
        /// A delay outside its bounds would hammer a receiver or forget a delivery.
        #[test]
        fn delays_stay_within_a_fifth_of_their_centre(failures in 1_u32..200, first_ms in 1_u64..10_000, factor in 1.0_f64..8.0) {
            let policy = BackoffPolicy { first: Duration::from_millis(first_ms), factor, max_interval: Duration::from_secs(21_600) };
            let centre = (first_ms as f64 / 1000.0 * factor.powi(failures as i32 - 1)).min(21_600.0);
            let delay = policy.delay(failures).as_secs_f64();
            prop_assert!(delay >= centre * 0.79 && delay <= centre * 1.21 && delay <= 21_600.0, "{} for {}", delay, centre);
        }
    }
}
