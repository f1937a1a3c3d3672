//! The end of an alert: when and why it was over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text_form::text_enum;
use super::timestamp::Rfc3339;

text_enum! {
    /// Why an alert has ended.
    pub enum EndReason {
        /// Its period is over.
        Reset = "reset",
        /// A higher limit or a grant put the count below its threshold.
        LimitRaised = "limit_raised",
        /// A credit put the count below its threshold.
        Credited = "credited",
    }
}

text_enum! {
    /// Whether an alert has ended.
    pub enum AlertState {
        /// The count is at or above its threshold, in a period that goes on.
        Open = "open",
        /// It is over. A new crossing opens it again.
        Ended = "ended",
    }
}

/// When and why an alert has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertEnd {
    /// Why.
    #[serde(rename = "end_reason")]
    pub reason: EndReason,
    /// When; of a higher limit or a credit, when that was noticed.
    #[serde(rename = "ended_at")]
    pub at: Rfc3339,
}

/// The state of an alert, as it is shown beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertStatus {
    /// Whether it has ended.
    pub state: AlertState,
    /// When and why; absent while it is open.
    #[serde(flatten)]
    pub end: Option<AlertEnd>,
}

impl From<Option<AlertEnd>> for AlertStatus {
    fn from(end: Option<AlertEnd>) -> Self {
        Self { state: if end.is_some() { AlertState::Ended } else { AlertState::Open }, end }
    }
}
