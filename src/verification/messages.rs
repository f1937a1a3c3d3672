//! What the outbox asks while it delivers a verification: which contact, the code and link of an attempt, and the consent of a
//! receiver that echoed its challenge.

use std::error::Error;

use super::code::{self, Code, CodeHolder};
use super::confirm_link::{self, ConfirmTarget};
use super::service::{VerificationParts, consent, record};
use super::{ContactRef, VerificationEvent, VerificationService};
use crate::channels::{BoxFuture, CodeAndLink};
use crate::contacts::edit::VerifyOutcome;
use crate::contacts::store::{EditContactsError, read_contacts};
use crate::contacts::{ConsentId, Contact};
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
            let asked = contacts.into_iter().find(|stored| stored.consent.as_str() == request.consent);
            Ok(asked.map(|stored| stored.contact).filter(|contact| !contact.verified))
        })
    }

    fn draw<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>> {
        Box::pin(async move {
            let VerificationParts { client, keys, config, public_url, .. } = self.parts();
            let (contact, consent) = (contact_of(request), ConsentId::from_stored(&request.consent));
            let code = Code::draw();
            let holder = CodeHolder::new(&request.subject, &consent);
            let issued = code::issue(client, keys, &holder, &code, config.lifetime).await;
            issued.map_err(|error| failed("store the code", error))?;
            let link = match public_url {
                Some(url) => {
                    let target = ConfirmTarget { contact, consent };
                    let created = confirm_link::create(client, keys, url, target, config.lifetime).await;
                    Some(created.map_err(|error| failed("store the confirm link", error))?)
                }
                None => None,
            };
            Ok(CodeAndLink { code: code.reveal().to_owned(), link, lifetime: config.lifetime })
        })
    }

    fn grant<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>> {
        Box::pin(async move {
            let asked = ConsentId::from_stored(&request.consent);
            let outcome = consent(&self.parts().client, &self.parts().keys, &request.subject, &asked).await;
            match outcome.map_err(|error| failed("store the consent", error))? {
                VerifyOutcome::Verified => record(&contact_of(request), VerificationEvent::Verified),
                VerifyOutcome::AlreadyVerified => {}
                VerifyOutcome::Outdated => record(&contact_of(request), VerificationEvent::Rejected),
            }
            Ok(())
        })
    }

    fn settled(&self, request: &VerificationRequest, settlement: &Settlement) {
        match settlement {
            Settlement::Delivered(_) => VerificationEvent::Sent.count(),
            // A receiver that took the challenge and did not echo it.
            Settlement::Dead(outcome) if outcome.status.is_some_and(|status| (200..300).contains(&status)) => {
                VerificationEvent::Sent.count();
                record(&contact_of(request), VerificationEvent::Rejected);
            }
            Settlement::Dead(_) | Settlement::Retry(..) => VerificationEvent::Failed.count(),
            Settlement::Throttled(_) => VerificationEvent::Throttled.count(),
            _ => {}
        }
    }
}

fn contact_of(request: &VerificationRequest) -> ContactRef {
    ContactRef { subject: request.subject.clone(), contact: request.contact.clone() }
}

fn failed(operation: &'static str, source: impl Error + Send + Sync + 'static) -> ConsentRequestError {
    ConsentRequestError { operation, source: Box::new(source) }
}
