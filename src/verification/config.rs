//! The section `[verification]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{Rate, duration};

/// Verification of contacts that a subject's own side adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerificationConfig {
    /// Maximum number of requests per address and time.
    pub requests: Rate,
    /// Lifetime of a code and of a confirm link.
    #[serde(with = "duration")]
    pub lifetime: Duration,
}
