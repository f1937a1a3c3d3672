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
use crate::channels::{
    BoxFuture, CapDecision, Caps, Channels, CodeAndLink, ConsentMethod, ConsentProof, Content, Message, Question,
    consent_method,
};
use crate::contacts::Contact;
use crate::contacts::edit::{ConsentId, StoredContact, VerifyOutcome};
use crate::contacts::store::{EditContactsError, read_contacts};
use crate::outbox::{ConsentRequestError, ConsentRequests, Settlement};
use crate::types::{Class, DeliveryId, Keys, Outcome, UnixMs, VerificationRequest, nonce};
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
    pub channels: Arc<Channels>,
    /// What asks the caps.
    pub caps: Caps,
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

    /// What the outbox asks about requests for consent.
    #[must_use]
    pub fn consents(&self) -> Arc<MessengerParts> {
        Arc::clone(&self.parts)
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
        Ok(Some(match consent_method(unverified.contact.channel()) {
            Some(ConsentMethod::Challenge) => self.challenge(wanted, &unverified, now).await?,
            _ => self.mail(wanted, &unverified, now).await?,
        }))
    }

    /// What is told where a cap has no room.
    async fn without_room(&self, wanted: &ContactRef, contact: &Contact) -> Option<VerificationEvent> {
        let event = match self.caps.take(&self.channels, contact).await {
            CapDecision::Allowed => return None,
            CapDecision::Exhausted { .. } => VerificationEvent::Throttled,
            CapDecision::Unknown { .. } => VerificationEvent::Failed,
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
        let proof = ConsentProof::CodeAndLink(self.draw_now(wanted, &unverified.consent).await?);
        let outcome = self.send(wanted, &unverified.contact, &proof, now).await;
        Ok(told(wanted, &unverified.contact, &outcome))
    }

    /// Draws a code and a link and stores their digests.
    async fn draw_now(&self, wanted: &ContactRef, consent: &ConsentId) -> Result<CodeAndLink, MessageError> {
        let Self { client, keys, config, .. } = self;
        let code = Code::draw();
        let holder = CodeHolder::new(&wanted.subject, consent);
        code::issue(client, keys, &holder, &code, config.lifetime).await?;
        let link = match &self.public_url {
            Some(url) => {
                let target = ConfirmTarget { contact: wanted.clone(), consent: consent.clone() };
                Some(confirm_link::create(client, keys, url, target, config.lifetime).await?)
            }
            None => None,
        };
        Ok(CodeAndLink { code: code.reveal().to_owned(), link, lifetime: config.lifetime })
    }

    async fn send(&self, wanted: &ContactRef, contact: &Contact, proof: &ConsentProof, now: UnixMs) -> Outcome {
        let id = new_id();
        let delivery = &DeliveryId::of_notification(&id, &contact.id);
        let content = Content::Verification(Question { id: &id, subject: &wanted.subject, proof });
        self.channels.send(Message { delivery, contact, content, now }).await
    }

    async fn challenge(
        &self,
        wanted: &ContactRef,
        unverified: &StoredContact,
        now: UnixMs,
    ) -> Result<VerificationEvent, MessageError> {
        let StoredContact { contact, consent, .. } = unverified;
        let ContactRef { subject, contact: id } = wanted;
        let outcome = self.send(wanted, contact, &ConsentProof::Challenge(nonce()), now).await;
        let was_taken = outcome.status.is_some_and(|status| (200..300).contains(&status));
        match outcome.class {
            Class::Permanent if was_taken => {
                VerificationEvent::Sent.count();
                let channel = contact.channel().as_str();
                tracing::warn!(%subject, contact = %id, channel, "the receiver did not echo the challenge: not verified");
                Ok(VerificationEvent::Rejected)
            }
            Class::Permanent | Class::Transient => Ok(told(wanted, contact, &outcome)),
            Class::Delivered => {
                VerificationEvent::Sent.count();
                self.grant_now(wanted, consent).await
            }
        }
    }

    async fn grant_now(&self, wanted: &ContactRef, asked: &ConsentId) -> Result<VerificationEvent, MessageError> {
        let ContactRef { subject, contact: id } = wanted;
        Ok(match consent(&self.client, subject, asked).await? {
            VerifyOutcome::Verified | VerifyOutcome::AlreadyVerified => {
                tracing::info!(%subject, contact = %id, "contact is verified");
                VerificationEvent::Verified
            }
            VerifyOutcome::Outdated => {
                tracing::info!(%subject, contact = %id, "the contact changed while it was asked: not verified");
                VerificationEvent::Rejected
            }
        })
    }
}

impl ConsentRequests for MessengerParts {
    fn contact<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>> {
        Box::pin(async move {
            let contacts = read_contacts(&self.client, &request.subject).await;
            let contacts = contacts.map_err(|error| failed("read the contact", error))?;
            let found = contacts.find(&request.contact).filter(|stored| !stored.contact.verified);
            Ok(found.filter(|stored| stored.consent.as_str() == request.consent).map(|stored| stored.contact))
        })
    }

    fn draw<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>> {
        Box::pin(async move {
            let drawn = self.draw_now(&contact_of(request), &ConsentId::from_stored(&request.consent)).await;
            drawn.map_err(|error| failed("store the code", error))
        })
    }

    fn grant<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>> {
        Box::pin(async move {
            let granted = self.grant_now(&contact_of(request), &ConsentId::from_stored(&request.consent)).await;
            granted.map(VerificationEvent::count).map_err(|error| failed("store the consent", error))
        })
    }

    fn settled(&self, _: &VerificationRequest, settlement: &Settlement) {
        match settlement {
            Settlement::Delivered(_) => VerificationEvent::Sent.count(),
            Settlement::Dead(_) | Settlement::Retry(..) => VerificationEvent::Failed.count(),
            Settlement::Throttled(_) => VerificationEvent::Throttled.count(),
            _ => {}
        }
    }
}

fn contact_of(request: &VerificationRequest) -> ContactRef {
    ContactRef { subject: request.subject.clone(), contact: request.contact.clone() }
}

fn failed(operation: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> ConsentRequestError {
    ConsentRequestError { operation, source: Box::new(error) }
}

/// One log event for an attempt, without the address.
fn told(wanted: &ContactRef, reached: &Contact, outcome: &Outcome) -> VerificationEvent {
    let (ContactRef { subject, contact }, channel) = (wanted, reached.channel().as_str());
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
