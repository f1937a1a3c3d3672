//! The section `[verification]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{Rate, duration};

/// How contacts that a subject's own side adds are verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerificationConfig {
    /// How often one address is asked.
    pub requests: Rate,
    /// How long a one-time password and a confirm link are good.
    #[serde(with = "duration")]
    pub lifetime: Duration,
}
