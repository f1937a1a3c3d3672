//! The id of a contact, and the id of what its owner consents to.

use super::alert::digest_of;
use super::channel::Channel;
use super::text_form::text_id;

text_id! {
    /// A contact's id. Deliveries refer to it, so that an address can change under a delivery that is still pending.
    ContactId
}

/// How an id that follows from an address begins.
const DERIVED_PREFIX: &str = "c_";
/// How the ids of the operator's contacts begin. Holds a colon, as no id does that the command line or the API takes.
const OPERATOR_PREFIX: &str = "operator:";
/// How many hex digits follow.
const DERIVED_DIGITS: usize = 16;

impl ContactId {
    /// The id that follows from a channel and the normal form of an address.
    pub fn derived(channel: Channel, address: &str) -> Self {
        Self(format!("{DERIVED_PREFIX}{}", &digest_of(&[channel.as_str(), address])[..DERIVED_DIGITS]))
    }

    /// The id of the operator's contact that the configuration calls so: a contact of a subject may have the same name.
    pub fn of_operator(&self) -> Self {
        Self(format!("{OPERATOR_PREFIX}{}", self.0))
    }

    /// Whether it is the id of a contact of the operator.
    pub fn is_of_operator(&self) -> bool {
        self.0.starts_with(OPERATOR_PREFIX)
    }
}

text_id! {
    /// Identifies what somebody consents to: one endpoint, as it was added one time.
    ConsentId
}

impl ConsentId {
    /// The id for an endpoint that is told apart by these texts, added under this nonce.
    pub fn derive(endpoint: &[&str], nonce: &str) -> Self {
        Self(format!("{}.{nonce}", digest_of(endpoint)))
    }

    /// Whether both are of one endpoint, whenever it was added.
    pub fn is_of_same_endpoint(&self, other: &Self) -> bool {
        self.0.split_once('.').map(|(endpoint, _)| endpoint) == other.0.split_once('.').map(|(endpoint, _)| endpoint)
    }
}
