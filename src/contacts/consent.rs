//! What a consent refers to.

use super::Contact;
use crate::types::Secret;
use crate::types::alert::digest_of;

/// Identifies what somebody consents to: one endpoint, as it was added one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentId(String);

impl ConsentId {
    /// Takes an id that was stored.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn of(contact: &Contact, nonce: &str) -> Self {
        let mut endpoint = vec![contact.channel().as_str(), contact.address()];
        endpoint.extend(contact.secret().map(Secret::reveal));
        Self(format!("{}.{nonce}", digest_of(&endpoint)))
    }

    /// Whether the other one is for the same endpoint, as it was added then or another time.
    pub(super) fn is_of_same_endpoint(&self, other: &Self) -> bool {
        self.0.split_once('.').map(|(endpoint, _)| endpoint) == other.0.split_once('.').map(|(endpoint, _)| endpoint)
    }
}
