//! How often a subject was erased: what a daemon keeps in memory of all subjects is shown only as long as this number
//! stays the same.

use redis::RedisResult;

use crate::redis_client::Partition;

/// Of all subjects, in the first partition.
const ERASURES: &str = "erasures";

/// The number of erasures so far.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn count(Partition { client, keys }: &Partition) -> RedisResult<u64> {
    let count: Option<u64> = client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg(ERASURES)).await?;
    Ok(count.unwrap_or(0))
}

/// Counts an erasure, after everything was removed: what was read before may still have the subject. Writes nothing
/// if there is no checkpoint.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn add(Partition { client, keys }: &Partition) -> RedisResult<()> {
    let checkpoint = keys.checkpoint();
    match client.query(redis::cmd("EXISTS").arg(&checkpoint)).await? {
        true => client.query(redis::cmd("HINCRBY").arg(&checkpoint).arg(ERASURES).arg(1)).await,
        false => Ok(()),
    }
}
