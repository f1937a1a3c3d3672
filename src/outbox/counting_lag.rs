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

/// Whether the counting of a partition lags.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn is_behind(client: &RedisClient, keys: &Keys) -> RedisResult<bool> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg(&["committed_at_ms", "behind_ms"]);
    let (committed_at, behind_ms): (Option<i64>, Option<u64>) = client.query(&command).await?;
    let (Some(committed_at), Some(behind_ms)) = (committed_at, behind_ms) else { return Ok(false) };
    if Duration::from_millis(behind_ms) <= BEHIND_AFTER {
        return Ok(false);
    }
    let committed_ago = client.server_time().await?.since(UnixMs(committed_at));
    Ok(committed_ago < STOPPED_AFTER)
}

/// Whether the counting of any partition lags.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn is_any_behind(partitions: &Partitions) -> RedisResult<bool> {
    for partition in partitions.iter() {
        if is_behind(&partition.client, &partition.keys).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
