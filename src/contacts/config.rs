//! The section `[fallback]`.

use serde::{Deserialize, Serialize};

use super::Contact;

/// Contacts for subjects without contacts of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackConfig {
    /// As in the `contacts` field of a subject.
    pub contacts: Vec<Contact>,
}
