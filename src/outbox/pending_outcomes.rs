//! Outcomes that Redis has not taken yet.
//!
//! While Redis is away, leases run out. If the next lease came before the outcomes that wait, a delivery that was
//! accepted would be attempted again. So the dispatcher has those recorded first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Counts the tasks whose outcome waits for Redis, and has them try again when it is back.
#[derive(Debug, Default)]
pub(super) struct PendingOutcomes {
    waiting: AtomicUsize,
    retry: Notify,
    cleared: Notify,
}

/// One task that waits. Ends when dropped.
#[derive(Debug)]
pub(super) struct PendingOutcome<'a>(&'a PendingOutcomes);

impl PendingOutcomes {
    /// One more outcome waits, as long as the returned value lives.
    pub(super) fn add(&self) -> PendingOutcome<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        PendingOutcome(self)
    }

    /// Whether any outcome waits.
    pub(super) fn any(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns when somebody says that Redis is back. A task that is not listening at that moment finds out by its own
    /// delay.
    pub(super) async fn retry_requested(&self) {
        self.retry.notified().await;
    }

    /// Redis is back: waits until the outcomes are recorded, for `timeout` at most, so that one that can't be recorded
    /// does not hold up the others for long.
    pub(super) async fn flush(&self, timeout: Duration) {
        let cleared = async {
            while self.any() {
                self.retry.notify_waiters();
                self.cleared.notified().await;
            }
        };
        let _ = tokio::time::timeout(timeout, cleared).await;
    }
}

impl Drop for PendingOutcome<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            // A permit is kept when nobody listens yet, so this is never missed.
            self.0.cleared.notify_one();
        }
    }
}
