//! The sections `[fallback]` and `[operator]`.

use serde::{Deserialize, Serialize};

use super::Contact;
use crate::types::daily::{DailyTime, DigestTime};

/// Contacts for subjects without contacts of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackConfig {
    /// The contacts, in the form of a subject's field `contacts`; unknown fields are not allowed.
    pub contacts: Vec<Contact>,
}

/// Contacts of the operator, which apply to all subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorConfig {
    /// Contacts that get copies of alerts, and notices.
    pub contacts: Vec<OperatorContact>,
    /// When they get the daily digest.
    pub digest: DigestTime,
    /// The time zone of the digest, an IANA name.
    pub timezone: String,
}

/// A contact of the operator: it gets a copy of each alert that matches its filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorContact {
    /// The contact, with a filter for thresholds and metrics.
    #[serde(flatten)]
    pub contact: Contact,
    /// Plans of the subjects whose alerts it gets; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<String>,
    /// Whether it gets notices: disabled contacts and the digest.
    #[serde(default = "default_true")]
    pub notices: bool,
}

/// The keys of a contact of `[fallback]`.
pub const FALLBACK_KEYS: &[&str] = OPERATOR_KEYS.split_at(OPERATOR_KEYS.len() - OPERATORS_OWN).0;

/// The keys of a contact of `[operator]`. The last ones are only allowed there.
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
    "windows",
    "quiet",
    "quiet_all",
    "digest",
    "digest_all",
    "resolved",
    "disabled",
    "plans",
    "notices",
];
const OPERATORS_OWN: usize = 2;

pub(super) const fn default_true() -> bool {
    true
}

impl OperatorConfig {
    /// When the digest is due; `None` if no contact gets it or it is off.
    pub fn daily(&self) -> Option<DailyTime> {
        let DigestTime::At(time) = self.digest else { return None };
        let zone = self.timezone.parse().ok()?;
        self.contacts.iter().any(|one| one.notices).then_some(DailyTime { time, zone })
    }
}

impl OperatorContact {
    /// Whether the contact gets alerts and notices under this plan.
    pub fn takes_plan(&self, plan: &str) -> bool {
        self.plans.is_empty() || self.plans.iter().any(|taken| taken == plan)
    }
}
