//! Receivers that closed a connection which they seemed to keep.
//!
//! A request that meets the close may have been taken, so it is not sent again before its time: the attempt has failed.
//! For a while such a receiver gets a connection for each request, so that this happens to it seldom.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a receiver gets a connection for each request.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// The most that are remembered; then all are forgotten, which costs each an attempt at most.
const RECEIVERS_MAX: usize = 10_000;

/// Origins of such receivers, and when they closed last.
#[derive(Debug, Default)]
pub(super) struct ClosingReceivers(Mutex<HashMap<String, Instant>>);

impl ClosingReceivers {
    /// Whether a connection to this origin may be kept.
    pub(super) fn lets_keep(&self, origin: &str) -> bool {
        let mut closed = self.closed();
        let is_over = closed.get(origin).is_some_and(|at| at.elapsed() >= REMEMBERED_FOR);
        if is_over {
            closed.remove(origin);
        }
        !closed.contains_key(origin)
    }

    /// It closed one just now.
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

    /// Memory stays bounded, whoever closes.
    #[test]
    fn a_bounded_number_is_remembered() {
        let receivers = ClosingReceivers::default();
        assert!(receivers.lets_keep("http://a.test"));
        (0..=RECEIVERS_MAX).for_each(|n| receivers.note(format!("http://{n}.test")));
        assert!(!receivers.lets_keep(&format!("http://{RECEIVERS_MAX}.test")));
        assert!(receivers.closed().len() <= RECEIVERS_MAX);
    }
}
