//! Outcomes that Redis has not accepted yet.
//!
//! While Redis is unavailable, leases end. If the next lease came before the waiting outcomes, an accepted delivery
//! would be attempted again. So the dispatcher records these outcomes first.

use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Counts the tasks that wait until Redis accepts an outcome, and makes them retry when Redis is available again.
#[derive(Debug, Default)]
pub(super) struct PendingOutcomes {
    waiting: TaskTracker,
    retry: Notify,
}

impl PendingOutcomes {
    /// Counts a waiting outcome while the returned value exists.
    pub(super) fn add(&self) -> TaskTrackerToken {
        self.waiting.token()
    }

    /// Whether any outcome waits.
    pub(super) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns when a retry is requested. A task that does not listen at that moment retries after its own delay.
    pub(super) async fn retry_requested(&self) {
        self.retry.notified().await;
    }

    /// Call it when Redis is available again: waits until the outcomes are recorded, at most `timeout`, so that an
    /// unrecordable one does not delay others for long.
    pub(super) async fn flush(&self, timeout: Duration) {
        // A tracker must be closed before it can be waited for. It accepts tasks anyway.
        self.waiting.close();
        self.retry.notify_waiters();
        let _ = tokio::time::timeout(timeout, self.waiting.wait()).await;
    }
}
