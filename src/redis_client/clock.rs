//! What the server's clock shows by now, as far as its replies have told.
//!
//! A guess, made without looking at this machine's clock. It may choose what to ask about; what it asks is for the
//! server to decide.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// The server's clock as its last reply told it. Shared by all who talk to that server.
#[derive(Debug)]
pub struct ServerClock {
    started: Instant,
    /// What it showed when `started` was now, Unix milliseconds.
    at_start_ms: AtomicI64,
}

impl Default for ServerClock {
    /// A clock that no reply has set yet: it shows 1970.
    fn default() -> Self {
        Self { started: Instant::now(), at_start_ms: AtomicI64::new(0) }
    }
}

impl ServerClock {
    /// What it shows now, Unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.at_start_ms.load(Ordering::Relaxed) + self.elapsed_ms()
    }

    /// The server has just said what it shows, Unix milliseconds.
    pub fn set(&self, now_ms: i64) {
        self.at_start_ms.store(now_ms - self.elapsed_ms(), Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
