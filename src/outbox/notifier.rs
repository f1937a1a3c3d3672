//! One attempt of one delivery: recheck mute and expiry, ask the cap, send through the channel, decide what is
//! recorded.
//!
//! Owns the order of these steps. Knows no schedule and records nothing: what comes in is an [`AttemptRequest`], what
//! goes out is a [`Settlement`]. Read next: [`mod@super::retry_policy`] for the retries, and [`crate::channels`] for
//! what is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::config::RetryConfig;
use super::consent::{ConsentRequestError, ConsentRequests};
use super::retry_policy::{EndedAttempt, settlement_after};
use super::settle::Settlement;
use crate::channels::{
    AlertPurpose, CapDecision, Caps, Channels, ConsentMethod, ConsentProof, ConsentQuestion, Content, Message,
    definition,
};
use crate::contacts::Contact;
use crate::contacts::resolver::ContactsSource;
use crate::redis_client::backoff::BackoffPolicy;
use crate::types::{
    Channel, DeliveryId, Notification, Outcome, OutcomeClass, Secret, Subject, UnixMs, VerificationRequest, nonce,
};

/// What makes an attempt: [`ChannelNotifier`] in the daemon, a double in tests.
pub trait Notifier: Send + Sync + 'static {
    /// The deadline of one attempt on this channel; [`Notifier::attempt`] keeps it.
    fn timeout(&self, channel: Channel) -> Duration;

    /// Makes one attempt and says what is to be recorded. Records nothing.
    fn attempt(&self, request: AttemptRequest<'_>) -> impl Future<Output = Settlement> + Send;
}

/// A delivery whose attempt is due.
#[derive(Debug, Clone, Copy)]
pub struct AttemptRequest<'a> {
    /// The delivery; e-mail derives its Message-ID from it.
    pub delivery: &'a DeliveryId,
    /// What it tells.
    pub notification: &'a Notification,
    /// The contact as it stands now.
    pub contact: &'a Contact,
    /// Where the subject's contacts come from. Only its own can unsubscribe.
    pub source: ContactsSource,
    /// Whether more is due at the same destination, which answered its last attempt.
    pub more_follows: bool,
    /// Attempts since it was made, this one included. Only the first can find its alert too old.
    pub attempts: u32,
    /// Which attempt this is since the last replay, 1 for the first: the delays start over with a replay.
    pub attempt_since_replay: u32,
    /// When the first attempt since the last replay began, server time; this attempt's own start if it is the first.
    pub first_attempt: UnixMs,
    /// How long sending was paused since then.
    pub paused: Duration,
    /// Server time at which this attempt starts.
    pub now: UnixMs,
    /// The latest moment at which the message may leave, so that its deadline lies within the lease.
    pub start_by: Instant,
}

/// Makes attempts through the channels.
#[derive(Debug)]
pub struct ChannelNotifier {
    channels: Arc<Channels>,
    caps: Caps,
    retry: RetryConfig,
    consents: Arc<dyn ConsentRequests>,
}

impl ChannelNotifier {
    /// A notifier that sends through `channels`, as far as `caps` allow. `consents` draws what requests for consent
    /// show.
    pub fn new(channels: Arc<Channels>, caps: Caps, retry: RetryConfig, consents: Arc<dyn ConsentRequests>) -> Self {
        Self { channels, caps, retry, consents }
    }

    /// Why the delivery can't leave now, if it can't. Last before sending, so that only what is about to leave is
    /// counted.
    async fn held_back(&self, request: &AttemptRequest<'_>) -> Option<Settlement> {
        match self.caps.decide_attempt(&self.channels, request.contact).await {
            // Redis was slow: an attempt that started now could outlive its lease and overlap with another worker's.
            CapDecision::Allowed if Instant::now() > request.start_by => Some(Settlement::Released(Duration::ZERO)),
            CapDecision::Allowed => None,
            CapDecision::Exhausted { retry_after } => Some(Settlement::Throttled(retry_after)),
            CapDecision::Unknown { retry_after } => Some(Settlement::Released(retry_after)),
        }
    }

    async fn send(&self, request: &AttemptRequest<'_>) -> Result<Outcome, ConsentRequestError> {
        let AttemptRequest { delivery, contact, more_follows, now, .. } = *request;
        let content = match request.notification {
            Notification::Verification(asked) => return self.ask(request, asked).await,
            Notification::Alert(alert) if contact.id.is_of_operator() => Content::Alert(alert, AlertPurpose::Copy),
            Notification::Alert(alert) => Content::Alert(alert, AlertPurpose::Alert),
            Notification::ContactDisabled(notice) => Content::ContactDisabled(notice),
            Notification::Digest(digest) => Content::Digest(digest),
        };
        let link = match content {
            Content::Alert(alert, AlertPurpose::Alert) if request.source == ContactsSource::Own => {
                self.unsubscribe_url(&alert.subject, contact).await
            }
            _ => None,
        };
        let unsubscribe = link.as_ref().map(Secret::reveal);
        Ok(self.channels.send(Message { delivery, contact, content, unsubscribe, more_follows, now }).await)
    }

    /// The link with which a person takes consent back. A message without it is better than none.
    async fn unsubscribe_url(&self, subject: &Subject, contact: &Contact) -> Option<Secret> {
        if definition(contact.channel())?.consent != ConsentMethod::CodeAndLink {
            return None;
        }
        self.consents.unsubscribe_url(subject, contact).await.unwrap_or_else(|error| {
            let source = error.source.to_string();
            tracing::warn!(%subject, contact = %contact.id, %error, source, "the mail is sent without an unsubscribe link");
            None
        })
    }

    /// Asks for consent. Where the receiver itself answers, its consent is stored before the attempt counts as
    /// delivered.
    async fn ask(
        &self,
        request: &AttemptRequest<'_>,
        asked: &VerificationRequest,
    ) -> Result<Outcome, ConsentRequestError> {
        let AttemptRequest { delivery, contact, more_follows, now, .. } = *request;
        let method = definition(contact.channel()).expect("every contact has a channel of the registry").consent;
        let (id, proof) = match method {
            // Each mail has another code, and mail software shows one of those that have the same id.
            ConsentMethod::CodeAndLink => {
                let proof = ConsentProof::CodeAndLink(self.consents.generate(asked).await?);
                (format!("{}_{}", asked.id, request.attempts), proof)
            }
            ConsentMethod::Challenge => (asked.id.clone(), ConsentProof::Challenge(Secret::new(nonce()))),
        };
        let question = ConsentQuestion { id: &id, subject: &asked.subject, proof: &proof };
        let content = Content::Verification(question);
        let outcome =
            self.channels.send(Message { delivery, contact, content, unsubscribe: None, more_follows, now }).await;
        if method == ConsentMethod::Challenge && outcome.class == OutcomeClass::Delivered {
            self.consents.grant(asked).await?;
        }
        Ok(outcome)
    }
}

impl Notifier for ChannelNotifier {
    fn timeout(&self, channel: Channel) -> Duration {
        self.channels.timeout(channel)
    }

    /// Leaves the machine unless nothing is to be sent; ends within [`Self::timeout`] of `start_by`. Repeating it sends
    /// again, with the same id.
    async fn attempt(&self, request: AttemptRequest<'_>) -> Settlement {
        if let Some(unsent) = unsent(&request) {
            return unsent;
        }
        if let Some(held_back) = self.held_back(&request).await {
            return held_back;
        }
        let outcome = match self.send(&request).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let source = error.source.to_string();
                tracing::warn!(delivery = %request.delivery, %error, source, "the attempt could not be completed; trying again");
                let outcome = Outcome::failed(OutcomeClass::Transient, error.to_string());
                return Settlement::Retry(outcome, BackoffPolicy::RECONNECT.max_interval);
            }
        };
        let AttemptRequest { attempt_since_replay: attempt, first_attempt, paused, now, .. } = request;
        let settlement = settlement_after(EndedAttempt { outcome, attempt, first_attempt, paused, now }, &self.retry);
        not_after_expiry(settlement, &request)
    }
}

/// Why nothing is sent at all, if so.
fn unsent(request: &AttemptRequest<'_>) -> Option<Settlement> {
    let is_asked = matches!(request.notification, Notification::Verification(_));
    if let Some(mute) = request.contact.muted_at(request.now).filter(|_| !is_asked) {
        return Some(Settlement::Muted(format!("the contact is {mute}")));
    }
    match request.notification {
        // Only the very first: a delivery that was tried before, or is replayed later, has been found worth sending.
        Notification::Alert(alert) if request.attempts <= 1 => {
            let expired = request.first_attempt > super::expires_at(alert);
            expired.then_some(Settlement::Expired)
        }
        Notification::Alert(_) | Notification::ContactDisabled(_) | Notification::Digest(_) => None,
        Notification::Verification(asked) => (request.now > asked.expires_at_ms).then_some(Settlement::Expired),
    }
}

/// A request for consent that could be tried again only when nobody waits for it any more expires now, with its error:
/// nobody can do anything about it, so it is not dead.
fn not_after_expiry(settlement: Settlement, request: &AttemptRequest<'_>) -> Settlement {
    let Notification::Verification(asked) = request.notification else { return settlement };
    match settlement {
        Settlement::Retry(outcome, wait) if request.now.after(wait) > asked.expires_at_ms => {
            Settlement::ExpiredAfter(outcome)
        }
        other => other,
    }
}
