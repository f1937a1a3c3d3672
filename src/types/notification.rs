//! Notifications: the content of deliveries, and those among them that are about a quota.

use serde::{Deserialize, Serialize};

use super::text_form::text_enum;
use super::{
    Alert, AlertId, ConsentId, ContactId, DailyDigest, DeliveryId, DisabledNotice, GrantNotice, Metric, Period,
    ResolvedNotice, ResolvedScope, Subject, UnixMs, UsageNotice, Window,
};

/// The content of a delivery.
///
/// It is stored in the delivery's hash: `type` holds [`NotificationKind::as_str`], and the field of that name holds the
/// JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Notification {
    /// A threshold was reached. Each contact of the subject gets one delivery.
    Alert(Alert),
    /// Units of a grant expire soon. Each contact of the subject gets one delivery.
    GrantExpires(GrantNotice),
    /// A limit will be reached, or usage is far above the usual. Each contact of the subject gets one delivery.
    Usage(UsageNotice),
    /// Alerts have ended. Each contact of the subject that asks for it gets one delivery.
    Resolved(ResolvedNotice),
    /// Asks one address for consent to receive alerts.
    Verification(VerificationRequest),
    /// Another contact of the subject was disabled.
    ContactDisabled(DisabledNotice),
    /// The daily digest of failed and waiting deliveries, for the operator.
    Digest(DailyDigest),
}

text_enum! {
    /// The type of a notification.
    pub enum NotificationKind {
        /// [`Notification::Alert`].
        Alert = "alert",
        /// [`Notification::GrantExpires`].
        GrantExpires = "grant_expires",
        /// [`Notification::Usage`].
        Usage = "usage_notice",
        /// [`Notification::Resolved`].
        Resolved = "resolved",
        /// [`Notification::Verification`].
        Verification = "verification",
        /// [`Notification::ContactDisabled`].
        ContactDisabled = "contact_disabled",
        /// [`Notification::Digest`].
        Digest = "digest",
    }
}

/// A request to ask one contact for its consent. Holds no secret: each attempt draws a code and a link, and Redis holds
/// only their digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationRequest {
    /// The id of the request: ASCII letters, digits, `_` and `-`. Requests with the same id are the same request.
    pub id: String,
    /// The address would receive the alerts of this subject.
    pub subject: Subject,
    /// The contact's id.
    pub contact: ContactId,
    /// What the owner consents to: a digest of the endpoint and the contact's entry. If the contact no longer has it,
    /// the request is void.
    pub consent: ConsentId,
    /// Time of the request, server time.
    pub requested_at_ms: UnixMs,
    /// Expiry of the request, server time: no attempt starts after it.
    pub expires_at_ms: UnixMs,
}

impl Notification {
    /// Parses JSON of this type, as written by [`Self::to_json`].
    pub fn from_json(kind: NotificationKind, json: &[u8]) -> Result<Self, serde_json::Error> {
        match kind {
            NotificationKind::Alert => serde_json::from_slice(json).map(Self::Alert),
            NotificationKind::GrantExpires => serde_json::from_slice(json).map(Self::GrantExpires),
            NotificationKind::Usage => serde_json::from_slice(json).map(Self::Usage),
            NotificationKind::Resolved => serde_json::from_slice(json).map(Self::Resolved),
            NotificationKind::Verification => serde_json::from_slice(json).map(Self::Verification),
            NotificationKind::ContactDisabled => serde_json::from_slice(json).map(Self::ContactDisabled),
            NotificationKind::Digest => serde_json::from_slice(json).map(Self::Digest),
        }
    }

    /// The content as JSON, without the type.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain strings and numbers serialise")
    }

    /// Its type.
    pub const fn kind(&self) -> NotificationKind {
        match self {
            Self::Alert(_) => NotificationKind::Alert,
            Self::GrantExpires(_) => NotificationKind::GrantExpires,
            Self::Usage(_) => NotificationKind::Usage,
            Self::Resolved(_) => NotificationKind::Resolved,
            Self::Verification(_) => NotificationKind::Verification,
            Self::ContactDisabled(_) => NotificationKind::ContactDisabled,
            Self::Digest(_) => NotificationKind::Digest,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Alert(alert) => alert.id.as_str(),
            Self::GrantExpires(notice) => &notice.id,
            Self::Usage(notice) => &notice.id,
            Self::Resolved(notice) => &notice.id,
            Self::Verification(request) => &request.id,
            Self::ContactDisabled(notice) => &notice.id,
            Self::Digest(digest) => &digest.id,
        }
    }

    /// The id of the alert, if it is one.
    pub fn alert_id(&self) -> Option<&AlertId> {
        self.quota()?.alert_id()
    }

    /// The id of the request for consent, if the notification is one.
    pub fn request_id(&self) -> Option<&str> {
        let Self::Verification(request) = self else { return None };
        Some(&request.id)
    }

    /// The id of the notice about a quota, if it is one.
    pub fn notice_id(&self) -> Option<&str> {
        self.quota()?.notice_id()
    }

    /// The subject; `None` for the digest.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Alert(alert) => Some(&alert.subject),
            Self::GrantExpires(notice) => Some(&notice.subject),
            Self::Usage(notice) => Some(&notice.subject),
            Self::Resolved(notice) => Some(&notice.subject),
            Self::Verification(request) => Some(&request.subject),
            Self::ContactDisabled(notice) => Some(&notice.subject),
            Self::Digest(_) => None,
        }
    }

    /// Whether a mute holds it back.
    pub fn can_be_muted(&self) -> bool {
        !matches!(self, Self::Verification(_)) && self.quota().is_none_or(QuotaNotification::can_be_muted)
    }

    /// The notification about a quota; `None` for a notification of one contact only.
    pub const fn quota(&self) -> Option<QuotaNotification<'_>> {
        match self {
            Self::Alert(alert) => Some(QuotaNotification::Alert(alert)),
            Self::GrantExpires(notice) => Some(QuotaNotification::GrantExpires(notice)),
            Self::Usage(notice) => Some(QuotaNotification::Usage(notice)),
            Self::Resolved(notice) => Some(QuotaNotification::Resolved(notice)),
            Self::Verification(_) | Self::ContactDisabled(_) | Self::Digest(_) => None,
        }
    }

    /// When it loses its meaning, server time: no attempt starts after it. `None` for a notification that stays true.
    pub const fn valid_until(&self) -> Option<UnixMs> {
        match self {
            Self::GrantExpires(notice) => Some(notice.expires_at.0),
            Self::Usage(notice) => Some(notice.valid_until()),
            Self::Verification(request) => Some(request.expires_at_ms),
            Self::Alert(_) | Self::Resolved(_) | Self::ContactDisabled(_) | Self::Digest(_) => None,
        }
    }

    /// When the event of the notification happened, server time.
    pub const fn happened_at(&self) -> UnixMs {
        match self {
            Self::Alert(alert) => alert.raised_at_ms,
            Self::GrantExpires(notice) => notice.raised_at.0,
            Self::Usage(notice) => notice.raised_at.0,
            Self::Resolved(notice) => notice.raised_at.0,
            Self::Verification(request) => request.requested_at_ms,
            Self::ContactDisabled(notice) => notice.state.at,
            Self::Digest(digest) => digest.until_ms,
        }
    }

    /// The id of its delivery to this contact.
    pub fn delivery_to(&self, contact: &ContactId) -> DeliveryId {
        DeliveryId::of_notification(self.id(), contact)
    }
}

/// A notification about a subject's quota.
///
/// A script raises it once and writes it to the outbox, in the field that its kind names. Fan-out creates a delivery
/// for each contact of the subject whose filter accepts it. A new kind needs a variant here and in [`Notification`],
/// and its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaNotification<'a> {
    /// A threshold was reached.
    Alert(&'a Alert),
    /// Units of a grant expire soon.
    GrantExpires(&'a GrantNotice),
    /// A limit will be reached, or usage is far above the usual.
    Usage(&'a UsageNotice),
    /// Alerts have ended.
    Resolved(&'a ResolvedNotice),
}

impl QuotaNotification<'_> {
    /// Whether a mute holds it back: an incident that an alert opened is always closed.
    pub fn can_be_muted(self) -> bool {
        !matches!(self, Self::Resolved(notice) if notice.scope == ResolvedScope::Alert)
    }
}

macro_rules! from_quota_notifications {
    ($($variant:ident($of:ty)),+) => { $(
        impl<'a> From<&'a $of> for QuotaNotification<'a> {
            fn from(of: &'a $of) -> Self {
                Self::$variant(of)
            }
        }
    )+ };
}

from_quota_notifications!(Alert(Alert), GrantExpires(GrantNotice), Usage(UsageNotice), Resolved(ResolvedNotice));

/// Reads a field that each notification about a quota has.
macro_rules! shared_field {
    ($notification:ident, $field:ident) => {
        match $notification {
            Self::Alert(of) => &of.$field,
            Self::GrantExpires(of) => &of.$field,
            Self::Usage(of) => &of.$field,
            Self::Resolved(of) => &of.$field,
        }
    };
}

impl<'a> QuotaNotification<'a> {
    /// Its type.
    pub const fn kind(self) -> NotificationKind {
        match self {
            Self::Alert(_) => NotificationKind::Alert,
            Self::GrantExpires(_) => NotificationKind::GrantExpires,
            Self::Usage(_) => NotificationKind::Usage,
            Self::Resolved(_) => NotificationKind::Resolved,
        }
    }

    /// Its id.
    pub fn id(self) -> &'a str {
        match self {
            Self::Alert(alert) => alert.id.as_str(),
            Self::GrantExpires(notice) => &notice.id,
            Self::Usage(notice) => &notice.id,
            Self::Resolved(notice) => &notice.id,
        }
    }

    /// The id of the alert, if it is one.
    pub const fn alert_id(self) -> Option<&'a AlertId> {
        let Self::Alert(alert) = self else { return None };
        Some(&alert.id)
    }

    /// The id of the notice, if it is one.
    pub fn notice_id(self) -> Option<&'a str> {
        self.alert_id().is_none().then(|| self.id())
    }

    /// The subject whose quota it is.
    pub const fn subject(self) -> &'a Subject {
        shared_field!(self, subject)
    }

    /// The metric of the quota.
    pub const fn metric(self) -> &'a Metric {
        shared_field!(self, metric)
    }

    /// The window of the quota.
    pub const fn window(self) -> Window {
        *shared_field!(self, window)
    }

    /// The period of the quota; `None` for units of a grant, which outlive periods.
    pub const fn period(self) -> Option<Period> {
        match self {
            Self::Alert(alert) => Some(alert.period),
            Self::GrantExpires(_) => None,
            Self::Usage(notice) => Some(notice.period),
            Self::Resolved(notice) => Some(notice.period),
        }
    }

    /// The subject's time zone, an IANA name.
    pub fn timezone(self) -> &'a str {
        shared_field!(self, timezone)
    }

    /// The plan in force when it was raised.
    pub fn plan(self) -> &'a str {
        shared_field!(self, plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a delivery were read back as another type, it could send a code instead of an alert.
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
