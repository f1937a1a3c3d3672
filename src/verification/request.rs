//! Asks a new or waiting contact for its consent.
//!
//! Each request is counted before anything is written, and becomes a delivery. Read next: [`super::open_requests`] and
//! [`super::unverified`], the bounds.

use super::service::{VerificationError, VerificationService, unverified};
use super::{VerificationEvent, open_requests};
use crate::contacts::array::StoredContact;
use crate::contacts::{Contact, ContactArray};
use crate::outbox::{NewDelivery, enqueue};
use crate::types::alert::digest_of;
use crate::types::{ContactId, DeliveryId, Notification, Subject, VerificationRequest, nonce};
use quotabell_throttle::ExpiringSetDecision;

impl VerificationService {
    /// Adds a contact as unverified (whatever the caller sets), requests its verification, and returns its stored id.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]. If Redis fails, the contact may exist, but nobody was asked.
    pub async fn add(&self, subject: Subject, contact: &Contact) -> Result<ContactId, VerificationError> {
        let nonce = nonce();
        self.ask(&subject, |array| Ok(array.add(contact, &nonce, self.contacts_max)?)).await
    }

    /// Requests the verification of an unverified contact again.
    pub async fn request(&self, subject: Subject, contact: &ContactId) -> Result<(), VerificationError> {
        self.ask(&subject, |array| unverified(array, contact)).await.map(drop)
    }

    /// Creates the delivery that asks the unverified contact which `find` adds or finds, and returns the contact's id.
    async fn ask(
        &self,
        subject: &Subject,
        mut find: impl FnMut(&mut ContactArray) -> Result<StoredContact, VerificationError>,
    ) -> Result<ContactId, VerificationError> {
        let now = self.partitions.first().client.server_time().await?;
        let mut find = |array: &mut ContactArray| {
            array.remove_unverified(now);
            find(array)
        };
        // Checked before the request is counted, and again with the contacts that are stored after that.
        let StoredContact { contact, consent, .. } = find(&mut self.contacts(subject).await?)?;
        let notification = Notification::Verification(VerificationRequest {
            id: format!("verification_{}", nonce()),
            subject: subject.clone(),
            contact: contact.id.clone(),
            consent: consent.clone(),
            requested_at_ms: now,
            expires_at_ms: now.after(self.config.lifetime),
        });
        self.count_request(subject, &contact, &notification.delivery_to(&contact.id)).await?;
        let until = self.unverified_until(now);
        self.note_unverified(subject, &consent, until).await?;
        let keep = |array: &mut ContactArray| {
            let asked = find(array)?;
            array.keep_unverified(&asked, until);
            if asked.consent == consent { Ok(()) } else { Err(VerificationError::Contended) }
        };
        self.edit(subject, keep).await?;
        let partition = self.partitions.partition_of(subject);
        let delivery = NewDelivery { notification: &notification, contact: &contact };
        enqueue(&partition.client, &partition.keys, delivery).await?;
        self.new_deliveries.signal_of(partition.number()).notify_one();
        Ok(contact.id)
    }

    /// Counts a request among the open ones of its subject, and among those to this address from any subject.
    async fn count_request(
        &self,
        subject: &Subject,
        contact: &Contact,
        delivery: &DeliveryId,
    ) -> Result<(), VerificationError> {
        let partition = self.partitions.partition_of(subject);
        if let ExpiringSetDecision::Full { retry_after } =
            open_requests::open(partition, &self.config, subject, delivery).await?
        {
            VerificationEvent::Throttled.count();
            return Err(VerificationError::TooManyOpen { retry_after });
        }
        let counted = self.count_address(contact).await;
        if counted.is_err() {
            // If this fails, the place is freed at the end of its lifetime.
            let _ = open_requests::withdraw(partition, subject, delivery).await;
        }
        counted
    }

    async fn count_address(&self, contact: &Contact) -> Result<(), VerificationError> {
        let address = digest_of(&[contact.channel().as_str(), &contact.counted_address()]);
        let rate = self.config.requests;
        let requests_max = u32::try_from(rate.limit().get()).unwrap_or(u32::MAX);
        match self.count(requests_max, &self.partitions.first().keys.verify_requests(&address), rate.window()).await? {
            ExpiringSetDecision::Added { .. } => Ok(()),
            ExpiringSetDecision::Full { retry_after } => {
                VerificationEvent::Throttled.count();
                Err(VerificationError::TooManyRequests { retry_after })
            }
        }
    }
}
