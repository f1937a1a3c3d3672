//! What can be asked for: list, add and remove contacts, request a verification, submit a code, open a confirm link.
//!
//! A code or link verifies by one conditional write of the contacts ([`edit_contacts`]): of several callers at once one verifies,
//! and what was sent for a contact that has been removed or changed verifies nothing. Read next: [`crate::contacts::edit`], what an
//! edit may do.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::sync::Notify;
use url::Url;

use super::code::{self, CodeHolder};
use super::limits::VerificationLimits;
use super::{ContactRef, VerificationConfig, VerificationEvent, confirm_link};
use crate::contacts::array::StoredContact;
use crate::contacts::edit::{AddContactError, RemoveOutcome, VerifyOutcome};
use crate::contacts::store::{EditContactsError, edit_contacts, read_contacts};
use crate::contacts::{Contact, ContactArray, ContactOrigin};
use crate::outbox::{NewDelivery, OutboxError, enqueue};
use crate::throttle::{ExpiringSetDecision, TooManyMembers};
use crate::types::{ContactId, Keys, Notification, Subject, VerificationRequest, nonce};
use crate::wire::{ErrorKind, RedisClient, error_kind};

/// A caller must not hang when Redis does.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Contacts that a subject's own side adds, and their verification.
#[derive(Debug)]
pub struct VerificationService {
    parts: VerificationParts,
    limits: VerificationLimits,
}

/// What the service needs.
#[derive(Debug)]
pub struct VerificationParts {
    /// Redis.
    pub client: Arc<RedisClient>,
    /// The partition.
    pub keys: Keys,
    /// How often and how long.
    pub config: VerificationConfig,
    /// Where confirm links lead to; without it mails have none.
    pub public_url: Option<Url>,
    /// Notified of each delivery.
    pub new_deliveries: Arc<Notify>,
}

/// Why something was not done. Nothing was changed, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// Redis failed. A change may have been written; no message is sent.
    #[error("redis")]
    Redis(#[from] RedisError),
    /// The delivery of the message could not be made.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// Redis does not answer.
    #[error("redis does not answer")]
    Unreachable,
    /// The address was asked as often as `verification.requests` allows.
    #[error("asked too often")]
    TooManyRequests {
        /// When the next request is allowed.
        retry_after: Duration,
    },
    /// The contact could not be added.
    #[error(transparent)]
    NotAdded(#[from] AddContactError),
    /// The subject has no such contact.
    #[error("the subject has no such contact")]
    NotFound,
    /// The contact is verified already.
    #[error("the contact is verified already")]
    AlreadyVerified,
    /// The contact was written by the operator.
    #[error("the contact was written by the operator")]
    OperatorsOwn,
    /// The code is not the one that was sent last, has expired, or too many were tried.
    #[error("the code is not valid")]
    WrongCode,
    /// The subject's contacts can't be read, so they are not changed.
    #[error("the subject's contacts can't be read")]
    Unreadable,
    /// Others change the subject's contacts all the time.
    #[error("others change the subject's contacts all the time")]
    Contended,
}

/// What became of a confirm link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfirmOutcome {
    /// The contact of this subject is verified, by this link.
    Verified(Subject),
    /// It was verified before: by another who pressed at the same moment, or by a press whose answer was lost.
    AlreadyVerified(Subject),
    /// The link was used before, has expired, or never existed; or the contact was removed or changed.
    Invalid,
}

impl VerificationService {
    /// Creates the service. Connects nowhere.
    ///
    /// # Errors
    ///
    /// [`TooManyMembers`] for more requests than can be counted.
    pub fn new(parts: VerificationParts) -> Result<Self, TooManyMembers> {
        let limits = VerificationLimits::new(&parts.keys, &parts.config)?;
        Ok(Self { parts, limits })
    }

    pub(super) const fn parts(&self) -> &VerificationParts {
        &self.parts
    }

    /// The contacts of a subject that can be read.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]
    pub async fn list(&self, subject: &Subject) -> Result<Vec<StoredContact>, VerificationError> {
        within_timeout(async { Ok(read_contacts(&self.parts.client, &self.parts.keys, subject).await?.contacts()) })
            .await
    }

    /// Adds a contact, unverified whatever it says, requests its verification, and returns the id that it is stored under.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. When Redis fails, the contact may be there, and nobody has been asked.
    pub async fn add(&self, subject: Subject, contact: &Contact) -> Result<ContactId, VerificationError> {
        let VerificationParts { client, keys, .. } = &self.parts;
        within_timeout(async {
            let nonce = nonce();
            // Judged before the request is counted, and again with what is stored then.
            read_contacts(client, keys, &subject).await?.add(contact, &nonce)?;
            self.count_request(contact).await?;
            let add = |array: &mut ContactArray| Ok::<_, VerificationError>(array.add(contact, &nonce)?);
            let added = edit_contacts(client, keys, &subject, add).await?;
            self.enqueue(subject, &added).await?;
            Ok(added.contact.id)
        })
        .await
    }

    /// Removes a contact that was added here, verified or not. What was sent to its address verifies nothing afterwards, not even if it
    /// is added again, and its pending deliveries are cancelled at their next attempt.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. When Redis fails, the contact may be gone.
    pub async fn remove(&self, contact: &ContactRef) -> Result<(), VerificationError> {
        let remove = |array: &mut ContactArray| match array.remove(&contact.contact, ContactOrigin::Subject) {
            RemoveOutcome::Removed(_) => Ok(()),
            RemoveOutcome::OperatorsOwn => Err(VerificationError::OperatorsOwn),
            RemoveOutcome::NotFound => Err(VerificationError::NotFound),
        };
        within_timeout(edit_contacts(&self.parts.client, &self.parts.keys, &contact.subject, remove)).await?;
        let ContactRef { subject, contact } = contact;
        tracing::info!(%subject, %contact, "contact is removed");
        Ok(())
    }

    /// Requests the verification of an unverified contact once more.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]
    pub async fn request(&self, contact: ContactRef) -> Result<(), VerificationError> {
        within_timeout(async {
            let unverified = self.unverified(&contact).await?;
            self.count_request(&unverified.contact).await?;
            self.enqueue(contact.subject, &unverified).await
        })
        .await
    }

    /// Verifies a contact by the code that was sent to it.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. While the contacts can't be read or written, the code stays valid.
    pub async fn verify(&self, contact: &ContactRef, guess: &str) -> Result<(), VerificationError> {
        let verified = within_timeout(self.verify_by_code(contact, guess)).await;
        let event = match &verified {
            Ok(()) => VerificationEvent::Verified,
            Err(VerificationError::WrongCode) => VerificationEvent::Rejected,
            Err(_) => return verified,
        };
        record(&contact.subject, &contact.contact, event);
        verified
    }

    async fn verify_by_code(&self, contact: &ContactRef, guess: &str) -> Result<(), VerificationError> {
        let VerificationParts { client, keys, .. } = &self.parts;
        let unverified = self.unverified(contact).await?;
        let holder = CodeHolder::new(&contact.subject, &unverified.consent);
        let code = code::read(client, keys, &holder).await?.ok_or(VerificationError::WrongCode)?;
        let guesses = self.limits.count_guess(client, &code.nonce).await?;
        if !matches!(guesses, ExpiringSetDecision::Added { .. }) || !code.matches(&holder, guess) {
            return Err(VerificationError::WrongCode);
        }
        let consent = &unverified.consent;
        let outcome =
            edit_contacts(client, keys, &contact.subject, |array| Ok::<_, EditContactsError>(array.verify(consent)));
        match outcome.await? {
            VerifyOutcome::Verified => {}
            VerifyOutcome::AlreadyVerified => return Err(VerificationError::AlreadyVerified),
            VerifyOutcome::Outdated => return Err(VerificationError::WrongCode),
        }
        if let Err(error) = code::delete(client, keys, &holder).await {
            tracing::debug!(%error, "a code that was used stays until it expires");
        }
        Ok(())
    }

    /// Verifies the contact of a confirm link.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. The link stays valid.
    pub async fn confirm(&self, token: &str) -> Result<ConfirmOutcome, VerificationError> {
        let VerificationParts { client, keys, .. } = &self.parts;
        within_timeout(async {
            let Some(request) = confirm_link::read(client, keys, token).await? else {
                VerificationEvent::Rejected.count();
                return Ok(ConfirmOutcome::Invalid);
            };
            let outcome = consent_to(client, keys, &request).await?;
            if let Err(error) = confirm_link::delete(client, keys, token).await {
                tracing::debug!(%error, "a confirm link that was used stays until it expires");
            }
            Ok(match outcome {
                VerifyOutcome::Verified => ConfirmOutcome::Verified(request.subject),
                VerifyOutcome::AlreadyVerified => ConfirmOutcome::AlreadyVerified(request.subject),
                VerifyOutcome::Outdated => ConfirmOutcome::Invalid,
            })
        })
        .await
    }

    async fn unverified(&self, contact: &ContactRef) -> Result<StoredContact, VerificationError> {
        let contacts = read_contacts(&self.parts.client, &self.parts.keys, &contact.subject).await?;
        let stored = contacts.find(&contact.contact).ok_or(VerificationError::NotFound)?;
        if stored.contact.verified { Err(VerificationError::AlreadyVerified) } else { Ok(stored) }
    }

    /// Makes the delivery that asks the contact's address.
    async fn enqueue(&self, subject: Subject, unverified: &StoredContact) -> Result<(), VerificationError> {
        let VerificationParts { client, keys, config, new_deliveries, .. } = &self.parts;
        let StoredContact { contact, consent, .. } = unverified;
        let requested_at_ms = client.server_time().await?;
        let lifetime_ms = i64::try_from(config.lifetime.as_millis()).unwrap_or(i64::MAX);
        let notification = Notification::Verification(VerificationRequest {
            id: format!("verification_{}", nonce()),
            subject,
            contact: contact.id.clone(),
            consent: consent.clone(),
            requested_at_ms,
            expires_at_ms: requested_at_ms.plus(lifetime_ms),
        });
        let delivery = NewDelivery { notification: &notification, channel: contact.channel(), contact: &contact.id };
        enqueue(client, keys, delivery).await?;
        new_deliveries.notify_one();
        Ok(())
    }

    async fn count_request(&self, contact: &Contact) -> Result<(), VerificationError> {
        match self.limits.count_request(&self.parts.client, contact).await? {
            ExpiringSetDecision::Added { .. } => Ok(()),
            ExpiringSetDecision::Full { retry_after } => {
                VerificationEvent::Throttled.count();
                Err(VerificationError::TooManyRequests { retry_after })
            }
        }
    }
}

/// Stores the consent that a request asked for, and counts and logs what became of it. Repeatable.
pub(super) async fn consent_to(
    client: &RedisClient,
    keys: &Keys,
    request: &VerificationRequest,
) -> Result<VerifyOutcome, EditContactsError> {
    let outcome = edit_contacts(client, keys, &request.subject, |array| {
        Ok::<_, EditContactsError>(array.verify(&request.consent))
    });
    let outcome = outcome.await?;
    match outcome {
        VerifyOutcome::Verified => record(&request.subject, &request.contact, VerificationEvent::Verified),
        VerifyOutcome::AlreadyVerified => {}
        VerifyOutcome::Outdated => record(&request.subject, &request.contact, VerificationEvent::Rejected),
    }
    Ok(outcome)
}

pub(super) fn record(subject: &Subject, contact: &ContactId, event: VerificationEvent) {
    event.count();
    match event {
        VerificationEvent::Verified => tracing::info!(%subject, %contact, "contact is verified"),
        _ => tracing::info!(%subject, %contact, "verification refused"),
    }
}

impl From<EditContactsError> for VerificationError {
    fn from(error: EditContactsError) -> Self {
        match error {
            EditContactsError::Redis(error) => Self::Redis(error),
            EditContactsError::NotAnArray(_) => Self::Unreadable,
            EditContactsError::Contended => Self::Contended,
        }
    }
}

async fn within_timeout<T>(call: impl Future<Output = Result<T, VerificationError>>) -> Result<T, VerificationError> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(Err(VerificationError::Redis(error))) if error_kind(&error) == ErrorKind::WrongType => {
            Err(VerificationError::Unreadable)
        }
        Ok(answered) => answered,
        Err(_) => Err(VerificationError::Unreachable),
    }
}
