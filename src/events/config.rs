//! The `[stream]` section.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ledger::commit_settings::TrimPolicy;
use crate::types::duration;

/// How the usage stream is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The stream's name. Holds no brace.
    pub key: String,
    /// How many partitions there are, 1 to [`PARTITIONS_MAX`](crate::types::PARTITIONS_MAX).
    pub partitions: u32,
    /// What happens to entries that have been counted.
    pub trim: TrimPolicy,
    /// How long after the end of its day an event may arrive and still be counted.
    #[serde(with = "duration")]
    pub late_max: Duration,
    /// How long ago an event may have arrived and still be counted.
    #[serde(with = "duration")]
    pub age_max: Duration,
    /// The most entries of one reading.
    pub batch_entries: u32,
    /// The most event ids that are held of a partition.
    pub event_ids_max: usize,
    /// The most metrics of a partition on one day.
    pub metrics_max: usize,
}

impl StreamConfig {
    /// How old an event may be when it is counted.
    pub const fn event_age_max(&self) -> Duration {
        self.age_max.saturating_add(self.late_max)
    }
}
