//! Whether this daemon reads a partition, and has counted what arrived.

use redis::RedisResult;

use crate::ledger::query::{counted_until, lag};
use crate::redis_client::Partition;
use crate::types::UnixMs;

/// Work beside the counting waits while that lags by more than this.
const LAG_MAX_MS: i64 = 10_000;

/// The state of the counting of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaderState {
    /// Another daemon reads, or none.
    Elsewhere,
    /// This daemon reads, and the counting lags.
    Behind,
    /// This daemon reads, and has counted what arrived.
    UpToDate,
}

impl ReaderState {
    /// Reads the state, given this daemon's name in leases.
    pub(super) async fn read(partition: &Partition, daemon: &str, now: UnixMs) -> RedisResult<Self> {
        let Partition { client, keys } = partition;
        let holder: Option<String> = client.query(redis::cmd("GET").arg(keys.lease())).await?;
        if holder.as_deref() != Some(daemon) {
            return Ok(Self::Elsewhere);
        }
        let has_counted = counted_until(client, keys).await?.is_some_and(|counted| counted >= now.plus(-LAG_MAX_MS));
        Ok(if has_counted || lag(client, keys).await? == 0 { Self::UpToDate } else { Self::Behind })
    }
}
