//! Notifications: what is told to somebody.

use serde::{Deserialize, Serialize};

use super::text_form::text_enum;
use super::{Alert, AlertId, ConsentId, ContactId, DailyDigest, DeliveryId, DisabledNotice, Subject, UnixMs};

/// What a delivery carries to its contact.
///
/// It is stored in the delivery's hash: `type` holds [`NotificationKind::as_str`], and the field of that name holds the
/// JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// A threshold was reached. Every contact of the subject gets one.
    Alert(Alert),
    /// A question to one address: whether whoever is there wants our alerts.
    Verification(VerificationRequest),
    /// Another contact of the subject is disabled.
    ContactDisabled(DisabledNotice),
    /// What did not reach anybody in a day, for the operator.
    Digest(DailyDigest),
}

text_enum! {
    /// What a delivery carries.
    pub enum NotificationKind {
        /// [`Notification::Alert`].
        Alert = "alert",
        /// [`Notification::Verification`].
        Verification = "verification",
        /// [`Notification::ContactDisabled`].
        ContactDisabled = "contact_disabled",
        /// [`Notification::Digest`].
        Digest = "digest",
    }
}

/// A request to ask one contact for its consent. Holds no secret: code and link are drawn at each attempt, and only
/// their digests are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationRequest {
    /// The id of the request: ASCII letters, digits, `_` and `-`. A second request of the same id is the same request.
    pub id: String,
    /// Whose alerts are to come there.
    pub subject: Subject,
    /// The contact, as it is stored.
    pub contact: ContactId,
    /// What consent is asked for: a digest of the endpoint and of the entry that was added. If the contact no longer
    /// has it, the request is void.
    pub consent: ConsentId,
    /// When it was asked for, server time.
    pub requested_at_ms: UnixMs,
    /// When nobody waits for the message any more, server time: no attempt starts after it.
    pub expires_at_ms: UnixMs,
}

impl Notification {
    /// Reads the JSON that [`Self::to_json`] wrote for this type.
    pub fn from_json(kind: NotificationKind, json: &[u8]) -> Result<Self, serde_json::Error> {
        match kind {
            NotificationKind::Alert => serde_json::from_slice(json).map(Self::Alert),
            NotificationKind::Verification => serde_json::from_slice(json).map(Self::Verification),
            NotificationKind::ContactDisabled => serde_json::from_slice(json).map(Self::ContactDisabled),
            NotificationKind::Digest => serde_json::from_slice(json).map(Self::Digest),
        }
    }

    /// The JSON of what is told, without its type.
    pub fn to_json(&self) -> String {
        match self {
            Self::Alert(alert) => serde_json::to_string(alert),
            Self::Verification(request) => serde_json::to_string(request),
            Self::ContactDisabled(notice) => serde_json::to_string(notice),
            Self::Digest(digest) => serde_json::to_string(digest),
        }
        .expect("plain strings and numbers serialise")
    }

    /// Its type.
    pub const fn kind(&self) -> NotificationKind {
        match self {
            Self::Alert(_) => NotificationKind::Alert,
            Self::Verification(_) => NotificationKind::Verification,
            Self::ContactDisabled(_) => NotificationKind::ContactDisabled,
            Self::Digest(_) => NotificationKind::Digest,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Alert(alert) => alert.id.as_str(),
            Self::Verification(request) => &request.id,
            Self::ContactDisabled(notice) => &notice.id,
            Self::Digest(digest) => &digest.id,
        }
    }

    /// The id of the alert, if it is one.
    pub const fn alert_id(&self) -> Option<&AlertId> {
        match self {
            Self::Alert(alert) => Some(&alert.id),
            Self::Verification(_) | Self::ContactDisabled(_) | Self::Digest(_) => None,
        }
    }

    /// The id of the request for consent, if it is one.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Verification(request) => Some(&request.id),
            Self::Alert(_) | Self::ContactDisabled(_) | Self::Digest(_) => None,
        }
    }

    /// Whom it is about; `None` where that is nobody.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Alert(alert) => Some(&alert.subject),
            Self::Verification(request) => Some(&request.subject),
            Self::ContactDisabled(notice) => Some(&notice.subject),
            Self::Digest(_) => None,
        }
    }

    /// When what it tells happened, server time.
    pub const fn happened_at(&self) -> UnixMs {
        match self {
            Self::Alert(alert) => alert.raised_at_ms,
            Self::Verification(request) => request.requested_at_ms,
            Self::ContactDisabled(notice) => notice.state.at,
            Self::Digest(digest) => digest.until_ms,
        }
    }

    /// The id of its one delivery to this contact.
    pub fn delivery_to(&self, contact: &ContactId) -> DeliveryId {
        DeliveryId::of_notification(self.id(), contact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delivery that is read back as something else would send a code instead of an alert.
    #[test]
    fn a_notification_reads_back_as_what_it_was() {
        let request = VerificationRequest {
            id: "verification_1".to_owned(),
            subject: "alice".parse().expect("legal"),
            contact: ContactId::from_stored("c_1"),
            consent: ConsentId::from_stored("abc.1"),
            requested_at_ms: UnixMs(1),
            expires_at_ms: UnixMs(2),
        };
        let told = Notification::Verification(request);
        let read = Notification::from_json(told.kind(), told.to_json().as_bytes()).expect("JSON");
        assert_eq!(read, told);
        assert!(Notification::from_json(NotificationKind::Alert, told.to_json().as_bytes()).is_err());
        for kind in NotificationKind::ALL {
            assert_eq!(NotificationKind::from_stored(kind.as_str()), Some(kind));
        }
    }
}
