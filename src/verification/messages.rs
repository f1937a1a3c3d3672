//! Answers the outbox's questions about a verification: the contact, the code and link of an attempt, and the consent
//! of a receiver that echoed its challenge.

use std::error::Error;

use super::issue::issue;
use super::{VerificationError, VerificationEvent, VerificationService, code, confirm_link, unsubscribe};
use crate::channels::{BoxFuture, CodeAndLink};
use crate::contacts::Contact;
use crate::contacts::text_settings::read_locale;
use crate::outbox::{ConsentRequestError, ConsentRequests, Settlement};
use crate::types::{Secret, Subject, VerificationRequest};

impl ConsentRequests for VerificationService {
    fn contact<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>> {
        Box::pin(async move {
            let contacts = match self.contacts(&request.subject).await {
                Ok(contacts) => contacts.contacts(),
                // The contact can't be verified until the operator has repaired the stored contacts, so it is not
                // asked.
                Err(VerificationError::Unreadable) => return Ok(None),
                Err(error) => return Err(failed("read the contact", error)),
            };
            let asked = contacts.into_iter().find(|stored| stored.consent == request.consent);
            let asked = asked.map(|stored| stored.contact).filter(|contact| !contact.verified);
            let Some(contact) = asked else { return Ok(None) };
            let first = self.partitions.first();
            let locale = read_locale(&first.client, &first.keys, &request.subject).await;
            let locale = locale.map_err(|error| failed("read the locale", error))?;
            Ok(Some(Contact { locale, ..contact }))
        })
    }

    fn generate<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>> {
        Box::pin(async move {
            let lifetime = self.config.lifetime;
            let (code, token) = (code::generate(), confirm_link::generate());
            let link = self.public_url.as_ref().map(|url| confirm_link::url_of(url, "confirm", &token));
            let token = link.as_ref().map(|_| token.as_str());
            let issued = issue(self.partitions.first(), request, lifetime, &code, token).await;
            issued.map_err(|error| failed("store the code and the confirm link", error))?;
            Ok(CodeAndLink { code: Secret::new(code), link: link.map(Secret::new), lifetime })
        })
    }

    fn grant<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>> {
        Box::pin(async move {
            let granted = self.consent_to(&request.subject, &request.contact, &request.consent).await;
            granted.map(drop).map_err(|error| failed("store the consent", error))
        })
    }

    fn unsubscribe_url<'a>(
        &'a self,
        subject: &'a Subject,
        contact: &'a Contact,
    ) -> BoxFuture<'a, Result<Option<Secret>, ConsentRequestError>> {
        Box::pin(async move {
            let Some(public_url) = &self.public_url else { return Ok(None) };
            let key = self.unsubscribe_key().await.map_err(|error| failed("make the unsubscribe link", error))?;
            let token = unsubscribe::write(&key, subject, contact);
            Ok(Some(Secret::new(confirm_link::url_of(public_url, "unsubscribe", &token))))
        })
    }

    fn settled(&self, request: &VerificationRequest, settlement: &Settlement) {
        match settlement {
            Settlement::Delivered(_) => VerificationEvent::Sent.count(),
            // A receiver that accepted the challenge but did not echo it.
            Settlement::Dead(outcome) if outcome.status.is_some_and(|status| (200..300).contains(&status)) => {
                VerificationEvent::Sent.count();
                VerificationEvent::Rejected.record(&request.subject, &request.contact);
            }
            Settlement::Dead(_) | Settlement::ExpiredAfter(_) | Settlement::Retry(..) => {
                VerificationEvent::Failed.count()
            }
            Settlement::Throttled(_) => VerificationEvent::Throttled.count(),
            _ => {}
        }
    }
}

fn failed(operation: &'static str, source: impl Error + Send + Sync + 'static) -> ConsentRequestError {
    ConsentRequestError { operation, source: Box::new(source) }
}
