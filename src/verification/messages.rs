//! Answers the outbox's questions about a verification: the contact, the code and link of an attempt, and the consent
//! of a receiver that echoed its challenge.

use std::error::Error;

use super::issue::{Issued, IssuedToken, issue};
use super::{VerificationError, VerificationEvent, VerificationService, code, confirm_link};
use crate::channels::{BoxFuture, CodeAndLink};
use crate::contacts::Contact;
use crate::contacts::resolver::read_locale;
use crate::outbox::{ConsentRequestError, ConsentRequests, Settlement};
use crate::types::{Secret, Subject, VerificationRequest, nonce};

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
            let VerificationRequest { subject, consent, .. } = request;
            let first = self.partitions.first();
            let (code, holder) = (code::generate(), code::holder(subject, consent));
            let (mut link, mut token) = (None, None);
            if let Some(public_url) = &self.public_url {
                let generated = confirm_link::generate();
                let request = serde_json::to_string(request).expect("strings and numbers are JSON");
                token = Some(IssuedToken { digest: confirm_link::stored_form(&generated), request });
                link = Some(Secret::new(confirm_link::url_of(public_url, "confirm", &generated)));
            }
            let issued = Issued {
                subject,
                consent,
                lifetime: self.config.lifetime,
                code_key: first.keys.verify_code(&holder),
                code: code::stored_form(&nonce(), &holder, &code),
                token,
            };
            issue(first, issued).await.map_err(|error| failed("store the code and the confirm link", error))?;
            Ok(CodeAndLink { code: Secret::new(code), link, lifetime: self.config.lifetime })
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
            let link = Self::unsubscribe_url(self, subject, contact).await;
            link.map_err(|error| failed("make the unsubscribe link", error))
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
