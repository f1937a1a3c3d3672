//! The two deployments of a migration.

use crate::redis_client::Partitions;

/// From where to where.
#[derive(Debug)]
pub struct Migration<'a> {
    /// What is copied.
    pub from: &'a Partitions,
    /// The target.
    pub to: &'a Partitions,
    /// The same as people read it.
    pub to_shown: &'a str,
}
