//! The operations of verification: list contacts, submit a code, open a confirm link. [`super::request`] adds contacts
//! and asks them. Calls have no timeout: the API sets one.
//!
//! A code or link verifies by one conditional write of the contacts ([`edit_contacts`]): of several concurrent callers
//! one verifies, and a code for a removed or changed contact verifies nothing. Read next: [`crate::contacts::edit`],
//! the allowed edits.

use std::error::Error;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use url::Url;

use super::{OPEN_REQUESTS_MAX, VerificationConfig, VerificationEvent, code, confirm_link};
use crate::contacts::ContactArray;
use crate::contacts::array::StoredContact;
use crate::contacts::edit::{AddContactError, VerifyOutcome};
use crate::contacts::store::{EditContactsError, edit_contacts, read_contacts};
use crate::outbox::{NewDeliveries, OutboxError};
use crate::redis_client::{ErrorKind, Partition, Partitions, error_kind};
use crate::types::{ConsentId, ContactId, Subject, UnixMs, VerificationRequest, nonce};
use quotabell_throttle::{ExpiringSet, ExpiringSetDecision};

/// Maximum number of guesses per code: the chance of a hit is 1 in 200,000.
const GUESSES_MAX: u32 = 5;

/// Contacts that a subject's own side adds, and their verification.
#[derive(Debug)]
pub struct VerificationService {
    /// Redis. Requests, codes and links are in the first partition, because an address is counted over all subjects,
    /// and a link does not name its subject.
    pub partitions: Partitions,
    /// Rate of requests and lifetime of codes.
    pub config: VerificationConfig,
    /// Maximum number of contacts of a subject.
    pub contacts_max: usize,
    /// Base URL of confirm links and unsubscribe links; without it emails have none.
    pub public_url: Option<Url>,
    /// Notified of each delivery.
    pub new_deliveries: NewDeliveries,
}

/// Why an operation failed, for the caller. Nothing was changed, unless the variant says otherwise.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// Redis failed. A change may have been written; no message is sent.
    #[error("Redis failed ({})", .kind.as_str())]
    Redis { kind: ErrorKind, source: Box<dyn Error + Send + Sync> },
    /// The address was asked as often as `verification.requests` allows.
    #[error("a verification of this address was requested too often")]
    TooManyRequests { retry_after: Duration },
    #[error(
        "{OPEN_REQUESTS_MAX} messages that ask contacts of this subject to confirm are on their way: wait until one has ended"
    )]
    TooManyOpen {
        /// Latest time at which one of them ends.
        retry_after: Duration,
    },
    #[error(transparent)]
    NotAdded(#[from] AddContactError),
    #[error("the subject has no such contact")]
    NotFound,
    #[error("the contact is verified already")]
    AlreadyVerified,
    #[error("the code is not the one that was sent last, has expired, or too many were tried: ask for another")]
    WrongCode,
    /// The subject's contacts are unreadable, so they are not changed.
    #[error("the subject's stored contacts can't be read: the operator has to repair them (`quotabell subject show`)")]
    Unreadable,
    #[error("other callers keep changing the subject's contacts: try again")]
    Contended,
}

impl VerificationService {
    /// The readable contacts of a subject, and the server's time.
    pub async fn list(&self, subject: &Subject) -> Result<(Vec<StoredContact>, UnixMs), VerificationError> {
        let mut contacts = self.contacts(subject).await?;
        let now = self.partitions.first().client.server_time().await?;
        contacts.remove_unverified(now);
        Ok((contacts.contacts(), now))
    }

    /// Verifies a contact with the code that was sent to it.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. If the contacts can't be read or written, the code stays valid.
    pub async fn verify(&self, subject: &Subject, contact: &ContactId, guess: &str) -> Result<(), VerificationError> {
        let StoredContact { consent, .. } = unverified(&self.contacts(subject).await?, contact)?;
        let holder = code::holder(subject, &consent);
        let key = self.partitions.first().keys.verify_code(&holder);
        if !self.is_right(&key, &holder, guess).await? {
            VerificationEvent::Rejected.record(subject, contact);
            return Err(VerificationError::WrongCode);
        }
        match self.consent_to(subject, contact, &consent).await? {
            VerifyOutcome::Verified => self.delete_used(&key).await,
            VerifyOutcome::AlreadyVerified => return Err(VerificationError::AlreadyVerified),
            VerifyOutcome::Outdated => return Err(VerificationError::WrongCode),
        }
        Ok(())
    }

    /// Verifies the contact of a confirm link, and returns its subject. The contact is already verified if the link was
    /// used concurrently or a reply was lost; the link is outdated if the contact was removed or changed. `None`: the
    /// link was used before, has expired, or never existed.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. The link stays valid.
    pub async fn confirm(&self, token: &str) -> Result<Option<(VerifyOutcome, Subject)>, VerificationError> {
        let key = self.partitions.first().keys.verify_link(&confirm_link::stored_form(token));
        let request = self.read(&key).await?.and_then(|stored| serde_json::from_str(&stored).ok());
        let Some(VerificationRequest { subject, contact, consent, .. }) = request else {
            VerificationEvent::Rejected.count();
            return Ok(None);
        };
        let outcome = self.consent_to(&subject, &contact, &consent).await?;
        self.delete_used(&key).await;
        Ok(Some((outcome, subject)))
    }

    /// Stores the requested consent; counts and logs the result. Repeatable.
    pub(super) async fn consent_to(
        &self,
        subject: &Subject,
        contact: &ContactId,
        consent: &ConsentId,
    ) -> Result<VerifyOutcome, VerificationError> {
        let outcome = self.edit(subject, |array| Ok(array.verify(consent))).await?;
        match outcome {
            VerifyOutcome::Verified => VerificationEvent::Verified.record(subject, contact),
            VerifyOutcome::AlreadyVerified => {}
            VerifyOutcome::Outdated => VerificationEvent::Rejected.record(subject, contact),
        }
        Ok(outcome)
    }

    pub(super) async fn contacts(&self, subject: &Subject) -> Result<ContactArray, VerificationError> {
        let Partition { client, keys } = self.partitions.first();
        Ok(read_contacts(client, keys, subject).await?)
    }

    pub(super) async fn edit<T>(
        &self,
        subject: &Subject,
        edit: impl FnMut(&mut ContactArray) -> Result<T, VerificationError>,
    ) -> Result<T, VerificationError> {
        let Partition { client, keys } = self.partitions.first();
        edit_contacts(client, keys, subject, edit).await
    }

    /// Counts a guess at the holder's code, if a code exists and guesses are left, and returns whether it is right.
    async fn is_right(&self, key: &str, holder: &str, guess: &str) -> RedisResult<bool> {
        let Some(stored) = self.read(key).await? else { return Ok(false) };
        let Some(nonce) = code::nonce_of(&stored) else { return Ok(false) };
        let guesses =
            self.count(GUESSES_MAX, &self.partitions.first().keys.verify_guesses(nonce), self.config.lifetime).await?;
        Ok(matches!(guesses, ExpiringSetDecision::Added { .. }) && code::matches(&stored, holder, guess))
    }

    pub(super) async fn count(&self, most: u32, key: &str, window: Duration) -> RedisResult<ExpiringSetDecision> {
        let set = ExpiringSet::new(most).expect("the configuration allows no more than can be counted");
        set.add(&mut self.partitions.first().client.connection(), key, &nonce(), window).await
    }

    async fn read(&self, key: &str) -> RedisResult<Option<String>> {
        self.partitions.first().client.query(redis::cmd("GET").arg(key)).await
    }

    async fn delete_used(&self, key: &str) {
        if let Err(error) = self.partitions.first().client.query::<()>(redis::cmd("UNLINK").arg(key)).await {
            tracing::debug!(%error, "could not remove a used code or confirm link: it ends when it expires");
        }
    }
}

/// The unverified contact with this id.
pub(super) fn unverified(array: &ContactArray, contact: &ContactId) -> Result<StoredContact, VerificationError> {
    let stored = array.find(contact).ok_or(VerificationError::NotFound)?;
    if stored.contact.verified { Err(VerificationError::AlreadyVerified) } else { Ok(stored) }
}

impl From<RedisError> for VerificationError {
    fn from(error: RedisError) -> Self {
        match error_kind(&error) {
            ErrorKind::WrongType => Self::Unreadable,
            kind => Self::Redis { kind, source: error.into() },
        }
    }
}

impl From<OutboxError> for VerificationError {
    fn from(error: OutboxError) -> Self {
        Self::Redis { kind: error.error_kind(), source: error.into() }
    }
}

impl From<EditContactsError> for VerificationError {
    fn from(error: EditContactsError) -> Self {
        match error {
            EditContactsError::Redis(error) => error.into(),
            EditContactsError::NotAnArray(_) => Self::Unreadable,
            EditContactsError::Contended => Self::Contended,
        }
    }
}
