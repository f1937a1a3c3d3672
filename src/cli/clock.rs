//! The server's clock: what is today, and when a message is sent, is never decided by the clock of the machine in front.

use super::connect::Redis;
use crate::types::UnixMs;

/// What Redis' clock shows.
///
/// # Errors
///
/// What Redis or the connection said, with a hint.
pub async fn server_time(redis: &Redis) -> anyhow::Result<UnixMs> {
    let (seconds, micros): (i64, i64) = redis.query("read the server's clock", &redis::cmd("TIME")).await?;
    Ok(UnixMs(seconds * 1000 + micros / 1000))
}
