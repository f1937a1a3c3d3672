//! The cap of one contact: how many messages may leave, where they are counted and by what.

use redis::RedisResult;

use crate::throttle::{FixedWindow, RateDecision, SlidingWindow};
use crate::types::{Rate, Units};
use crate::wire::RedisClient;

/// The cap that holds for messages to one contact.
#[derive(Debug, Clone)]
pub struct ContactCap {
    /// So many messages in a window.
    pub rate: Rate,
    /// What counts them.
    pub limiter: CapLimiter,
    /// Where they are counted.
    pub key: String,
    /// The key as a log may show it: without the destination.
    pub shown_as: String,
}

/// What counts the messages of a cap.
#[derive(Debug, Clone, Copy)]
pub enum CapLimiter {
    /// From the first message of a window to its end.
    Fixed(FixedWindow),
    /// In any window.
    Sliding(SlidingWindow),
}

impl CapLimiter {
    /// Counts one message, if there is room.
    pub(super) async fn take(self, client: &RedisClient, key: &str) -> RedisResult<RateDecision> {
        match self {
            Self::Fixed(limiter) => limiter.take(client, key, Units::ONE).await,
            Self::Sliding(limiter) => limiter.take(client, key, Units::ONE).await,
        }
    }
}
