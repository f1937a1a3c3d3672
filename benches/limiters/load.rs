//! The calls that every contender makes: the same number for each key, half of them admitted.

use std::time::Duration;

use quotabell_throttle::Rate;

use crate::Size;

/// Number of concurrent calls.
pub const AT_ONCE: usize = 64;
/// Number of calls of each key in a round.
pub const CALLS_A_KEY: usize = 20;
/// Number of admitted calls of each key, if the limiter admits more than one.
pub const LIMIT: usize = 10;
/// Longer than any round, so that no unit returns during a round.
pub const WINDOW: Duration = Duration::from_secs(3600);

/// A round of one contender.
#[derive(Debug, Clone)]
pub struct Load {
    /// Prefix of every key; different for each contender and round, so that each starts with unused keys.
    pub prefix: String,
    /// Number of keys, which take turns.
    pub keys: usize,
}

impl Load {
    /// A load of this size.
    pub fn new(size: Size, prefix: String) -> Self {
        Self { prefix, keys: size.pick(5_000, 100) }
    }

    /// Number of calls of all keys.
    pub const fn calls(&self) -> usize {
        self.keys * CALLS_A_KEY
    }

    /// The key of this call.
    pub fn key(&self, number: usize) -> String {
        format!("{}:{}", self.prefix, number % self.keys)
    }
}

/// The rate of limiters that have one.
pub fn rate() -> Rate {
    Rate::new(LIMIT as u64, WINDOW).expect("whole milliseconds, less than a month")
}
