//! Grants: units that are added to a limit, such as prepaid units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert::digest_of;
use super::text_form::{display_as_inner, inline_schema, serde_as_text};
use super::timestamp::Rfc3339;
use super::{DeploymentId, Metric, Subject, Units, Window};

/// Maximum length of a grant's id, bytes.
pub const GRANT_ID_BYTES_MAX: usize = 128;
/// Maximum length of a grant's note, bytes.
pub const GRANT_NOTE_BYTES_MAX: usize = 256;

/// A grant's id, chosen by who adds it: a grant is given once, however often it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(String);

serde_as_text!(GrantId);
inline_schema!(GrantId, { "type": "string", "minLength": 1, "maxLength": GRANT_ID_BYTES_MAX, "pattern": "^[!-~]+$" });
display_as_inner!(GrantId);

/// The text is not the id of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a grant's id has 1 to {GRANT_ID_BYTES_MAX} visible ASCII characters, without spaces")]
pub struct GrantIdError;

impl GrantId {
    /// The id with this number as hex digits. A random number gives a unique id.
    pub fn numbered(number: u128) -> Self {
        Self(format!("grant_{number:032x}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for GrantId {
    type Err = GrantIdError;
    fn from_str(text: &str) -> Result<Self, GrantIdError> {
        let is_legal =
            (1..=GRANT_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_legal { Ok(Self(text.to_owned())) } else { Err(GrantIdError) }
    }
}

/// A notice before units of a grant expire, fixed when it is raised. Also its JSON form in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantNotice {
    /// The id: `grant_notice_` and 32 hex digits, always the same for the same grant.
    #[schemars(regex(pattern = "^grant_notice_[0-9a-f]{32}$"))]
    pub id: String,
    /// The subject that has the grant.
    pub subject: Subject,
    /// The metric of its units.
    pub metric: Metric,
    /// The window of the limit that it adds to.
    pub window: Window,
    /// The grant.
    pub grant: GrantId,
    /// What the grant is for, as given with it; absent without a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// All units of the grant.
    pub units: Units,
    /// Those that are left, and are lost at the expiry unless they are used before.
    #[schemars(range(min = 1))]
    pub remaining: u64,
    /// When they expire.
    pub expires_at: Rfc3339,
    /// The limit in force, all grants included, units.
    pub limit: u64,
    /// The count of the period, units.
    pub used: u64,
    /// The plan in force.
    pub plan: String,
    /// The subject's time zone, an IANA name.
    pub timezone: String,
    /// When the notice was raised, server time.
    pub raised_at: Rfc3339,
}

impl GrantNotice {
    /// The `type` of its webhook.
    pub const WEBHOOK_TYPE: &str = "quota.grant_expires";

    /// The id of the only notice about this grant.
    pub fn id_of(instance: &DeploymentId, subject: &Subject, grant: &GrantId) -> String {
        format!("grant_notice_{}", digest_of(&[instance.as_str(), subject.as_str(), grant.as_str()]))
    }
}
