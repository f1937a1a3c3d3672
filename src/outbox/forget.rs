//! Erases a subject's notifications in the outbox and its deliveries (the wrapper of `forget.lua`).

use std::sync::LazyLock;

use redis::RedisResult;

use super::{entry, schedule};
use crate::redis_client::{Partition, Script};
use crate::types::{Branch, DeliveryId, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("forget.lua")));

/// Maximum number of deliveries per call of the script.
const DELIVERIES_AT_ONCE: usize = 500;
/// Number of entries per read.
const ENTRIES_AT_ONCE: usize = 1000;

/// Number of removed deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgottenDeliveries {
    /// All removed deliveries.
    pub removed: u64,
    /// The pending ones among them.
    pub pending: u64,
}

/// Removes the notifications of a branch that are not fanned out yet. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some entries may already be removed.
pub async fn forget_outbox_entries(Partition { client, keys }: &Partition, branch: &Branch) -> RedisResult<u64> {
    let is_of = |values: &[Vec<u8>]| {
        let [name, json] = values else { return false };
        let notification = entry::parse_field(name, json).and_then(Result::ok);
        let subject = notification.as_ref().and_then(|notification| notification.subject());
        subject.is_some_and(|subject| branch.contains(subject.as_str()))
    };
    client.remove_entries(&keys.outbox(), ENTRIES_AT_ONCE, is_of).await
}

/// Removes the deliveries among `ids` that belong to the subject. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some deliveries may already be removed.
pub async fn forget_deliveries(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    ids: &[DeliveryId],
) -> RedisResult<ForgottenDeliveries> {
    let mut forgotten = ForgottenDeliveries::default();
    for ids in ids.chunks(DELIVERIES_AT_ONCE) {
        let ids: Vec<&str> = ids.iter().map(DeliveryId::as_str).collect();
        let call = schedule::call(&SCRIPT, keys).arg(subject.as_str()).arg(&ids);
        let (removed, pending): (u64, u64) = call.run(client).await?;
        forgotten.removed += removed;
        forgotten.pending += pending;
    }
    Ok(forgotten)
}

/// Removes the records of the subject's failing contacts. Repeatable.
pub async fn forget_failures(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<()> {
    client.query(redis::cmd("UNLINK").arg(format!("{}{subject}", keys.failing_prefix()))).await
}
