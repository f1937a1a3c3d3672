//! What every commit of a daemon has in common: the layout's version, times to live, bounds and settings.

use crate::subjects::Plans;
use crate::types::text_form::text_enum;

/// The layout of counters and records in Redis. A daemon that knows another one does not start.
pub const FORMAT: &str = "2";
/// About how many refused events are kept.
pub const REFUSED_KEPT: u64 = 100_000;
/// A batch that was read longer ago is read again, since its limits may be outdated.
pub const READ_AGE_MAX_MS: u64 = 5_000;

/// Settings that every commit of a daemon has in common.
#[derive(Debug, Clone)]
pub struct CommitSettings {
    /// Which consumed entries are trimmed.
    pub trim: TrimPolicy,
    /// Number of partitions.
    pub partitions: u32,
    /// The plans; their fingerprint, which is stored with each commit, tells two daemons apart that judge differently.
    pub plans: Plans,
}

text_enum! {
    /// What happens to entries that have been counted.
    pub enum TrimPolicy {
        /// They are trimmed, but never past what another consumer group still needs.
        Consumed = "consumed",
        /// They stay; somebody else bounds the stream.
        Never = "never",
    }
}
