//! Logs once when Redis stops answering and once when it answers again.

use tokio_util::sync::CancellationToken;

use super::error::{OutboxError, chain};
use crate::redis_client::ErrorKind;
use crate::redis_client::backoff::{Backoff, BackoffPolicy};

/// Counts consecutive failures of one loop, computes the delay, and logs them.
#[derive(Debug)]
pub(super) struct RedisOutage {
    /// The loop, for the log.
    task: &'static str,
    retries: Backoff,
    /// The kind of the last failure, which is logged once.
    failing: Option<ErrorKind>,
}

impl RedisOutage {
    pub(super) const fn new(task: &'static str) -> Self {
        Self { task, retries: Backoff::new(BackoffPolicy::RECONNECT), failing: None }
    }

    /// Counts and logs a failure, and waits before the next try, at most until `stop`.
    pub(super) async fn failed(&mut self, error: &OutboxError, stop: &CancellationToken) {
        let kind = error.error_kind();
        kind.count(error.label());
        let is_new = self.failing.replace(kind) != Some(kind);
        let (task, error) = (self.task, chain(error));
        if is_new && kind == ErrorKind::Full {
            tracing::error!(task, error, "redis memory is full: nothing is sent until memory is free; trying again");
        } else if is_new {
            tracing::error!(task, error, error_kind = kind.as_str(), "redis does not serve deliveries; trying again");
        }
        let _ = tokio::time::timeout(self.retries.next_delay(), stop.cancelled()).await;
    }

    /// Records a success.
    pub(super) fn worked(&mut self) {
        if self.retries.failures() > 0 {
            tracing::info!(task = self.task, failures = self.retries.failures(), "redis serves deliveries again");
            self.retries.reset();
            self.failing = None;
        }
    }
}
