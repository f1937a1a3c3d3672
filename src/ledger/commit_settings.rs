//! Settings that all commits of a daemon share: version of the layout, TTLs, bounds.

use crate::subjects::Plans;
use crate::types::text_form::text_enum;

/// Version of the layout of counters and records in Redis. A daemon does not start if another version is stored.
pub const FORMAT: &str = "2";
/// Approximate number of stored refused events.
pub const REFUSED_KEPT: u64 = 100_000;
/// Maximum age of a batch since its read; an older one is read again, because its limits may be outdated.
pub const READ_AGE_MAX_MS: u64 = 5_000;

/// Settings that all commits of a daemon share.
#[derive(Debug, Clone)]
pub struct CommitSettings {
    /// Which consumed entries to trim.
    pub trim: TrimPolicy,
    /// Number of partitions.
    pub partitions: u32,
    /// The plans. Their fingerprint is stored with each commit and reveals daemons with different plans.
    pub plans: Plans,
    /// How long a level remembers a child that is no longer used.
    pub children_days: u32,
}

/// Minimum of [`CommitSettings::children_days`]: the longest month and some days.
pub const CHILDREN_DAYS_LEAST: u32 = 35;

text_enum! {
    /// What to do with counted entries.
    pub enum TrimPolicy {
        /// Trim them, but never entries that another consumer group still needs.
        Consumed = "consumed",
        /// Leave them: another program bounds the stream.
        Never = "never",
    }
}
