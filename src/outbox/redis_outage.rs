//! One log line when Redis stops answering, one when it answers again.

use std::time::Duration;

use metrics::counter;

use super::error::{OutboxError, chain};
use crate::types::meters;
use crate::wire::ErrorKind;
use crate::wire::backoff::{Retries, Schedule};

/// Counts the failures of one loop in a row, says how long to wait, and logs each outage once.
#[derive(Debug)]
pub(super) struct RedisOutage {
    retries: Retries,
    fault: Option<ErrorKind>,
}

impl RedisOutage {
    pub(super) const fn new() -> Self {
        Self { retries: Retries::new(Schedule::RECONNECT), fault: None }
    }

    /// One more failure: the delay before the next try. Logged when it is the first one of its kind in a row.
    pub(super) fn failed(&mut self, error: &OutboxError) -> Duration {
        counter!(meters::REDIS_ERRORS, "operation" => error.label()).increment(1);
        let fault = error.error_kind();
        if self.fault.replace(fault) != Some(fault) {
            let error = chain(error);
            if fault == ErrorKind::Full {
                tracing::error!(error, "redis memory is full: nothing is sent until there is room; trying again");
            } else {
                tracing::error!(error, fault = fault.as_str(), "redis does not serve deliveries; trying again");
            }
        }
        self.retries.failed()
    }

    /// It worked.
    pub(super) fn worked(&mut self) {
        if self.fault.take().is_some() {
            tracing::info!(failures = self.retries.failures(), "redis serves deliveries again");
            self.retries.worked();
        }
    }
}
