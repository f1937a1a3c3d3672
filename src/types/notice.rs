//! Notices: notifications other than alerts.

use serde::{Deserialize, Serialize};

use super::alert::digest_of;
use super::{Channel, ContactId, DeliveryId, DisabledState, Subject, UnixMs};

/// Tells a subject's other contacts and the operator's contacts that a contact of the subject was disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisabledNotice {
    /// The id of the notice, the same for all deliveries that find the contact disabled.
    pub id: String,
    /// The subject of the contact.
    pub subject: Subject,
    /// The disabled contact.
    pub contact: ContactId,
    /// Its channel.
    pub channel: Channel,
    /// Its address; passwords in a URL are `***`.
    pub address: String,
    /// Why, and since when.
    pub state: DisabledState,
}

impl DisabledNotice {
    /// The notice that this contact is disabled.
    pub fn new(
        subject: &Subject,
        contact: &ContactId,
        (channel, address): (Channel, String),
        state: DisabledState,
    ) -> Self {
        let digest = digest_of(&[subject.as_str(), contact.as_str(), &state.at.to_string()]);
        let (subject, contact) = (subject.clone(), contact.clone());
        Self { id: format!("disabled_{digest}"), subject, contact, channel, address, state }
    }
}

/// Failed and waiting deliveries since the previous digest, for the operator's contacts, once a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyDigest {
    /// The id of the digest, derived from its due time.
    pub id: String,
    /// Due time of the previous digest, or a day before this one. Server time.
    pub from_ms: UnixMs,
    /// Due time of this digest.
    pub until_ms: UnixMs,
    /// Number of deliveries given up from `from_ms` until `until_ms`.
    pub dead: u64,
    /// The first of these deliveries.
    pub dead_first: Vec<DeadDelivery>,
    /// Number of alerts that wait because their subject has no contact.
    pub waiting: u64,
    /// The first of these subjects.
    pub waiting_first: Vec<Subject>,
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadDelivery {
    /// The delivery.
    pub id: DeliveryId,
    /// The subject; empty if the delivery has none.
    pub subject: String,
    /// Its channel.
    pub channel: Channel,
    /// The error of its last attempt.
    pub error: String,
    /// When it was given up.
    pub at_ms: UnixMs,
}
