//! The interface through which the outbox asks the verification layer about requests for consent.
//!
//! A request for consent is a delivery, but its contact is not verified yet, and its message contains a secret that is
//! generated for each attempt. The verification layer, which is above the outbox, knows both. So the outbox calls it
//! through a trait.

use std::error::Error;
use std::fmt;

use super::settle::Settlement;
use crate::channels::{BoxFuture, CodeAndLink};
use crate::contacts::Contact;
use crate::types::{Secret, Subject, VerificationRequest};

/// Answers questions of the outbox about requests for consent.
pub trait ConsentRequests: fmt::Debug + Send + Sync {
    /// The contact that is asked for consent, in its current form. `None`: the request is void because the contact was
    /// removed, changed, or verified meanwhile; its delivery ends `cancelled`. Changes nothing.
    fn contact<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>>;

    /// Generates a new code and link for one attempt, and stores their digests. Called immediately before the message
    /// is sent. May invalidate the code and link of the previous attempt.
    fn generate<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>>;

    /// Stores the consent of a receiver that answered its challenge correctly, unless the request has become void.
    /// Repeatable. After an error the outbox attempts the delivery again.
    fn grant<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>>;

    /// The link with which a reader of emails mutes the subject's own contact. `None`, the default, if there is no
    /// link. Changes no contact.
    fn unsubscribe_url<'a>(
        &'a self,
        _subject: &'a Subject,
        _contact: &'a Contact,
    ) -> BoxFuture<'a, Result<Option<Secret>, ConsentRequestError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Reports the recorded end of an attempt, for metrics and logs. May be called twice for one attempt.
    fn settled(&self, request: &VerificationRequest, settlement: &Settlement);
}

/// A request for consent could not be read or changed. Transient: the delivery is attempted again.
#[derive(Debug, thiserror::Error)]
#[error("{operation}")]
pub struct ConsentRequestError {
    /// The operation, such as `store the code`.
    pub operation: &'static str,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}
