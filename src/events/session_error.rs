//! Why a session on one connection ended, and what that means for the next try.

use redis::RedisError;

use crate::redis_client::{ErrorKind, ReadError, error_kind};
use crate::types::text::pluralize;

/// Why a session on one connection ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{operation}")]
    Redis {
        operation: &'static str,
        #[source]
        source: RedisError,
    },
    #[error("hold {key}, the lease of the partition")]
    Lease {
        key: String,
        #[source]
        source: RedisError,
    },
    #[error("read the usage stream")]
    Read(#[from] ReadError),
    /// Only the checkpoint was deleted.
    #[error(
        "{checkpoint} has gone, but {totals} says that {} counted: HSET its field id to the last entry that was \
         counted, or HDEL {totals} counted to have the whole stream counted",
        events_were(counted)
    )]
    CheckpointGone { checkpoint: String, totals: String, counted: String },
    /// The entries must be read again from the stored checkpoint.
    #[error("start over from the checkpoint: {0}")]
    Again(&'static str),
}

/// A total is a number, unless somebody wrote something else to it.
fn events_were(total: &str) -> String {
    match total.parse::<u64>() {
        Ok(total) => pluralize(total, "event was", "events were"),
        Err(_) => format!("{total} events were"),
    }
}

impl SessionError {
    /// The failure of Redis or the connection; `None` if the entries only have to be read again.
    pub(super) fn error_kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Redis { source, .. } | Self::Lease { source, .. } => Some(error_kind(source)),
            Self::CheckpointGone { .. } => Some(ErrorKind::WrongType),
            // The next reading is smaller.
            Self::Read(ReadError::TooLong { .. } | ReadError::LongEntry(_)) | Self::Again(_) => None,
            Self::Read(error) => Some(error.error_kind()),
        }
    }
}
