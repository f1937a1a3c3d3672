//! Whether counting lags. If so, what can wait does.
//!
//! Each commit stores how long its reads have been full, so it does not matter which daemon reads the partition, and no
//! producer's id is used as a time. If counting has stopped for any reason, waiting gains nothing.

use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{Partitions, RedisClient};
use crate::types::{Keys, UnixMs};

/// Counting lags if reads have been full for longer than this.
const BEHIND_AFTER: Duration = Duration::from_millis(250);
/// Counting that has not committed for this time has stopped, or has nothing to count.
const STOPPED_AFTER: Duration = Duration::from_secs(1);

/// Whether counting lags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountingLag {
    /// It keeps up with the stream.
    None,
    /// Reads have been full for a while.
    Behind,
}

/// Whether the counting of a partition lags.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn of_partition(client: &RedisClient, keys: &Keys) -> RedisResult<CountingLag> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg(&["committed_at_ms", "behind_ms"]);
    let (committed_at, behind_ms): (Option<i64>, Option<u64>) = client.query(&command).await?;
    let (Some(committed_at), Some(behind_ms)) = (committed_at, behind_ms) else { return Ok(CountingLag::None) };
    if Duration::from_millis(behind_ms) <= BEHIND_AFTER {
        return Ok(CountingLag::None);
    }
    let committed_ago = client.server_time().await?.since(UnixMs(committed_at));
    Ok(if committed_ago < STOPPED_AFTER { CountingLag::Behind } else { CountingLag::None })
}

/// Whether the counting of any partition lags.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn of_any(partitions: &Partitions) -> RedisResult<CountingLag> {
    for partition in partitions.iter() {
        if of_partition(&partition.client, &partition.keys).await? == CountingLag::Behind {
            return Ok(CountingLag::Behind);
        }
    }
    Ok(CountingLag::None)
}
