//! Contacts that a subject's own side adds: kept apart until whoever is at the address has confirmed it.
//!
//! Such a contact stands in the subject's hash with `"verified": false` and gets no alerts. Its address is asked for consent: a mail
//! with a one-time password and a confirm link, or a challenge that a receiver has to echo. Owns the passwords, the links, and how
//! often anybody may ask or guess. Never learns who is asking: that is for whoever calls. The same is answered for contacts that are
//! there and contacts that are not, and what takes long is done after the answer. Read next: [`desk`], what can be asked for;
//! [`messenger`], what is sent.

mod array;
mod claim;
pub mod config;
mod confirm_link;
pub mod desk;
mod fields;
pub mod messenger;
mod pace;
mod password;

use crate::contacts::{Contact, Endpoint};
use crate::types::alert::digest_of;
use crate::types::{Channel, ContactId, Subject, meters};

pub use config::VerificationConfig;
pub use desk::{Confirmed, Desk, DeskError, DeskParts, Guessed};
pub use messenger::{Messenger, MessengerParts};
pub use password::PASSWORD_DIGITS;

/// The most contacts of one subject that are added here. Each alert goes to each of them.
pub const CONTACTS_MAX: usize = 16;

/// A contact that is to be verified, or is said to be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Whose.
    pub subject: Subject,
    /// Which, as the caller named it.
    pub contact: ContactId,
}

impl Candidate {
    /// What stands for it in keys: bounded, whatever its id is.
    fn digest(&self) -> String {
        digest_of(&[self.subject.as_str(), self.contact.as_str()])
    }
}

/// A message that waits to be sent, and the request that it was counted as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Who is to be asked.
    candidate: Candidate,
    /// No more than one message leaves for it.
    request: String,
}

/// What stands in keys for a contact as it was added this time: what was left by one of the same address that was removed before has
/// no part in it. `asked` is that of [`array::Unverified`].
fn element(subject: &Subject, asked: &str) -> String {
    digest_of(&[subject.as_str(), asked])
}

/// What an endpoint is known by once it was asked: consent is for this address (and secret) and for no other that takes its id.
fn fingerprint(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Email { address } => digest_of(&[Channel::Email.as_str(), address]),
        Endpoint::Webhook { url, secret } => digest_of(&[Channel::Webhook.as_str(), url, secret.reveal()]),
    }
}

/// The id that a contact of this address gets when it is added here.
fn added_as(contact: &Contact) -> ContactId {
    match &contact.endpoint {
        Endpoint::Email { .. } => Contact::email(&contact.place()).id,
        Endpoint::Webhook { .. } => contact.derived_id(),
    }
}

/// What requests for an address are counted under. Mailboxes are counted without regard to case, as nearly every mail server treats
/// them, so that a change of case asks the same person and no other.
fn counted_as(contact: &Contact) -> ContactId {
    match &contact.endpoint {
        Endpoint::Email { .. } => Contact::email(&contact.place().to_lowercase()).id,
        Endpoint::Webhook { .. } => contact.derived_id(),
    }
}

/// What happened in the course of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A message left.
    Sent,
    /// A request came too early or too often, or a cap had no room for its message.
    Throttled,
    /// A message could not be sent.
    Failed,
    /// A contact is verified.
    Verified,
    /// A password, link or echo was not the right one.
    Rejected,
}

impl Event {
    /// Every one, for a counter that begins at zero.
    pub const ALL: [Self; 5] = [Self::Sent, Self::Throttled, Self::Failed, Self::Verified, Self::Rejected];

    /// The label `outcome`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::Verified => "verified",
            Self::Rejected => "rejected",
        }
    }

    fn count(self) {
        metrics::counter!(meters::VERIFICATIONS, "outcome" => self.as_str()).increment(1);
    }
}
