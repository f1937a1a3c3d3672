//! The sections `[fallback]` and `[operator]`.

use serde::{Deserialize, Serialize};

use super::Contact;
use crate::types::Alert;
use crate::types::daily::{DailyTime, DigestTime};

/// Contacts for subjects without contacts of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackConfig {
    /// As in the `contacts` field of a subject, without notes of others.
    pub contacts: Vec<Contact>,
}

/// Contacts of the operator, whatever contacts a subject has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorConfig {
    /// Who gets copies of alerts, and notices.
    pub contacts: Vec<OperatorContact>,
    /// When they get the digest of a day.
    pub digest: DigestTime,
    /// The time zone of that, an IANA name.
    pub timezone: String,
}

/// A contact of the operator: it gets a copy of each alert that it asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorContact {
    /// The contact, with the thresholds and metrics that it hears.
    #[serde(flatten)]
    pub contact: Contact,
    /// Alerts of subjects with these plans; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<String>,
    /// Whether it is told what is no alert: contacts that are disabled, and the digest.
    #[serde(default = "default_true")]
    pub notices: bool,
}

/// The keys of a contact of `[fallback]`.
pub const FALLBACK_KEYS: &[&str] = OPERATOR_KEYS.split_at(OPERATOR_KEYS.len() - OPERATORS_OWN).0;

/// The keys of a contact of `[operator]`. The last ones are those that no other contact has.
pub const OPERATOR_KEYS: &[&str] = &[
    "id",
    "channel",
    "address",
    "url",
    "secret",
    "format",
    "headers",
    "muted",
    "muted_until",
    "muted_reason",
    "verified",
    "thresholds",
    "metrics",
    "disabled",
    "plans",
    "notices",
];
const OPERATORS_OWN: usize = 2;

const fn default_true() -> bool {
    true
}

impl OperatorConfig {
    /// When the digest is due; `None` where there is nobody to get it, and where it is off.
    pub fn daily(&self) -> Option<DailyTime> {
        let DigestTime::At(time) = self.digest else { return None };
        let zone = self.timezone.parse().ok()?;
        self.contacts.iter().any(|one| one.notices).then_some(DailyTime { time, zone })
    }
}

impl OperatorContact {
    /// Whether it asks for alerts of this alert's plan.
    pub fn takes_plan(&self, alert: &Alert) -> bool {
        self.plans.is_empty() || self.plans.contains(&alert.plan)
    }
}
