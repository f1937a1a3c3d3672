//! Why reading on one connection ended, and what that means for the next try.

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
    /// The checkpoint alone was deleted.
    #[error(
        "{checkpoint} has gone, but {totals} says that {} counted: HSET its field id to the last entry that was \
         counted, or HDEL {totals} counted to have the whole stream counted",
        events_were(counted)
    )]
    CheckpointGone { checkpoint: String, totals: String, counted: String },
    /// What was read has to be read again from the stored checkpoint.
    #[error("start over from the checkpoint: {0}")]
    Again(&'static str),
}

/// A total is a number, unless somebody wrote something else there.
fn events_were(total: &str) -> String {
    match total.parse::<u64>() {
        Ok(total) => pluralize(total, "event was", "events were"),
        Err(_) => format!("{total} events were"),
    }
}

impl SessionError {
    /// What Redis or the connection did; `None` where it is only to be read again.
    pub(super) fn error_kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Redis { source, .. } | Self::Lease { source, .. } => Some(error_kind(source)),
            Self::CheckpointGone { .. } => Some(ErrorKind::WrongType),
            // Less is read next time.
            Self::Read(ReadError::TooLong { .. } | ReadError::LongEntry(_)) | Self::Again(_) => None,
            Self::Read(error) => Some(error.error_kind()),
        }
    }
}
