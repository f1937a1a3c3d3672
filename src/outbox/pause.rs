//! The pause of all sending: a key in each partition at which `lease.lua` looks. While it is there, nothing is leased
//! by any daemon. How long pauses lasted is added up, so that they end no delivery. The wrapper of `pause.lua`.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions, RedisClient, Script};
use crate::types::{Keys, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("pause.lua")));

/// The field of the totals with the length of all pauses that have ended.
const PAUSED_MS: &str = "paused_ms";

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
    run(partitions, "pause", reason.unwrap_or_default()).await
}

/// Ends the pause. Repeatable.
///
/// # Errors
///
/// What Redis or the connection said; some of the partitions may still be paused.
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

/// How long sending has been paused in all, a pause that lasts included.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn paused_for(client: &RedisClient, keys: &Keys, now: UnixMs) -> RedisResult<Duration> {
    let ended: Option<u64> = client.query(redis::cmd("HGET").arg(keys.totals()).arg(PAUSED_MS)).await?;
    let lasts = read_pause(client, keys).await?.and_then(|pause| pause.since).map(|since| now.since(since));
    Ok(Duration::from_millis(ended.unwrap_or(0)) + lasts.unwrap_or_default())
}

/// The pause of a partition, if there is one.
pub async fn read_pause(client: &RedisClient, keys: &Keys) -> RedisResult<Option<Pause>> {
    let fields: HashMap<String, String> = client.query(redis::cmd("HGETALL").arg(keys.paused())).await?;
    let since = fields.get("since_ms").and_then(|ms| ms.parse().ok()).map(UnixMs);
    let reason = fields.get("reason").filter(|reason| !reason.is_empty()).cloned();
    Ok((!fields.is_empty()).then_some(Pause { since, reason }))
}
