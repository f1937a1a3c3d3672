//! An estimate of the server's current time, from its latest reply.
//!
//! The estimate does not read this machine's clock. Callers use it to choose what to ask for; the server decides with
//! its own clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// The server's clock according to its latest reply. All callers of that server share it.
#[derive(Debug)]
pub struct ServerClock {
    started: Instant,
    /// The server's time at `started`, Unix milliseconds.
    at_start_ms: AtomicI64,
}

impl Default for ServerClock {
    /// A clock that no reply has set yet: it shows 1970.
    fn default() -> Self {
        Self { started: Instant::now(), at_start_ms: AtomicI64::new(0) }
    }
}

impl ServerClock {
    /// The server's estimated current time, Unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.at_start_ms.load(Ordering::Relaxed) + self.elapsed_ms()
    }

    /// The same, if a reply has set it.
    pub fn told_now(&self) -> Option<i64> {
        (self.at_start_ms.load(Ordering::Relaxed) != 0).then(|| self.now_ms())
    }

    /// Stores the server's current time, Unix milliseconds, from a reply.
    pub fn set(&self, now_ms: i64) {
        self.at_start_ms.store(now_ms - self.elapsed_ms(), Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
