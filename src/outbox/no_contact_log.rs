//! Alerts that nobody can be told of, said once a minute with their number: a plan whose customers have no contacts
//! must not fill a disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::types::{Alert, LOG_INTERVAL, LogLimiter};

/// Counts such alerts, and says how many there were.
#[derive(Debug)]
pub(super) struct NoContactLog {
    limiter: LogLimiter,
    /// Since it was said last.
    alerts: AtomicU64,
}

impl Default for NoContactLog {
    fn default() -> Self {
        Self { limiter: LogLimiter::new(LOG_INTERVAL), alerts: AtomicU64::new(0) }
    }
}

impl NoContactLog {
    /// One more; `waiting` are all that wait now.
    pub(super) fn waits(&self, alert: &Alert, waiting: u64) {
        let alerts = self.alerts.fetch_add(1, Ordering::Relaxed) + 1;
        if self.limiter.admit((), Instant::now()).is_some() {
            self.alerts.fetch_sub(alerts, Ordering::Relaxed);
            let Alert { id, subject, .. } = alert;
            tracing::error!(alerts, waiting, last_subject = %subject, last_alert = %id, "no contact is known: alerts wait until there is one");
        }
    }
}
