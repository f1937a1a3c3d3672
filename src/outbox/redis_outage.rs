//! One log line when Redis stops answering, one when it answers again.

use std::time::Duration;

use metrics::counter;

use super::error::{OutboxError, chain};
use crate::types::meters;
use crate::wire::ErrorKind;
use crate::wire::backoff::{Backoff, BackoffPolicy};

/// Counts the failures of one loop in a row, says how long to wait, and logs each outage once.
#[derive(Debug)]
pub(super) struct RedisOutage {
    retries: Backoff,
    kind: Option<ErrorKind>,
}

impl RedisOutage {
    pub(super) const fn new() -> Self {
        Self { retries: Backoff::new(BackoffPolicy::RECONNECT), kind: None }
    }

    /// One more failure: the delay before the next try. Logged when it is the first one of its kind in a row.
    pub(super) fn failed(&mut self, error: &OutboxError) -> Duration {
        counter!(meters::REDIS_ERRORS, "operation" => error.label()).increment(1);
        let kind = error.error_kind();
        if self.kind.replace(kind) != Some(kind) {
            let error = chain(error);
            if kind == ErrorKind::Full {
                tracing::error!(error, "redis memory is full: nothing is sent until there is room; trying again");
            } else {
                tracing::error!(error, error_kind = kind.as_str(), "redis does not serve deliveries; trying again");
            }
        }
        self.retries.next_delay()
    }

    /// It worked.
    pub(super) fn worked(&mut self) {
        if self.kind.take().is_some() {
            tracing::info!(failures = self.retries.failures(), "redis serves deliveries again");
            self.retries.reset();
        }
    }
}
