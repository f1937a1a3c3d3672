//! A log line when Redis stops answering, and once a minute until it answers again.

use std::time::{Duration, Instant};

use super::error::{OutboxError, chain};
use crate::types::{LOG_INTERVAL, LogLimiter};
use crate::wire::ErrorKind;
use crate::wire::backoff::{Backoff, BackoffPolicy};

/// Counts the failures of one loop in a row, says how long to wait, and logs them.
#[derive(Debug)]
pub(super) struct RedisOutage {
    /// Which loop, for the log.
    task: &'static str,
    retries: Backoff,
    logs: LogLimiter<ErrorKind>,
}

impl RedisOutage {
    pub(super) const fn new(task: &'static str) -> Self {
        Self { task, retries: Backoff::new(BackoffPolicy::RECONNECT), logs: LogLimiter::new(LOG_INTERVAL) }
    }

    /// One more failure: the delay before the next try.
    pub(super) fn failed(&mut self, error: &OutboxError) -> Duration {
        let kind = error.error_kind();
        kind.count(error.label());
        if self.logs.admit(kind, Instant::now()).is_some() {
            let task = self.task;
            let error = chain(error);
            if kind == ErrorKind::Full {
                tracing::error!(
                    task,
                    error,
                    "redis memory is full: nothing is sent until memory is free; trying again"
                );
            } else {
                tracing::error!(
                    task,
                    error,
                    error_kind = kind.as_str(),
                    "redis does not serve deliveries; trying again"
                );
            }
        }
        self.retries.next_delay()
    }

    /// It worked.
    pub(super) fn worked(&mut self) {
        if self.retries.failures() > 0 {
            tracing::info!(task = self.task, failures = self.retries.failures(), "redis serves deliveries again");
            self.retries.reset();
            self.logs.clear();
        }
    }
}
