//! Caps: whether a message may leave now, and when to ask again where it may not.
//!
//! Which cap holds for which contact is the channel's to say; here it is asked. The limiters of [`crate::throttle`]
//! keep their counts in Redis, so that a cap holds for all daemons together. Never sends and never waits. A cap is a
//! promise: where Redis can't be asked, nothing leaves. Read next: [`super::retry_spacing`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use redis::{RedisError, RedisResult};
use tokio::time::Instant;

use super::channel::NotificationChannel;
use super::registry::definition;
use super::retry_spacing::{RefusedByCap, RetrySpacing, jitter_max};
use super::set::Channels;
use crate::contacts::Contact;
use crate::throttle::{Admission, FixedWindow, RateDecision, SlidingWindow};
use crate::types::{Channel, Keys, LOG_INTERVAL, LogLimiter, Rate, Units, duration, meters};
use crate::wire::backoff::BackoffPolicy;
use crate::wire::{ErrorKind, RedisClient, error_kind};

/// Asks the limiters.
#[derive(Debug)]
pub struct Caps {
    client: Arc<RedisClient>,
    keys: Keys,
    spacing: Mutex<RetrySpacing>,
    log_limiter: LogLimiter<LogSubject>,
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
        Self { client, keys, spacing: Mutex::default(), log_limiter: LogLimiter::new(LOG_INTERVAL) }
    }

    /// Counts one message to this contact, if its cap admits it; always, if it has no cap. A message that was counted
    /// stays counted, whatever becomes of it. Not repeatable: a second call counts another.
    pub async fn take(&self, channels: &Channels, contact: &Contact) -> CapDecision {
        let channel = contact.channel();
        let rate = channels.get(channel).and_then(NotificationChannel::cap);
        let Some((rate, definition)) = rate.zip(definition(channel)) else { return CapDecision::Allowed };
        let destination = match definition.origin.map(|origin| origin(contact.address())) {
            None => None,
            Some(Some(destination)) => Some(destination),
            // An attempt says what is wrong with such an address.
            Some(None) => return CapDecision::Allowed,
        };
        let key = self.keys.cap(channel, destination.as_deref());
        let shown_as = self.keys.cap(channel, destination.as_ref().map(|_| "*"));
        let asked = match destination {
            None => FixedWindow::new(rate).take(&self.client, &key, Units::ONE).await,
            Some(_) => {
                let limiter = SlidingWindow::new(rate).expect("the settings allow no more than can be counted");
                limiter.take(&self.client, &key, Units::ONE).await
            }
        };
        self.decide(&Cap { channel, rate, key: &key, shown_as: &shown_as }, asked)
    }

    fn decide(&self, cap: &Cap<'_>, asked: RedisResult<RateDecision>) -> CapDecision {
        let now = Instant::now();
        let admission = match asked {
            Ok(decision) => decision.admission,
            Err(error) => {
                self.log_error(cap, &error, now);
                return CapDecision::Unknown { retry_after: BackoffPolicy::RECONNECT.max_interval };
            }
        };
        let Admission::Rejected { retry_after } = admission else { return CapDecision::Allowed };
        // One unit is never more than the limit, so the limiter always knows when.
        let refused = RefusedByCap { key: cap.key, rate: cap.rate, retry_after: retry_after.unwrap_or_default(), now };
        let wait = self.spacing.lock().unwrap_or_else(PoisonError::into_inner).wait(refused);
        if self.log_limiter.admit(LogSubject::Exhausted(cap.channel), now.into_std()).is_some() {
            tracing::info!(channel = cap.channel.as_str(), cap = %cap.rate, "a cap is exhausted: deliveries wait");
        }
        let jitter = jitter_max(cap.rate).mul_f64(rand::random());
        CapDecision::Exhausted { retry_after: duration::whole_ms(wait + jitter) }
    }

    /// Never the key itself, which may hold the destination: the deliveries that wait lead to their contact.
    fn log_error(&self, cap: &Cap<'_>, error: &RedisError, now: Instant) {
        counter!(meters::REDIS_ERRORS, "operation" => "throttle").increment(1);
        let kind = error_kind(error);
        if self.log_limiter.admit(LogSubject::Error(cap.channel, kind), now.into_std()).is_none() {
            return;
        }
        let (channel, error_kind) = (cap.channel.as_str(), kind.as_str());
        if kind == ErrorKind::WrongType {
            tracing::error!(channel, keys = cap.shown_as, %error, "the key of a cap holds something else: its deliveries wait until it is mended");
        } else {
            tracing::error!(channel, error_kind, %error, "redis does not answer whether a cap is exhausted: nothing is sent under it; trying again");
        }
    }
}

/// The cap that holds for messages to one contact.
struct Cap<'a> {
    channel: Channel,
    rate: Rate,
    /// Where they are counted.
    key: &'a str,
    /// The key as a log may show it: without the destination.
    shown_as: &'a str,
}

/// What is logged, once a minute for each channel and kind of error: it concerns every delivery that is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogSubject {
    Exhausted(Channel),
    Error(Channel, ErrorKind),
}
