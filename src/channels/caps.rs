//! Caps: whether a message may be sent now, and if not, when to ask again.
//!
//! The settings of a channel define its cap. The limiters of `quotabell-throttle` keep their counts in Redis, so all
//! daemons together stay within a cap. This file never sends and never waits. A cap is a promise: if Redis does not
//! answer, nothing is sent. Read next: [`super::cap_retry_pacer`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio::time::Instant;

use super::cap_retry_pacer::{CapRetryPacer, ThrottledDelivery, jitter_max};
use super::registry::{Channels, definition, destination};
use crate::contacts::Contact;
use crate::redis_client::backoff::BackoffPolicy;
use crate::redis_client::{ErrorKind, RedisClient, error_kind};
use crate::types::{Channel, Destination, Keys, ONCE_A_MINUTE, Rate, duration};
use quotabell_throttle::{Admission, FixedWindow, RateDecision, SlidingWindow};

/// Counts messages, and refuses those that exceed a cap.
#[derive(Debug)]
pub struct Caps {
    client: Arc<RedisClient>,
    keys: Keys,
    pacer: Mutex<CapRetryPacer>,
}

/// Whether a message may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapDecision {
    /// The message may be sent, and was counted.
    Allowed,
    /// The message may not be sent, because the cap is exhausted.
    Exhausted {
        /// When to ask again, including jitter.
        retry_after: Duration,
    },
    /// The message may not be sent, because Redis did not answer.
    Unknown {
        /// When to ask again.
        retry_after: Duration,
    },
}

impl Caps {
    /// Caps for the partition of these keys. Does not connect.
    pub fn new(client: Arc<RedisClient>, keys: Keys) -> Self {
        Self { client, keys, pacer: Mutex::default() }
    }

    /// Counts one message to this contact, if the cap allows it. A contact without a cap may always get the message.
    /// The message stays counted even if sending it fails. Not repeatable: a second call counts another message.
    pub async fn decide_attempt(&self, channels: &Channels, contact: &Contact) -> CapDecision {
        match Cap::for_destination(channels, &self.keys, contact.channel(), &destination(contact)) {
            Some(cap) => self.decide(&cap, cap.call(&self.client, 1).await),
            None => CapDecision::Allowed,
        }
    }

    fn decide(&self, cap: &Cap, asked: RedisResult<RateDecision>) -> CapDecision {
        let now = Instant::now();
        let admission = match asked {
            Ok(decision) => decision.admission,
            Err(error) => {
                self.log_error(cap, &error);
                return CapDecision::Unknown { retry_after: BackoffPolicy::RECONNECT.max_interval };
            }
        };
        let Admission::Rejected { retry_after } = admission else { return CapDecision::Allowed };
        // One unit is never more than the limit, so the limiter always returns a time.
        let throttled =
            ThrottledDelivery { key: &cap.key, rate: cap.rate, retry_after: retry_after.unwrap_or_default(), now };
        let wait = self.pacer.lock().unwrap_or_else(PoisonError::into_inner).wait(throttled);
        tracing::info!(
            name: ONCE_A_MINUTE, channel = cap.channel.as_str(), cap = %cap.rate, "a cap is exhausted: deliveries wait"
        );
        let jitter = jitter_max(cap.rate).mul_f64(rand::random());
        CapDecision::Exhausted { retry_after: duration::whole_ms(wait + jitter) }
    }

    /// Does not log the key, which may contain the destination. The waiting deliveries name their contact.
    fn log_error(&self, cap: &Cap, error: &RedisError) {
        let kind = error_kind(error);
        kind.count("throttle");
        let (channel, error_kind) = (cap.channel.as_str(), kind.as_str());
        if kind == ErrorKind::WrongType {
            let keys = self.keys.cap(cap.channel, (!cap.is_of_channel).then_some("*"));
            tracing::error!(name: ONCE_A_MINUTE, channel, keys, %error,
                "the key of a cap holds something other than a count: \
                 its deliveries wait until somebody deletes the key");
        } else {
            tracing::error!(name: ONCE_A_MINUTE, channel, error_kind, %error, "redis does not answer whether a cap is exhausted: its deliveries wait; trying again");
        }
    }
}

/// The cap on messages to one destination.
#[derive(Debug)]
pub struct Cap {
    channel: Channel,
    rate: Rate,
    /// The key of the counter.
    key: String,
    /// Whether all messages of the channel are counted together, because they go through one server.
    is_of_channel: bool,
}

impl Cap {
    /// The cap of a channel for messages to this destination; `None` if there is no cap.
    pub fn for_destination(
        channels: &Channels,
        keys: &Keys,
        channel: Channel,
        destination: &Destination,
    ) -> Option<Self> {
        let rate = channels.cap(channel)?;
        let is_of_channel = definition(channel)?.server_absence.is_some();
        // An address without an origin has no cap: an attempt reports what is wrong with it.
        if !is_of_channel && *destination == Destination::derive(channel, None) {
            return None;
        }
        let key = keys.cap(channel, (!is_of_channel).then_some(destination.as_str()));
        Some(Self { channel, rate, key, is_of_channel })
    }

    /// The allowed number of messages and the window.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How long until the cap allows another message, if none is sent meanwhile; `None` if it allows one now. Counts
    /// nothing.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn exhausted_for(&self, client: &RedisClient) -> RedisResult<Option<Duration>> {
        Ok(match self.call(client, 0).await?.admission {
            Admission::Rejected { retry_after } => retry_after,
            Admission::Admitted => None,
        })
    }

    /// Counts these units; 0 asks for one unit and counts none.
    async fn call(&self, client: &RedisClient, units: u64) -> RedisResult<RateDecision> {
        let (mut connection, rate) = (client.connection(), self.rate.into());
        if self.is_of_channel {
            return FixedWindow::new(rate).take(&mut connection, &self.key, units).await;
        }
        let limiter = SlidingWindow::new(rate).expect("the settings allow no more than can be counted");
        limiter.take(&mut connection, &self.key, units).await
    }
}
