//! The caps of the sender: whether a message may leave now, and when to ask again where it may not.
//!
//! Owns which cap holds for which contact, and says trouble once. The one file of the sender that talks to Redis: it asks the
//! limiters of [`crate::throttle`], which keep what they count there, so that a cap holds for all daemons together. Never sends and
//! never waits. A cap is a promise: where Redis can't be asked, nothing leaves. Read next: [`super::turns`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use redis::{RedisError, RedisResult};
use tokio::time::Instant;
use url::{Host, Origin, Url};

use super::next_due::whole_ms;
use super::turns::{Refused, Turns, jitter_max};
use crate::contacts::{Contact, Endpoint};
use crate::throttle::{Admission, FixedWindow, RateDecision, SlidingWindow, TooManyMembers};
use crate::transport::{EmailConfig, WebhookConfig};
use crate::types::{Channel, Keys, Rate, Units, meters};
use crate::wire::backoff::BackoffPolicy;
use crate::wire::{ErrorKind, RedisClient, error_kind};

/// The window of `email.per_minute`.
const MINUTE: Duration = Duration::from_secs(60);
/// The same thing is logged at most this often: a cap that is full and a key that is broken concern every delivery they hold back.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Asks the limiters.
#[derive(Debug)]
pub struct Throttle {
    client: Arc<RedisClient>,
    keys: Keys,
    per_destination: Option<Cap<SlidingWindow>>,
    per_minute: Option<Cap<FixedWindow>>,
    turns: Mutex<Turns>,
    told: Mutex<Vec<Told>>,
}

#[derive(Debug, Clone, Copy)]
struct Cap<L> {
    rate: Rate,
    limiter: L,
}

/// Whether a message may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It may: its place is taken.
    Given,
    /// It may not.
    Full {
        /// When to ask again, jitter included.
        again: Duration,
    },
    /// Redis could not be asked, so it may not.
    Unknown {
        /// When to ask again.
        again: Duration,
    },
}

impl Throttle {
    /// The caps of these settings, for the partition of these keys. Connects nowhere.
    ///
    /// # Errors
    ///
    /// [`TooManyMembers`] for a `per_destination` that the check of the configuration refuses.
    pub fn new(
        client: Arc<RedisClient>,
        keys: Keys,
        webhook: &WebhookConfig,
        email: &EmailConfig,
    ) -> Result<Self, TooManyMembers> {
        let sliding = |rate| SlidingWindow::new(rate).map(|limiter| Cap { rate, limiter });
        let fixed = |units| {
            let rate = Rate::new(units, MINUTE).expect("a minute is a legal window");
            Cap { rate, limiter: FixedWindow::new(rate) }
        };
        Ok(Self {
            client,
            keys,
            per_destination: webhook.per_destination.map(sliding).transpose()?,
            per_minute: email.per_minute.map(fixed),
            turns: Mutex::default(),
            told: Mutex::default(),
        })
    }

    /// Takes a place for one message to this contact, if its cap has one; always, if it has no cap. A place that was taken is not
    /// given back, whatever becomes of the message. Not repeatable: a second call takes another.
    pub async fn room_for(&self, contact: &Contact) -> Room {
        let channel = contact.channel();
        let (key, rate, asked) = match &contact.endpoint {
            Endpoint::Email { .. } => {
                let Some(Cap { rate, limiter }) = self.per_minute else { return Room::Given };
                let key = self.keys.email_cap();
                let asked = limiter.take(&self.client, &key, Units::ONE).await;
                (key, rate, asked)
            }
            Endpoint::Webhook { url, .. } => {
                let Some(Cap { rate, limiter }) = self.per_destination else { return Room::Given };
                // What is no destination is the transport's to judge.
                let Some(origin) = origin(url) else { return Room::Given };
                let key = self.keys.webhook_cap(&origin);
                let asked = limiter.take(&self.client, &key, Units::ONE).await;
                (key, rate, asked)
            }
        };
        self.judge(channel, &key, rate, asked)
    }

    fn judge(&self, channel: Channel, key: &str, rate: Rate, asked: RedisResult<RateDecision>) -> Room {
        let now = Instant::now();
        let admission = match asked {
            Ok(decision) => decision.admission,
            Err(error) => {
                self.say_trouble(channel, &error, now);
                return Room::Unknown { again: BackoffPolicy::RECONNECT.max_interval };
            }
        };
        let Admission::Rejected { retry_after } = admission else { return Room::Given };
        // One unit is never more than the limit, so the limiter always knows when.
        let refused = Refused { key, rate, retry_after: retry_after.unwrap_or_default(), now };
        let wait = self.turns.lock().unwrap_or_else(PoisonError::into_inner).wait(refused);
        if self.is_news(What::Full(channel), now) {
            tracing::info!(channel = channel.as_str(), cap = %rate, "a cap has no room: deliveries wait for their turn");
        }
        Room::Full { again: whole_ms(wait + jitter_max(rate).mul_f64(rand::random())) }
    }

    /// No key of a webhook's cap, which holds the destination: the deliveries that wait lead to their contact.
    fn say_trouble(&self, channel: Channel, error: &RedisError, now: Instant) {
        counter!(meters::REDIS_ERRORS, "operation" => "throttle").increment(1);
        let kind = error_kind(error);
        if !self.is_news(What::Trouble(channel, kind), now) {
            return;
        }
        let (channel, kind_name) = (channel.as_str(), kind.as_str());
        if kind == ErrorKind::WrongType {
            let keys = match channel {
                "email" => self.keys.email_cap(),
                _ => self.keys.webhook_cap("*"),
            };
            tracing::error!(channel, keys, %error, "the key of a cap holds something else: its deliveries wait until it is mended");
        } else {
            tracing::error!(channel, error_kind = kind_name, %error, "redis does not answer whether a cap has room: nothing is sent under it; trying again");
        }
    }

    /// Whether this was not told within the last minute; then it counts as told now.
    fn is_news(&self, what: What, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // At most one for each channel and kind of trouble.
        match told.iter_mut().find(|told| told.what == what) {
            Some(told) if now.duration_since(told.at) < TOLD_EVERY => return false,
            Some(told) => told.at = now,
            None => told.push(Told { what, at: now }),
        }
        true
    }
}

/// Something that was logged.
#[derive(Debug)]
struct Told {
    what: What,
    at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Full(Channel),
    Trouble(Channel, ErrorKind),
}

/// The destination of a webhook: scheme, host and port, as every spelling of them comes out of the parser. Two contacts at one
/// receiver have one. `None`: the URL is malformed, or its scheme has no hosts.
fn origin(url: &str) -> Option<String> {
    match Url::parse(url).ok()?.origin() {
        // The dot of the root names the same host.
        Origin::Tuple(scheme, Host::Domain(name), port) => {
            let host = Host::Domain(name.trim_end_matches('.').to_owned());
            Some(Origin::Tuple(scheme, host, port).ascii_serialization())
        }
        origin @ Origin::Tuple(..) => Some(origin.ascii_serialization()),
        Origin::Opaque(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two spellings of one receiver must share its cap, two receivers must not.
    #[test]
    fn a_destination_is_scheme_host_and_port() {
        let same = [
            "https://b.test/a",
            "https://B.test:443/b?c",
            "HTTPS://b.test",
            "https://u:p@b.test/",
            "https://b.test./c",
        ];
        for url in same {
            assert_eq!(origin(url).as_deref(), Some("https://b.test"), "{url}");
        }
        assert_eq!(origin("http://2130706433:8080/").as_deref(), Some("http://127.0.0.1:8080"));
        let others = ["http://b.test/", "https://b.test:8443/", "https://a.b.test/"].map(origin);
        assert!(others.iter().flatten().all(|other| other != "https://b.test") && others.iter().flatten().count() == 3);
    }

    /// The transport says what is wrong with them.
    #[test]
    fn what_is_no_url_has_no_destination() {
        for url in ["", "b.test", "mailto:a@b.test", "https://", "http://[::1", "data:text/plain,x"] {
            assert_eq!(origin(url), None, "{url}");
        }
    }
}
