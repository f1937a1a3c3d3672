//! The sections `[delivery]`, `[retry]` and `[alerts]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::redis_client::backoff::BackoffPolicy;
use crate::types::duration;

/// What is told of alerts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertsConfig {
    /// What is told where a count jumps over several thresholds at once.
    pub on_multiple: MultiplePolicy,
}

/// What is told where a count jumps over several thresholds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MultiplePolicy {
    /// Each threshold has its message.
    Each,
    /// The highest alone; the others are recorded.
    Highest,
}

/// How deliveries are worked off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryConfig {
    /// Whether this process sends. Where it does not, it leases nothing; it reads, counts and fans out all the same.
    pub send: bool,
    /// The most attempts that run at once in this process.
    pub concurrency: u32,
    /// The most attempts that run at once at one destination, over all daemons. A destination begins with one.
    pub per_destination_max: u32,
    /// How long an open circuit lets nothing through at first.
    #[serde(with = "duration")]
    pub probe_first: Duration,
    /// The longest time between two attempts through an open circuit.
    #[serde(with = "duration")]
    pub probe_max: Duration,
    /// How long attempts to a contact have failed without a success when it is disabled; zero: never.
    #[serde(with = "duration")]
    pub disable_after: Duration,
}

/// When a failed delivery is tried again, and when it is given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryConfig {
    /// The delay after the first failed attempt.
    #[serde(with = "duration")]
    pub first: Duration,
    /// How much longer each next delay is; at least 1.
    pub factor: f64,
    /// The longest delay, also where a receiver asks for more.
    #[serde(with = "duration")]
    pub max_interval: Duration,
    /// Counted from the first attempt; judged only after a failed one.
    #[serde(with = "duration")]
    pub give_up_after: Duration,
}

impl RetryConfig {
    /// The delays of this configuration.
    pub const fn schedule(&self) -> BackoffPolicy {
        BackoffPolicy { first: self.first, factor: self.factor, max_interval: self.max_interval }
    }
}
