//! The section `[delivery]`.

use serde::{Deserialize, Serialize};

/// How deliveries are worked off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryConfig {
    /// The most attempts that run at once in this process.
    pub concurrency: u32,
}
