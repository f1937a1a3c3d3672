//! The sections `[delivery]`, `[retry]` and `[alerts]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::redis_client::backoff::BackoffPolicy;
use crate::types::duration;

/// Which alerts are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertsConfig {
    /// What to send if a count crosses several thresholds at once.
    pub on_multiple: MultiplePolicy,
}

/// What to send if a count crosses several thresholds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MultiplePolicy {
    /// One message per threshold.
    Each,
    /// Only the highest threshold; the others are recorded.
    Highest,
}

/// How deliveries are processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryConfig {
    /// Whether this process sends. If not, it leases nothing, but still reads, counts and fans out.
    pub send: bool,
    /// Maximum number of concurrent attempts in this process.
    pub concurrency: u32,
    /// Maximum number of concurrent attempts at one destination over all daemons. A destination begins with one.
    pub per_destination_max: u32,
    /// Time from the opening of a circuit to the first attempt through it.
    #[serde(with = "duration")]
    pub probe_first: Duration,
    /// Maximum time between two attempts through an open circuit.
    #[serde(with = "duration")]
    pub probe_max: Duration,
    /// How long attempts at a contact must fail without a success before it is disabled; zero: never.
    #[serde(with = "duration")]
    pub disable_after: Duration,
}

/// When a failed delivery is retried, and when it is given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryConfig {
    /// The delay after the first failed attempt.
    #[serde(with = "duration")]
    pub first: Duration,
    /// Factor between one delay and the next; at least 1.
    pub factor: f64,
    /// Maximum delay, even if a receiver requests more.
    #[serde(with = "duration")]
    pub max_interval: Duration,
    /// How long a delivery is retried, from its first attempt. Checked only after a failed attempt.
    #[serde(with = "duration")]
    pub give_up_after: Duration,
}

impl RetryConfig {
    /// The delays of this configuration.
    pub const fn schedule(&self) -> BackoffPolicy {
        BackoffPolicy { first: self.first, factor: self.factor, max_interval: self.max_interval }
    }
}
