//! The pause of all sending: a key in each partition that `lease.lua` checks. While it exists, no daemon leases
//! anything. The duration of pauses is summed up, so that pauses end no delivery. The wrapper of `pause.lua`.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions, RedisClient, Script};
use crate::types::{Keys, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("pause.lua")));

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Its start, server time; `None` if somebody wrote the key by hand.
    pub since: Option<UnixMs>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

/// Pauses sending of all daemons. Running attempts end normally. Repeatable; a second pause sets its own reason.
///
/// # Errors
///
/// The error of Redis or of the connection; some partitions may already be paused.
pub async fn pause(partitions: &Partitions, reason: Option<&str>) -> RedisResult<()> {
    run(partitions, "pause", reason.unwrap_or_default()).await
}

/// Ends the pause. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some partitions may still be paused.
pub async fn resume(partitions: &Partitions) -> RedisResult<()> {
    run(partitions, "resume", "").await
}

async fn run(partitions: &Partitions, action: &str, reason: &str) -> RedisResult<()> {
    let now = partitions.first().client.server_time().await?;
    for Partition { client, keys } in partitions.iter() {
        let call = SCRIPT.call().key(keys.paused()).key(keys.totals()).arg(action).arg(now.0).arg(reason);
        let _: String = call.run(client).await?;
    }
    Ok(())
}

/// The total duration of pauses, including the current one.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn paused_for(
    client: &RedisClient,
    keys: &Keys,
    current: Option<&Pause>,
    now: UnixMs,
) -> RedisResult<Duration> {
    let ended: Option<u64> = client.query(redis::cmd("HGET").arg(keys.totals()).arg("paused_ms")).await?;
    let lasts = current.and_then(|pause| pause.since).map(|since| now.since(since));
    Ok(Duration::from_millis(ended.unwrap_or(0)) + lasts.unwrap_or_default())
}

/// The pause of a partition, if there is one.
pub async fn read_pause(client: &RedisClient, keys: &Keys) -> RedisResult<Option<Pause>> {
    let fields: HashMap<String, String> = client.query(redis::cmd("HGETALL").arg(keys.paused())).await?;
    let since = fields.get("since_ms").and_then(|ms| ms.parse().ok()).map(UnixMs);
    let reason = fields.get("reason").filter(|reason| !reason.is_empty()).cloned();
    Ok((!fields.is_empty()).then_some(Pause { since, reason }))
}
