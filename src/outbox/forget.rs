//! Forgetting a subject on the way out: its alerts in the outbox, and its deliveries (the wrapper of `forget.lua`).

use std::sync::LazyLock;

use redis::RedisResult;

use super::schedule;
use crate::redis_client::{Partition, Script};
use crate::types::{Alert, DeliveryId, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("forget.lua")));

/// The most deliveries one call of the script removes.
const DELIVERIES_AT_ONCE: usize = 500;
/// Alerts of one read.
const ALERTS_AT_ONCE: usize = 1000;

/// What was removed of deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgottenDeliveries {
    /// All of them.
    pub removed: u64,
    /// Those that were pending.
    pub pending: u64,
}

/// Removes the subject's alerts that are not fanned out yet. Repeatable.
///
/// # Errors
///
/// What Redis or the connection said; a part may be removed.
pub async fn forget_alerts(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<u64> {
    let is_of = |values: &[Vec<u8>]| {
        let alert = values.get(1).and_then(|json| serde_json::from_slice::<Alert>(json).ok());
        alert.is_some_and(|alert| alert.subject == *subject)
    };
    client.remove_entries(&keys.outbox(), ALERTS_AT_ONCE, is_of).await
}

/// Removes these deliveries, as far as they are the subject's. Repeatable.
///
/// # Errors
///
/// What Redis or the connection said; a part may be removed.
pub async fn forget_deliveries(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    ids: &[DeliveryId],
) -> RedisResult<ForgottenDeliveries> {
    let mut forgotten = ForgottenDeliveries::default();
    for ids in ids.chunks(DELIVERIES_AT_ONCE) {
        let mut call = schedule::call(&SCRIPT, keys).arg(subject.as_str());
        for id in ids {
            call = call.arg(id.as_str());
        }
        let (removed, pending): (u64, u64) = call.run(client).await?;
        forgotten.removed += removed;
        forgotten.pending += pending;
    }
    Ok(forgotten)
}

/// Removes what is noted of the subject's contacts that fail. Repeatable.
pub async fn forget_failures(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<()> {
    client.query(redis::cmd("UNLINK").arg(format!("{}{subject}", keys.failing_prefix()))).await
}
