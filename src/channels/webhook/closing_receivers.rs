//! Receivers that closed a connection that seemed to be kept open.
//!
//! A request during the close may have been accepted, so it is not repeated at once: the attempt has failed. For a
//! while such a receiver gets a new connection for each request, so that this is rare.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a receiver gets a new connection for each request.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Maximum number of receivers. If there are more, all are forgotten, which costs each of them one attempt at most.
const RECEIVERS_MAX: usize = 10_000;

/// Origins of such receivers, and when they last closed a connection.
#[derive(Debug, Default)]
pub(super) struct ClosingReceivers(Mutex<HashMap<String, Instant>>);

impl ClosingReceivers {
    /// Whether a connection to this origin may be kept.
    pub(super) fn lets_keep(&self, origin: &str) -> bool {
        self.closed().get(origin).is_none_or(|at| at.elapsed() >= REMEMBERED_FOR)
    }

    /// Notes that the receiver has closed a connection.
    pub(super) fn note(&self, origin: String) {
        let mut closed = self.closed();
        if closed.len() >= RECEIVERS_MAX {
            closed.clear();
        }
        closed.insert(origin, Instant::now());
    }

    fn closed(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory stays bounded, even if all receivers close connections.
    #[test]
    fn a_bounded_number_is_remembered() {
        let receivers = ClosingReceivers::default();
        assert!(receivers.lets_keep("http://a.test"));
        (0..=RECEIVERS_MAX).for_each(|n| receivers.note(format!("http://{n}.test")));
        assert!(!receivers.lets_keep(&format!("http://{RECEIVERS_MAX}.test")));
        assert!(receivers.closed().len() <= RECEIVERS_MAX);
    }
}
