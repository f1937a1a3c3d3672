//! The pause of all sending: a key in each partition at which `lease.lua` looks. While it is there, nothing is leased
//! by any daemon.

use std::collections::HashMap;

use redis::RedisResult;

use crate::types::{Keys, UnixMs};
use crate::wire::{Partition, Partitions, RedisClient};

/// That nothing is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Since when, server time; `None` where somebody wrote the key by hand.
    pub since: Option<UnixMs>,
    /// Why, in somebody's own words.
    pub reason: Option<String>,
}

/// Pauses all sending, of all daemons. Attempts that are under way end by themselves. Repeatable; a second pause gives
/// its own reason.
///
/// # Errors
///
/// What Redis or the connection said; some of the partitions may be paused.
pub async fn pause(partitions: &Partitions, reason: Option<&str>) -> RedisResult<()> {
    let now = partitions.first().client.server_time().await?;
    for Partition { client, keys } in partitions.iter() {
        let mut command = redis::cmd("HSET");
        command.arg(keys.paused()).arg("since_ms").arg(now.0).arg("reason").arg(reason.unwrap_or_default());
        client.query::<()>(&command).await?;
    }
    Ok(())
}

/// Ends the pause. Repeatable.
///
/// # Errors
///
/// What Redis or the connection said; some of the partitions may still be paused.
pub async fn resume(partitions: &Partitions) -> RedisResult<()> {
    for Partition { client, keys } in partitions.iter() {
        client.query::<()>(redis::cmd("DEL").arg(keys.paused())).await?;
    }
    Ok(())
}

/// The pause of a partition, if there is one.
pub async fn read_pause(client: &RedisClient, keys: &Keys) -> RedisResult<Option<Pause>> {
    let fields: HashMap<String, String> = client.query(redis::cmd("HGETALL").arg(keys.paused())).await?;
    let since = fields.get("since_ms").and_then(|ms| ms.parse().ok()).map(UnixMs);
    let reason = fields.get("reason").filter(|reason| !reason.is_empty()).cloned();
    Ok((!fields.is_empty()).then_some(Pause { since, reason }))
}
