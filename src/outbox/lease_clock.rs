//! The remaining time of a lease.

use std::time::Duration;

use tokio::time::Instant;

use crate::types::UnixMs;

/// The remaining time of a lease, by a monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseClock {
    /// Time before the call: the lease began then or later, so the remaining time is never overestimated.
    pub(super) called: Instant,
    /// Length of the lease.
    pub(super) length: Duration,
    /// Time of the reply, which contained `server_now`.
    pub(super) answered: Instant,
    pub(super) server_now: UnixMs,
}

impl LeaseClock {
    /// Remaining time of the lease.
    pub(super) fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.called.elapsed())
    }

    /// The latest start of an attempt with this timeout; `None` if that is in the past.
    pub(super) fn start_by(&self, timeout: Duration) -> Option<Instant> {
        self.remaining().checked_sub(timeout).map(|left| Instant::now() + left)
    }

    /// Time since the end of the lease.
    pub(super) fn lapsed(&self) -> Duration {
        self.called.elapsed().saturating_sub(self.length)
    }

    /// Current server time, estimated without asking.
    pub(super) fn now(&self) -> UnixMs {
        self.server_now.after(self.answered.elapsed())
    }
}
