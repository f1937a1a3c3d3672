//! Caps: whether a message may leave now, and when to ask again where it may not.
//!
//! Which cap holds for which contact is the channel's to say; here it is asked. The limiters of `quotabell-throttle`
//! keep their counts in Redis, so that a cap holds for all daemons together. Never sends and never waits. A cap is a
//! promise: where Redis can't be asked, nothing leaves. Read next: [`super::cap_retry_pacer`].

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

/// Asks the limiters.
#[derive(Debug)]
pub struct Caps {
    client: Arc<RedisClient>,
    keys: Keys,
    pacer: Mutex<CapRetryPacer>,
}

/// Whether a message may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapDecision {
    /// It may: it has been counted.
    Allowed,
    /// It may not: the cap is used up.
    Exhausted {
        /// When to ask again, jitter included.
        retry_after: Duration,
    },
    /// Redis could not be asked, so it may not.
    Unknown {
        /// When to ask again.
        retry_after: Duration,
    },
}

impl Caps {
    /// Caps for the partition of these keys. Connects nowhere.
    pub fn new(client: Arc<RedisClient>, keys: Keys) -> Self {
        Self { client, keys, pacer: Mutex::default() }
    }

    /// Counts one message to this contact, if its cap admits it; always, if it has no cap. A message that was counted
    /// stays counted, whatever becomes of it. Not repeatable: a second call counts another.
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
        // One unit is never more than the limit, so the limiter always knows when.
        let throttled =
            ThrottledDelivery { key: &cap.key, rate: cap.rate, retry_after: retry_after.unwrap_or_default(), now };
        let wait = self.pacer.lock().unwrap_or_else(PoisonError::into_inner).wait(throttled);
        tracing::info!(
            name: ONCE_A_MINUTE, channel = cap.channel.as_str(), cap = %cap.rate, "a cap is exhausted: deliveries wait"
        );
        let jitter = jitter_max(cap.rate).mul_f64(rand::random());
        CapDecision::Exhausted { retry_after: duration::whole_ms(wait + jitter) }
    }

    /// Never the key itself, which may hold the destination: the deliveries that wait lead to their contact.
    fn log_error(&self, cap: &Cap, error: &RedisError) {
        let kind = error_kind(error);
        kind.count("throttle");
        let (channel, error_kind) = (cap.channel.as_str(), kind.as_str());
        if kind == ErrorKind::WrongType {
            tracing::error!(name: ONCE_A_MINUTE, channel, keys = cap.shown_as(&self.keys), %error, "the key of a cap holds something else: its deliveries wait until it is mended");
        } else {
            tracing::error!(name: ONCE_A_MINUTE, channel, error_kind, %error, "redis does not answer whether a cap is exhausted: nothing is sent under it; trying again");
        }
    }
}

/// The cap that holds for messages to one destination.
#[derive(Debug)]
pub struct Cap {
    channel: Channel,
    rate: Rate,
    /// Where they are counted.
    key: String,
    limiter: CapLimiter,
}

/// How messages under a cap are counted.
#[derive(Debug, Clone, Copy)]
enum CapLimiter {
    /// All of the channel together.
    Channel(FixedWindow),
    /// Those to each destination by themselves.
    Destination(SlidingWindow),
}

impl Cap {
    /// The cap of a channel, for what goes to this destination; `None` where none holds.
    pub fn for_destination(
        channels: &Channels,
        keys: &Keys,
        channel: Channel,
        destination: &Destination,
    ) -> Option<Self> {
        let rate = channels.cap(channel)?;
        if definition(channel)?.server_absence.is_some() {
            let limiter = CapLimiter::Channel(FixedWindow::new(rate.into()));
            return Some(Self { channel, rate, key: keys.cap(channel, None), limiter });
        }
        // An attempt says what is wrong with an address that names no origin.
        if *destination == Destination::derive(channel, None) {
            return None;
        }
        let limiter = SlidingWindow::new(rate.into()).expect("the settings allow no more than can be counted");
        let (key, limiter) = (keys.cap(channel, Some(destination.as_str())), CapLimiter::Destination(limiter));
        Some(Self { channel, rate, key, limiter })
    }

    /// How many messages it lets leave.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How long until it lets a message leave, if nothing else does; `None` where it does now. Takes nothing.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said.
    pub async fn exhausted_for(&self, client: &RedisClient) -> RedisResult<Option<Duration>> {
        Ok(match self.call(client, 0).await?.admission {
            Admission::Rejected { retry_after } => retry_after,
            Admission::Admitted => None,
        })
    }

    /// Takes these units; 0 asks for one and takes none.
    async fn call(&self, client: &RedisClient, units: u64) -> RedisResult<RateDecision> {
        match &self.limiter {
            CapLimiter::Channel(limiter) => limiter.take(&mut client.connection(), &self.key, units).await,
            CapLimiter::Destination(limiter) => limiter.take(&mut client.connection(), &self.key, units).await,
        }
    }

    /// The key as a log may show it: without the destination.
    fn shown_as(&self, keys: &Keys) -> String {
        let any = matches!(self.limiter, CapLimiter::Destination(_)).then_some("*");
        keys.cap(self.channel, any)
    }
}
