//! Deliveries: one notification for one contact.

use serde::{Deserialize, Serialize};

use super::alert::digest_of;
use super::text_form::{parsed_text_enum, text_enum, text_id};
use super::{AlertId, ContactId};

text_id! {
    /// A delivery's id: `delivery_` and 32 hex digits over notification and contact, so that a repeated fan-out creates
    /// nothing twice.
    DeliveryId
}

impl DeliveryId {
    /// The id of the delivery of this alert to this contact.
    pub fn derive(alert: &AlertId, contact: &ContactId) -> Self {
        Self::of_notification(alert.as_str(), contact)
    }

    /// The id of the delivery of the notification with this id to this contact.
    pub fn of_notification(id: &str, contact: &ContactId) -> Self {
        Self(format!("delivery_{}", digest_of(&[id, contact.as_str()])))
    }
}

text_enum! {
    /// State of a delivery. It starts as `pending` and ends in exactly one other state; a replay makes a dead delivery
    /// pending again.
    pub enum DeliveryState {
        /// Waiting for its next attempt, or for a contact.
        Pending = "pending",
        /// The receiver accepted it.
        Delivered = "delivered",
        /// Given up: the outcome was permanent, or `give_up_after` has passed.
        Dead = "dead",
        /// The contact, the subject or the metric is muted.
        Muted = "muted",
        /// Too old to be useful: its period ended too long ago.
        Expired = "expired",
        /// Its contact was removed or disabled before the delivery, or an operator cancelled it.
        Cancelled = "cancelled",
    }
}

parsed_text_enum!(DeliveryState, "a state");

/// One line of a delivery's attempt log: the value of a field `attempt:<n>` of its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it ended, server time.
    pub at_ms: i64,
    /// The [`OutcomeClass`](super::OutcomeClass) as text.
    pub outcome: String,
    /// HTTP status or SMTP reply code, if there was one.
    pub status: Option<u16>,
    /// Duration of the attempt, milliseconds.
    pub duration_ms: u64,
    /// What went wrong, in a few words.
    pub error: Option<String>,
    /// What the operator can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Host and port of the receiver. For the operator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The receiver's reply, in printable form. For the operator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
}
