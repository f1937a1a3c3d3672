//! If counting lags, delays fan-out and sending so that counting gets most of the server.
//!
//! Fanning out and sending an alert costs the server several times as much as raising it. In a storm, alerts would
//! otherwise be raised at a fifth of the possible speed, and later counts and alerts would wait for all of them. Read
//! next: [`counting_lag`].

use std::time::{Duration, Instant};

use metrics::counter;
use tokio_util::sync::CancellationToken;

use super::context::OutboxContext;
use super::counting_lag::{self, CountingLag};
use crate::types::meters;

/// Minimum interval between two reads of the lag.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// If counting lags, a loop waits for the duration of its call times this factor.
const WAIT_FACTOR: u32 = 3;
/// Maximum time that a loop waits, even on a slow server.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Whether the counting of a partition lags, as one loop knows it.
#[derive(Debug, Default)]
pub(super) struct CountingBacklog {
    asked: Option<Instant>,
    is_behind: bool,
}

impl CountingBacklog {
    /// Waits if counting lags, at most until `stop`. A loop calls it after each of its calls to Redis, with that call's
    /// duration.
    pub(super) async fn wait_for_counting(&mut self, outbox: &OutboxContext, took: Duration, stop: &CancellationToken) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_INTERVAL) {
            // If Redis does not answer, the next call reports it.
            let lag = counting_lag::of_partition(&outbox.client, &outbox.keys).await;
            self.is_behind = lag.is_ok_and(|lag| lag == CountingLag::Behind);
            self.asked = Some(Instant::now());
        }
        if self.is_behind {
            counter!(meters::WAITED_FOR_COUNTING).increment(1);
            let _ = tokio::time::timeout(wait_after(took), stop.cancelled()).await;
        }
    }
}

fn wait_after(took: Duration) -> Duration {
    (took * WAIT_FACTOR).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deliveries continue on a slow server.
    #[test]
    fn a_loop_waits_a_bounded_time() {
        assert_eq!(wait_after(Duration::from_millis(4)), Duration::from_millis(12));
        assert_eq!(wait_after(Duration::from_secs(4)), WAIT_MAX);
    }
}
