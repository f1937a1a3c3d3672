//! Outcomes that Redis has not accepted yet.
//!
//! While Redis is unavailable, leases end. If the next lease came before the waiting outcomes, an accepted delivery
//! would be attempted again. So the dispatcher records these outcomes first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Counts the tasks whose outcome waits for Redis, and makes them retry when Redis is available again.
#[derive(Debug, Default)]
pub(super) struct PendingOutcomes {
    waiting: AtomicUsize,
    retry: Notify,
    cleared: Notify,
}

/// One waiting task. Ends on drop.
#[derive(Debug)]
pub(super) struct PendingOutcome<'a>(&'a PendingOutcomes);

impl PendingOutcomes {
    /// Counts a waiting outcome while the returned value exists.
    pub(super) fn add(&self) -> PendingOutcome<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        PendingOutcome(self)
    }

    /// Whether any outcome waits.
    pub(super) fn any(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns when a retry is requested. A task that does not listen at that moment retries after its own delay.
    pub(super) async fn retry_requested(&self) {
        self.retry.notified().await;
    }

    /// Call it when Redis is available again: waits until the outcomes are recorded, at most `timeout`, so that an
    /// unrecordable one does not delay others for long.
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
            // A permit is kept if nobody listens yet, so this is never missed.
            self.0.cleared.notify_one();
        }
    }
}
