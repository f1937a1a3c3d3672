//! The id of a contact.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::alert::digest_of;
use super::channel::Channel;

/// A contact's id. Deliveries refer to it, so that an address can change under a delivery that is still pending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContactId(String);

/// How an id that follows from an address begins.
const DERIVED_PREFIX: &str = "c_";
/// How many hex digits follow.
const DERIVED_DIGITS: usize = 16;

impl ContactId {
    /// The id that follows from a channel and the normal form of an address.
    #[must_use]
    pub fn derived(channel: Channel, address: &str) -> Self {
        Self(format!("{DERIVED_PREFIX}{}", &digest_of(&[channel.as_str(), address])[..DERIVED_DIGITS]))
    }

    /// Takes an id that was stored or configured.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
