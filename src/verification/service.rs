//! What can be asked for: list contacts, submit a code, open a confirm link. [`super::request`] adds contacts and asks
//! them. No call has a timeout: the API sets one.
//!
//! A code or link verifies by one conditional write of the contacts ([`edit_contacts`]): of several callers at once one
//! verifies, and what was sent for a contact that has been removed or changed verifies nothing. Read next:
//! [`crate::contacts::edit`], what an edit may do.

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
use crate::throttle::{ExpiringSet, ExpiringSetDecision};
use crate::types::{ConsentId, ContactId, Subject, UnixMs, VerificationRequest, nonce};

/// Guesses at one code: one in 200,000 is found so.
const GUESSES_MAX: u32 = 5;

/// Contacts that a subject's own side adds, and their verification.
#[derive(Debug)]
pub struct VerificationService {
    /// Redis. Requests, codes and links are kept in the first partition: an address is counted for all subjects, and
    /// whoever opens a link does not say whose it is.
    pub partitions: Partitions,
    /// How often and how long.
    pub config: VerificationConfig,
    /// The most contacts of a subject.
    pub contacts_max: usize,
    /// Where confirm links and unsubscribe links lead to; without it mails have none.
    pub public_url: Option<Url>,
    /// Notified of each delivery.
    pub new_deliveries: NewDeliveries,
}

/// Why something was not done, as the caller is told. Nothing was changed, unless the variant says otherwise.
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
        /// When one of them ends at the latest.
        retry_after: Duration,
    },
    #[error(transparent)]
    NotAdded(#[from] AddContactError),
    #[error("the subject has no such contact")]
    NotFound,
    #[error("the contact is verified already")]
    AlreadyVerified,
    #[error("the operator wrote this contact: only the operator can remove it")]
    OperatorsOwn,
    #[error("the code is not the one that was sent last, has expired, or too many were tried: ask for another")]
    WrongCode,
    /// The subject's contacts can't be read, so they are not changed.
    #[error("what is stored for the subject can't be read: the operator has to repair it (`quotabell subject show`)")]
    Unreadable,
    #[error("others change the subject's contacts all the time: try again")]
    Contended,
}

impl VerificationService {
    /// The contacts of a subject that can be read, and the server's time.
    pub async fn list(&self, subject: &Subject) -> Result<(Vec<StoredContact>, UnixMs), VerificationError> {
        let mut contacts = self.contacts(subject).await?;
        let now = self.partitions.first().client.server_time().await?;
        contacts.remove_unverified(now);
        Ok((contacts.contacts(), now))
    }

    /// Verifies a contact by the code that was sent to it.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. While the contacts can't be read or written, the code stays valid.
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

    /// Verifies the contact of a confirm link, and says whose it is. It is verified already where another pressed at
    /// the same moment, or where the answer to a press was lost; outdated where the contact was removed or changed.
    /// `None`: the link was used before, has expired, or never existed.
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

    /// Stores the consent that was asked for, and counts and logs what became of it. Repeatable.
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

    /// Counts a guess at the holder's code, if one is alive and may be guessed, and says whether it is right.
    async fn is_right(&self, key: &str, holder: &str, guess: &str) -> RedisResult<bool> {
        let Some(stored) = self.read(key).await? else { return Ok(false) };
        let Some(nonce) = code::nonce_of(&stored) else { return Ok(false) };
        let guesses =
            self.count(GUESSES_MAX, &self.partitions.first().keys.verify_guesses(nonce), self.config.lifetime).await?;
        Ok(matches!(guesses, ExpiringSetDecision::Added { .. }) && code::matches(&stored, holder, guess))
    }

    pub(super) async fn count(&self, most: u32, key: &str, window: Duration) -> RedisResult<ExpiringSetDecision> {
        let set = ExpiringSet::new(most).expect("the configuration allows no more than can be counted");
        set.add(&self.partitions.first().client, key, &nonce(), window).await
    }

    async fn read(&self, key: &str) -> RedisResult<Option<String>> {
        self.partitions.first().client.query(redis::cmd("GET").arg(key)).await
    }

    async fn delete_used(&self, key: &str) {
        if let Err(error) = self.partitions.first().client.query::<()>(redis::cmd("UNLINK").arg(key)).await {
            tracing::debug!(%error, "a code or confirm link that was used stays until it expires");
        }
    }
}

/// The contact of this id, which waits for its verification.
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
