//! How long a lease is still ours.

use std::time::Duration;

use tokio::time::Instant;

use crate::types::UnixMs;

/// How long a lease is still ours, by a clock that can't jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseClock {
    /// Before the call that leased: the lease began then or later, so we never believe in it for too long.
    pub(super) called: Instant,
    /// How long it lasts.
    pub(super) length: Duration,
    /// When the answer came, and what the server's clock had said.
    pub(super) answered: Instant,
    pub(super) server_now: UnixMs,
}

impl LeaseClock {
    /// How long it lasts from now.
    pub(super) fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.called.elapsed())
    }

    /// The latest moment at which an attempt may start that takes as long as this; `None` when that is past.
    pub(super) fn start_by(&self, timeout: Duration) -> Option<Instant> {
        self.remaining().checked_sub(timeout).map(|left| Instant::now() + left)
    }

    /// How long ago it ran out.
    pub(super) fn lapsed(&self) -> Duration {
        self.called.elapsed().saturating_sub(self.length)
    }

    /// Server time now, as far as we can tell without asking.
    pub(super) fn now(&self) -> UnixMs {
        self.server_now.after(self.answered.elapsed())
    }
}
