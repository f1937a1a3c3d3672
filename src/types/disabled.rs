//! Disabled contacts: why, and since when.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UnixMs;
use super::text_form::text_enum;
use super::timestamp::rfc3339;

text_enum! {
    /// Why a contact is disabled.
    pub enum DisableReason {
        /// HTTP 410: the receiver no longer exists.
        Gone = "gone",
        /// The receiver requested it with `webhook-delivery: disable`.
        Asked = "asked",
        /// The mail server reports that the mailbox does not exist.
        NoMailbox = "no_mailbox",
        /// Attempts have failed for `delivery.disable_after`, and none succeeded.
        Failing = "failing",
    }
}

impl DisableReason {
    /// The reason in words, to follow "disabled because".
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Gone => "its receiver is gone",
            Self::Asked => "its receiver asked for no more",
            Self::NoMailbox => "the mail server knows no such mailbox",
            Self::Failing => "nothing has reached it for days",
        }
    }
}

/// The state of a disabled contact: it receives nothing until somebody enables it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisabledState {
    /// Why.
    pub reason: DisableReason,
    /// The error of the attempt that disabled it, such as `HTTP 410`: without address, URL or body.
    pub detail: String,
    /// Since when, server time.
    #[serde(with = "rfc3339")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: UnixMs,
}

/// Text such as `gone (HTTP 410)`.
impl fmt::Display for DisabledState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason.as_str(), self.detail)
    }
}
