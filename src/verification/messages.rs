//! What the outbox asks while it delivers a verification: which contact, the code and link of an attempt, and the consent of a
//! receiver that echoed its challenge.

use std::error::Error;

use super::code::{self, Code, CodeHolder};
use super::service::{VerificationParts, consent_to, record};
use super::{VerificationEvent, VerificationService, confirm_link};
use crate::channels::{BoxFuture, CodeAndLink};
use crate::contacts::Contact;
use crate::contacts::store::{EditContactsError, read_contacts};
use crate::outbox::{ConsentRequestError, ConsentRequests, Settlement};
use crate::types::VerificationRequest;
use crate::wire::{ErrorKind, error_kind};

impl ConsentRequests for VerificationService {
    fn contact<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>> {
        Box::pin(async move {
            let contacts = match read_contacts(&self.parts().client, &self.parts().keys, &request.subject).await {
                Ok(contacts) => contacts.contacts(),
                // Until the operator has repaired what is stored, the contact can't be verified, so it is not asked.
                Err(EditContactsError::NotAnArray(_)) => return Ok(None),
                Err(EditContactsError::Redis(error)) if error_kind(&error) == ErrorKind::WrongType => return Ok(None),
                Err(error) => return Err(failed("read the contact", error)),
            };
            let asked = contacts.into_iter().find(|stored| stored.consent == request.consent);
            Ok(asked.map(|stored| stored.contact).filter(|contact| !contact.verified))
        })
    }

    fn draw<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>> {
        Box::pin(async move {
            let VerificationParts { client, keys, config, public_url, .. } = self.parts();
            let code = Code::draw();
            let holder = CodeHolder::new(&request.subject, &request.consent);
            let issued = code::issue(client, keys, &holder, &code, config.lifetime).await;
            issued.map_err(|error| failed("store the code", error))?;
            let link = match public_url {
                Some(url) => {
                    let created = confirm_link::create(client, keys, url, request, config.lifetime).await;
                    Some(created.map_err(|error| failed("store the confirm link", error))?)
                }
                None => None,
            };
            Ok(CodeAndLink { code: code.reveal().to_owned(), link, lifetime: config.lifetime })
        })
    }

    fn grant<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>> {
        Box::pin(async move {
            let granted = consent_to(&self.parts().client, &self.parts().keys, request).await;
            granted.map(drop).map_err(|error| failed("store the consent", error))
        })
    }

    fn settled(&self, request: &VerificationRequest, settlement: &Settlement) {
        match settlement {
            Settlement::Delivered(_) => VerificationEvent::Sent.count(),
            // A receiver that took the challenge and did not echo it.
            Settlement::Dead(outcome) if outcome.status.is_some_and(|status| (200..300).contains(&status)) => {
                VerificationEvent::Sent.count();
                record(&request.subject, &request.contact, VerificationEvent::Rejected);
            }
            Settlement::Dead(_) | Settlement::Retry(..) => VerificationEvent::Failed.count(),
            Settlement::Throttled(_) => VerificationEvent::Throttled.count(),
            _ => {}
        }
    }
}

fn failed(operation: &'static str, source: impl Error + Send + Sync + 'static) -> ConsentRequestError {
    ConsentRequestError { operation, source: Box::new(source) }
}
