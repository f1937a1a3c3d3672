//! Asks addresses for their consent: works off what the [`super::Desk`] has taken.
//!
//! What waits is in memory: a daemon that ends before it is sent loses it, and whoever waits for the message asks for another. No
//! message is tried again by itself, since each carries a password that is soon worthless.

use std::sync::Arc;

use redis::RedisResult;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::array::{self, Unverified};
use super::claim::{Claim, Claimed};
use super::desk::{Consented, consent};
use super::password::{self, Password};
use super::{Candidate, DeskError, Event, VerificationConfig, Wanted, confirm_link, element};
use crate::contacts::store::read_contacts;
use crate::contacts::{Contact, Endpoint};
use crate::sender::{ChallengePost, PasswordMail, Room, Sender};
use crate::throttle::one_time_token::OneTimeTokenError;
use crate::transport::{Arrival, Challenged, Posted};
use crate::types::{Channel, Class, Keys, Outcome, Secret, UnixMs, nonce};
use crate::wire::RedisClient;

/// Messages that are sent at once. They share the mail server with alerts, which go first.
const SENDS_MAX: usize = 8;

/// Sends what asks for consent.
#[derive(Debug)]
pub struct Messenger {
    parts: Arc<MessengerParts>,
    waiting: mpsc::Receiver<Wanted>,
}

/// What the messenger needs.
#[derive(Debug)]
pub struct MessengerParts {
    /// Redis.
    pub client: Arc<RedisClient>,
    /// The partition.
    pub keys: Keys,
    /// How long passwords and links are good.
    pub config: VerificationConfig,
    /// Where confirm links lead to; without it mails have none.
    pub public_url: Option<Url>,
    /// What sends.
    pub sender: Arc<Sender>,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
enum MessageError {
    #[error("redis")]
    Redis(#[from] redis::RedisError),
    #[error("make a confirm link")]
    RedisClient(#[from] OneTimeTokenError),
    #[error("store the consent")]
    Consent(#[from] DeskError),
}

impl MessageError {
    /// Whether the message may have arrived: what Redis says before it is sent keeps it from being sent.
    const fn arrival(&self) -> Arrival {
        match self {
            Self::Redis(_) | Self::RedisClient(_) => Arrival::Never,
            Self::Consent(_) => Arrival::Possible,
        }
    }
}

impl Messenger {
    /// A messenger that does nothing until it runs. `waiting` comes from [`super::Desk::new`].
    #[must_use]
    pub fn new(parts: MessengerParts, waiting: mpsc::Receiver<Wanted>) -> Self {
        Self { parts: Arc::new(parts), waiting }
    }

    /// Sends until `stop`; then takes nothing more, and sends what was taken before. How long that may take is the caller's to bound,
    /// by dropping the future.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut sending = JoinSet::new();
        let mut all_taken = false;
        while !(all_taken && sending.is_empty()) {
            tokio::select! {
                () = stop.cancelled(), if !self.waiting.is_closed() => self.waiting.close(),
                taken = self.waiting.recv(), if !all_taken && sending.len() < SENDS_MAX => match taken {
                    Some(wanted) => {
                        let parts = Arc::clone(&self.parts);
                        sending.spawn(async move { parts.ask(&wanted).await });
                    }
                    None => all_taken = true,
                },
                Some(ended) = sending.join_next() => tell_panic(ended),
            }
        }
        // The desk lives as long as the process: it is only gone before us when nobody can be served any more.
        stop.cancelled().await;
    }
}

/// A panic is a bug of ours that must not take the others along.
fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "sending a verification panicked");
    }
}

impl MessengerParts {
    async fn ask(&self, wanted: &Wanted) {
        let Candidate { subject, contact: id } = &wanted.candidate;
        let event = match self.ask_now(wanted).await {
            Ok(Some(event)) => event,
            // Verified, removed, or never there: nobody is told which.
            Ok(None) => {
                tracing::debug!(%subject, contact = ?id.as_str(), "nothing to verify");
                return;
            }
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                // As it was named, by whoever asked.
                let contact = id.as_str();
                tracing::warn!(%subject, ?contact, %error, source, "verification could not be sent");
                Event::Failed
            }
        };
        event.count();
    }

    async fn ask_now(&self, wanted: &Wanted) -> Result<Option<Event>, MessageError> {
        let candidate = &wanted.candidate;
        let stored = read_contacts(&self.client, &self.keys, &candidate.subject).await?;
        let Some(unverified) = array::unverified(&stored, &candidate.contact) else { return Ok(None) };
        let claim = Claim::new(&self.keys, wanted, &unverified, self.config.requests.window());
        let attempted = match claim.take(&self.client).await {
            // The one before is on its way, and its password good.
            Ok(Claimed::Others) => return Ok(Some(Event::Throttled)),
            Ok(Claimed::Ours) => self.attempt(candidate, &unverified).await,
            Err(error) => Err(error.into()),
        };
        let arrival = attempted.as_ref().map_or_else(MessageError::arrival, |attempted| attempted.arrival);
        if arrival == Arrival::Never
            && let Err(error) = claim.give_back(&self.client).await
        {
            tracing::warn!(%error, "a verification that could not be sent still counts as a request");
        }
        Ok(Some(attempted?.event))
    }

    /// Asks, and says whether the message may have arrived.
    async fn attempt(&self, candidate: &Candidate, unverified: &Unverified) -> Result<Attempted, MessageError> {
        if let Some(event) = self.without_room(candidate, &unverified.contact).await {
            return Ok(Attempted { event, arrival: Arrival::Never });
        }
        let now = server_time(&self.client).await?;
        match &unverified.contact.endpoint {
            Endpoint::Email { .. } => self.mail(candidate, unverified, now).await,
            Endpoint::Webhook { url, secret } => {
                self.challenge(candidate, &unverified.asked, Receiver { url, secret }, now).await
            }
        }
    }

    /// What is told where a cap has no room. The message is not sent later: who waits for it asks again. Rows of messages to one
    /// destination would keep those to others from being sent. The password before stays good, since nothing was drawn yet.
    async fn without_room(&self, candidate: &Candidate, contact: &Contact) -> Option<Event> {
        let event = match self.sender.room_for(contact).await {
            Room::Given => return None,
            Room::Full { .. } => Event::Throttled,
            Room::Unknown { .. } => Event::Failed,
        };
        let (Candidate { subject, contact: id }, channel) = (candidate, contact.channel().as_str());
        tracing::warn!(%subject, contact = %id, channel, outcome = event.as_str(), "verification not sent: no room under a cap");
        Some(event)
    }

    async fn mail(
        &self,
        candidate: &Candidate,
        unverified: &Unverified,
        now: UnixMs,
    ) -> Result<Attempted, MessageError> {
        let Self { client, keys, config, .. } = self;
        let Unverified { contact, asked } = unverified;
        let password = Password::draw();
        let holder = element(&candidate.subject, asked);
        password::issue(client, keys, &holder, asked, &password, config.lifetime).await?;
        let confirm = match &self.public_url {
            Some(url) => Some(confirm_link::make(client, keys, url, candidate, asked, config.lifetime).await?),
            None => None,
        };
        let Posted { outcome, arrival } = self
            .sender
            .send_password(PasswordMail {
                id: &new_id(),
                subject: &candidate.subject,
                address: contact.address(),
                code: password.reveal(),
                link: confirm.as_deref(),
                lives: config.lifetime,
                now,
            })
            .await;
        // A mailbox that is refused for good counts: else whoever tries addresses has our mail server ask for each without end.
        let arrival = if outcome.class == Class::Permanent { Arrival::Possible } else { arrival };
        Ok(Attempted { event: told(candidate, Channel::Email, &outcome), arrival })
    }

    async fn challenge(
        &self,
        candidate: &Candidate,
        asked: &str,
        receiver: Receiver<'_>,
        now: UnixMs,
    ) -> Result<Attempted, MessageError> {
        let challenge = nonce();
        let Receiver { url, secret } = receiver;
        let Candidate { subject, contact: id } = candidate;
        let post = ChallengePost { id: &new_id(), subject, url, secret, challenge: &challenge, now };
        let event = match self.sender.send_challenge(post).await {
            Challenged::Failed(Posted { outcome, arrival }) => {
                return Ok(Attempted { event: told(candidate, Channel::Webhook, &outcome), arrival });
            }
            Challenged::NotEchoed => {
                Event::Sent.count();
                tracing::warn!(%subject, contact = %id, channel = "webhook", "the receiver did not echo the challenge: not verified");
                Event::Rejected
            }
            Challenged::Echoed => {
                Event::Sent.count();
                match consent(&self.client, &self.keys, candidate, asked).await? {
                    Consented::Verified | Consented::Before => {
                        tracing::info!(%subject, contact = %id, "contact is verified");
                        Event::Verified
                    }
                    Consented::Void => {
                        tracing::info!(%subject, contact = %id, "the contact changed while it was asked: not verified");
                        Event::Rejected
                    }
                }
            }
        };
        Ok(Attempted { event, arrival: Arrival::Possible })
    }
}

/// How an attempt ended.
#[derive(Debug)]
struct Attempted {
    event: Event,
    arrival: Arrival,
}

#[derive(Clone, Copy)]
struct Receiver<'a> {
    url: &'a str,
    secret: &'a Secret,
}

/// One log event for an attempt, without the address.
fn told(candidate: &Candidate, channel: Channel, outcome: &Outcome) -> Event {
    let (Candidate { subject, contact }, channel) = (candidate, channel.as_str());
    if outcome.class == Class::Delivered {
        tracing::info!(%subject, %contact, channel, status = outcome.status, "verification sent");
        return Event::Sent;
    }
    let (status, error) = (outcome.status, outcome.error.as_deref().unwrap_or_default());
    tracing::warn!(%subject, %contact, channel, status, error, "verification could not be sent");
    Event::Failed
}

/// The id of a message: another for each, without a dot.
fn new_id() -> String {
    format!("verification_{}", nonce())
}

async fn server_time(client: &RedisClient) -> RedisResult<UnixMs> {
    let (seconds, micros): (i64, i64) = client.query(&redis::cmd("TIME")).await?;
    Ok(UnixMs(seconds * 1000 + micros / 1000))
}
