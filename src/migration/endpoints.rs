//! The two deployments of a migration.

use crate::redis_client::Partitions;

/// Source and target of a migration.
#[derive(Debug)]
pub struct Migration<'a> {
    /// The source.
    pub from: &'a Partitions,
    /// The target.
    pub to: &'a Partitions,
    /// The target, as text for people.
    pub to_shown: &'a str,
}
