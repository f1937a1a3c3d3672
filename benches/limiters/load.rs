//! The same calls for every contender: each key is called so often, and is admitted half of the times.

use std::time::Duration;

use quotabell_throttle::Rate;

use crate::Size;

/// Calls on their way at any moment.
pub const AT_ONCE: usize = 64;
/// Calls of each key in a round.
pub const CALLS_A_KEY: usize = 20;
/// How many of them are admitted, where the limiter admits more than one.
pub const LIMIT: usize = 10;
/// Longer than any round, so that nothing comes back within one.
pub const WINDOW: Duration = Duration::from_secs(3600);

/// A round of one contender.
#[derive(Debug, Clone)]
pub struct Load {
    /// Begins every key; another one each time, so that each contender and round begins with nothing.
    pub prefix: String,
    /// Keys, called in turn.
    pub keys: usize,
}

impl Load {
    /// A load of that size.
    pub fn new(size: Size, prefix: String) -> Self {
        Self { prefix, keys: size.pick(5_000, 100) }
    }

    /// Calls of all keys.
    pub const fn calls(&self) -> usize {
        self.keys * CALLS_A_KEY
    }

    /// The key of this call.
    pub fn key(&self, number: usize) -> String {
        format!("{}:{}", self.prefix, number % self.keys)
    }
}

/// The rate of limiters that count.
pub fn rate() -> Rate {
    Rate::new(LIMIT as u64, WINDOW).expect("whole milliseconds, less than a month")
}
