//! What the outbox asks of the layer above about requests for consent.
//!
//! A request for consent is a delivery like any other, but its contact is not verified yet, and what its message shows
//! is secret and drawn anew for each attempt. Both are the verification's own; it is asked through this trait, so that
//! the outbox does not know it.

use std::error::Error;
use std::fmt;

use super::settle::Settlement;
use crate::channels::{BoxFuture, CodeAndLink};
use crate::contacts::Contact;
use crate::types::{Secret, Subject, VerificationRequest};

/// Answers the outbox about requests for consent.
pub trait ConsentRequests: fmt::Debug + Send + Sync {
    /// The contact whose consent is asked for, as it stands now. `None`: the request is void, because the contact was
    /// removed, changed, or verified meanwhile; its delivery ends `cancelled`. Changes nothing.
    fn contact<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>>;

    /// Generates a new code and link for one attempt and stores their digests, before anything is sent. Called only
    /// when nothing holds the message back any more. Those of the attempt before may become invalid.
    fn generate<'a>(
        &'a self,
        request: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>>;

    /// The receiver has answered a challenge rightly: stores its consent, unless the request has become void.
    /// Repeatable.
    ///
    /// After an error the delivery is attempted again.
    fn grant<'a>(&'a self, request: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>>;

    /// The link with which a person who gets mail mutes the contact, which is the subject's own. `None`, the default,
    /// if there is no link. Changes no contact.
    fn unsubscribe_url<'a>(
        &'a self,
        _subject: &'a Subject,
        _contact: &'a Contact,
    ) -> BoxFuture<'a, Result<Option<Secret>, ConsentRequestError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// This is how an attempt ended, and it has been recorded; for metrics and logs. May be called twice for one
    /// attempt.
    fn settled(&self, request: &VerificationRequest, settlement: &Settlement);
}

/// A request for consent could not be looked at or changed. Passing: the delivery is attempted again.
#[derive(Debug, thiserror::Error)]
#[error("{operation}")]
pub struct ConsentRequestError {
    /// What was being done, as `store the code`.
    pub operation: &'static str,
    /// What went wrong.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}
