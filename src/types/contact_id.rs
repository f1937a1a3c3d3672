//! The id of a contact, and the id of what its owner consents to.

use super::alert::digest_of;
use super::channel::Channel;
use super::subject::Subject;
use super::text_form::text_id;

text_id! {
    /// A contact's id. Deliveries refer to it, so that the address of a contact can change while a delivery is pending.
    ContactId
}

/// Prefix of an id that is derived from an address.
const DERIVED_PREFIX: &str = "c_";
/// Prefix of the ids of the operator's contacts. The command line and the API accept no id with a colon.
const OPERATOR_PREFIX: &str = "operator:";
/// Number of hex digits behind the prefix.
const DERIVED_DIGITS: usize = 16;

impl ContactId {
    /// The id derived from a channel and the normal form of an address.
    pub fn derived(channel: Channel, address: &str) -> Self {
        Self(format!("{DERIVED_PREFIX}{}", &digest_of(&[channel.as_str(), address])[..DERIVED_DIGITS]))
    }

    /// The id that a contact of this level has at the levels below, whose own contacts may have its id or its address.
    pub fn inherited_from(&self, level: &Subject) -> Self {
        Self(format!("{DERIVED_PREFIX}{}", &digest_of(&[level.as_str(), &self.0])[..DERIVED_DIGITS]))
    }

    /// The id of the operator's contact with this name in the configuration: a contact of a subject may have the same
    /// name.
    pub fn of_operator(&self) -> Self {
        Self(format!("{OPERATOR_PREFIX}{}", self.0))
    }

    /// Whether it is the id of an operator's contact.
    pub fn is_of_operator(&self) -> bool {
        self.0.starts_with(OPERATOR_PREFIX)
    }
}

text_id! {
    /// Identifies what an owner consents to: one endpoint, in one entry of a contact.
    ConsentId
}

impl ConsentId {
    /// The id for the endpoint with these texts, in the entry with this nonce.
    pub fn derive(endpoint: &[&str], nonce: &str) -> Self {
        Self(format!("{}.{nonce}", digest_of(endpoint)))
    }

    /// Whether both ids are of the same endpoint, in any entry.
    pub fn is_of_same_endpoint(&self, other: &Self) -> bool {
        self.0.split_once('.').map(|(endpoint, _)| endpoint) == other.0.split_once('.').map(|(endpoint, _)| endpoint)
    }
}
