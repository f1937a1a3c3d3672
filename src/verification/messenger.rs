//! Asks addresses for their consent: works off what the [`super::VerificationService`] has taken.
//!
//! What waits is in memory: a daemon that ends before it is sent loses it, and whoever waits for the message asks for another. No
//! message is tried again by itself, since each carries a password that is soon worthless.

use std::sync::Arc;

use redis::RedisResult;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::code::{self, Code, CodeHolder};
use super::confirm_link::{self, ConfirmTarget};
use super::service::consent;
use super::{ContactRef, VerificationConfig, VerificationEvent};
use crate::contacts::array::StoredContact;
use crate::contacts::edit::VerifyOutcome;
use crate::contacts::store::{EditContactsError, read_contacts};
use crate::contacts::{Contact, Endpoint};
use crate::sender::{ChallengePost, PasswordMail, Room, Sender};
use crate::transport::{Challenged, Posted};
use crate::types::{Channel, Class, Keys, Outcome, Secret, UnixMs, nonce};
use crate::wire::RedisClient;

/// Messages that are sent at once. They share the mail server with alerts, which go first.
const SENDS_MAX: usize = 8;

/// Sends what asks for consent.
#[derive(Debug)]
pub struct Messenger {
    parts: Arc<MessengerParts>,
    waiting: mpsc::Receiver<ContactRef>,
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
    #[error("read or write the contacts")]
    Contacts(#[from] EditContactsError),
}

impl Messenger {
    /// A messenger that does nothing until it runs. `waiting` comes from [`super::VerificationService::new`].
    #[must_use]
    pub fn new(parts: MessengerParts, waiting: mpsc::Receiver<ContactRef>) -> Self {
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
    async fn ask(&self, wanted: &ContactRef) {
        let ContactRef { subject, contact } = wanted;
        let event = match self.ask_now(wanted).await {
            Ok(Some(event)) => event,
            Ok(None) => {
                tracing::debug!(%subject, %contact, "nothing to verify");
                return;
            }
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%subject, %contact, %error, source, "verification could not be sent");
                VerificationEvent::Failed
            }
        };
        event.count();
    }

    async fn ask_now(&self, wanted: &ContactRef) -> Result<Option<VerificationEvent>, MessageError> {
        let contacts = read_contacts(&self.client, &wanted.subject).await?;
        let found = contacts.find(&wanted.contact).filter(|stored| !stored.contact.verified);
        let Some(unverified) = found else { return Ok(None) };
        if let Some(event) = self.without_room(wanted, &unverified.contact).await {
            return Ok(Some(event));
        }
        let now = server_time(&self.client).await?;
        Ok(Some(match &unverified.contact.endpoint {
            Endpoint::Email { .. } => self.mail(wanted, &unverified, now).await?,
            Endpoint::Webhook { url, secret } => {
                self.challenge(wanted, &unverified, Receiver { url, secret }, now).await?
            }
        }))
    }

    /// What is told where a cap has no room.
    async fn without_room(&self, wanted: &ContactRef, contact: &Contact) -> Option<VerificationEvent> {
        let event = match self.sender.room_for(contact).await {
            Room::Given => return None,
            Room::Full { .. } => VerificationEvent::Throttled,
            Room::Unknown { .. } => VerificationEvent::Failed,
        };
        let (ContactRef { subject, contact: id }, channel) = (wanted, contact.channel().as_str());
        tracing::warn!(%subject, contact = %id, channel, outcome = event.as_str(), "verification not sent: no room under a cap");
        Some(event)
    }

    async fn mail(
        &self,
        wanted: &ContactRef,
        unverified: &StoredContact,
        now: UnixMs,
    ) -> Result<VerificationEvent, MessageError> {
        let Self { client, keys, config, .. } = self;
        let StoredContact { contact, consent, .. } = unverified;
        let code = Code::draw();
        let holder = CodeHolder::new(&wanted.subject, consent);
        code::issue(client, keys, &holder, &code, config.lifetime).await?;
        let confirm = match &self.public_url {
            Some(url) => {
                let target = ConfirmTarget { contact: wanted.clone(), consent: consent.clone() };
                Some(confirm_link::create(client, keys, url, target, config.lifetime).await?)
            }
            None => None,
        };
        let Posted { outcome, .. } = self
            .sender
            .send_password(PasswordMail {
                id: &new_id(),
                subject: &wanted.subject,
                address: contact.address(),
                code: code.reveal(),
                link: confirm.as_deref(),
                lives: config.lifetime,
                now,
            })
            .await;
        Ok(told(wanted, Channel::Email, &outcome))
    }

    async fn challenge(
        &self,
        wanted: &ContactRef,
        unverified: &StoredContact,
        receiver: Receiver<'_>,
        now: UnixMs,
    ) -> Result<VerificationEvent, MessageError> {
        let challenge = nonce();
        let Receiver { url, secret } = receiver;
        let ContactRef { subject, contact: id } = wanted;
        let post = ChallengePost { id: &new_id(), subject, url, secret, challenge: &challenge, now };
        Ok(match self.sender.send_challenge(post).await {
            Challenged::Failed(Posted { outcome, .. }) => told(wanted, Channel::Webhook, &outcome),
            Challenged::NotEchoed => {
                VerificationEvent::Sent.count();
                tracing::warn!(%subject, contact = %id, channel = "webhook", "the receiver did not echo the challenge: not verified");
                VerificationEvent::Rejected
            }
            Challenged::Echoed => {
                VerificationEvent::Sent.count();
                match consent(&self.client, subject, &unverified.consent).await? {
                    VerifyOutcome::Verified | VerifyOutcome::AlreadyVerified => {
                        tracing::info!(%subject, contact = %id, "contact is verified");
                        VerificationEvent::Verified
                    }
                    VerifyOutcome::Outdated => {
                        tracing::info!(%subject, contact = %id, "the contact changed while it was asked: not verified");
                        VerificationEvent::Rejected
                    }
                }
            }
        })
    }
}

#[derive(Clone, Copy)]
struct Receiver<'a> {
    url: &'a str,
    secret: &'a Secret,
}

/// One log event for an attempt, without the address.
fn told(wanted: &ContactRef, channel: Channel, outcome: &Outcome) -> VerificationEvent {
    let (ContactRef { subject, contact }, channel) = (wanted, channel.as_str());
    if outcome.class == Class::Delivered {
        tracing::info!(%subject, %contact, channel, status = outcome.status, "verification sent");
        return VerificationEvent::Sent;
    }
    let (status, error) = (outcome.status, outcome.error.as_deref().unwrap_or_default());
    tracing::warn!(%subject, %contact, channel, status, error, "verification could not be sent");
    VerificationEvent::Failed
}

/// The id of a message: another for each, without a dot.
fn new_id() -> String {
    format!("verification_{}", nonce())
}

async fn server_time(client: &RedisClient) -> RedisResult<UnixMs> {
    let (seconds, micros): (i64, i64) = client.query(&redis::cmd("TIME")).await?;
    Ok(UnixMs(seconds * 1000 + micros / 1000))
}
