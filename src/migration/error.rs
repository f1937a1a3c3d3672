//! Why a migration can't be done.

use redis::RedisError;

use crate::ledger::commit_settings::FORMAT;
use crate::outbox::OutboxError;
use crate::types::StreamId;

/// Why nothing more was copied.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A call failed.
    #[error("{what}")]
    Redis {
        /// What was tried.
        what: String,
        /// What Redis said.
        source: RedisError,
    },
    /// The totals of a partition can't be read.
    #[error(transparent)]
    Totals(#[from] OutboxError),
    /// Nothing is stored at the source.
    #[error("{0} is not there: nothing was counted at the source")]
    NothingStored(String),
    /// The source has another layout.
    #[error("{checkpoint} was written in format {format}, this quotabell knows {FORMAT}")]
    Format {
        /// The key.
        checkpoint: String,
        /// Its format.
        format: String,
    },
    /// A daemon reads a partition.
    #[error("a daemon is at work: {holder} holds {lease}")]
    Daemon {
        /// The lease.
        lease: String,
        /// Who holds it.
        holder: String,
    },
    /// The target has something else.
    #[error("the target is not empty: {0} is there")]
    NotEmpty(String),
    /// Entries of the target would never be read.
    #[error(
        "entries of {stream} at the target are older than the checkpoint {checkpoint}, so they would never be counted"
    )]
    OldEntries {
        /// The stream.
        stream: String,
        /// What the source has counted.
        checkpoint: StreamId,
    },
    /// A key that this version does not know.
    #[error("{0} is a key that this version does not know")]
    UnknownKey(String),
    /// A delivery that names no subject.
    #[error("{0} names no subject")]
    NoSubject(String),
    /// The comparison found differences.
    #[error("the target differs from the source in {count} places, among them {named}")]
    Differs {
        /// How many.
        count: u64,
        /// The first of the keys.
        named: String,
    },
}

impl MigrationError {
    pub(super) const fn redis(what: String, source: RedisError) -> Self {
        Self::Redis { what, source }
    }
}
