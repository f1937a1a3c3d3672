//! Notices: what contacts are told that is no alert.

use serde::{Deserialize, Serialize};

use super::alert::digest_of;
use super::{Channel, ContactId, DeliveryId, DisabledState, Subject, UnixMs};

/// A contact of a subject is disabled: told to the subject's other contacts and to the operator's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisabledNotice {
    /// The id of the notice: the same however many deliveries find the contact disabled.
    pub id: String,
    /// Whose contact.
    pub subject: Subject,
    /// Which one.
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

/// What did not reach anybody since the digest before: told to the operator's contacts once a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyDigest {
    /// The id of the digest: it follows from when it is due.
    pub id: String,
    /// When the digest before was due; a day before this one where there was none. Server time.
    pub from_ms: UnixMs,
    /// When it is due.
    pub until_ms: UnixMs,
    /// How many deliveries were given up between both.
    pub dead: u64,
    /// The first of them.
    pub dead_first: Vec<DeadDelivery>,
    /// How many alerts wait because their subject has no contact.
    pub waiting: u64,
    /// The first of those subjects.
    pub waiting_first: Vec<Subject>,
}

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadDelivery {
    /// The delivery.
    pub id: DeliveryId,
    /// Whom it is about; empty where it is about nobody.
    pub subject: String,
    /// How it travelled.
    pub channel: Channel,
    /// What went wrong last.
    pub error: String,
    /// When it was given up.
    pub at_ms: UnixMs,
}
