//! The `[stream]` section.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ledger::commit_settings::TrimPolicy;
use crate::types::duration;

/// How the daemon reads the usage stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The stream's name, without braces.
    pub key: String,
    /// Number of partitions, 1 to [`PARTITIONS_MAX`](crate::types::PARTITIONS_MAX).
    pub partitions: u32,
    /// What happens to counted entries.
    pub trim: TrimPolicy,
    /// How long after the end of its day an event may arrive and still be counted.
    #[serde(with = "duration")]
    pub late_max: Duration,
    /// How long ago an event may have arrived and still be counted.
    #[serde(with = "duration")]
    pub age_max: Duration,
    /// Maximum number of entries per reading.
    pub batch_entries: u32,
    /// How long event ids are remembered, at least.
    #[serde(with = "duration")]
    pub event_ids_window: Duration,
    /// Maximum number of event ids that are remembered for a partition.
    pub event_ids_max: usize,
    /// Maximum number of metrics of a partition on one day.
    pub metrics_max: usize,
}

impl StreamConfig {
    /// Maximum age of an event when it is counted.
    pub const fn event_age_max(&self) -> Duration {
        self.age_max.saturating_add(self.late_max)
    }
}
