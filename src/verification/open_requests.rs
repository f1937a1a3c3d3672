//! Limits the number of open requests for consent of one subject: each is a message that may hang at its receiver.
//!
//! A request is open until its delivery has ended, or can't be attempted any more. Places are freed when a new request
//! finds none free, because whatever ends deliveries (for example an operator) does not know about places.

use redis::{Pipeline, RedisResult};

use crate::redis_client::Partition;
use crate::types::alert::digest_of;
use crate::types::{DeliveryId, DeliveryState, Subject};
use quotabell_throttle::{ExpiringSet, ExpiringSetDecision};

use super::VerificationConfig;

/// Maximum number of open requests of one subject: the default maximum of its contacts. Without it, removing and adding
/// contacts would create unlimited requests.
pub const OPEN_REQUESTS_MAX: u32 = 16;

const OPEN: ExpiringSet = match ExpiringSet::new(OPEN_REQUESTS_MAX) {
    Ok(set) => set,
    Err(_) => panic!("few enough for a set"),
};

/// Reserves a place for the delivery of a request, if one is free. Repeatable.
pub(super) async fn open(
    partition: &Partition,
    config: &VerificationConfig,
    subject: &Subject,
    delivery: &DeliveryId,
) -> RedisResult<ExpiringSetDecision> {
    let Partition { client, keys } = partition;
    let key = key(partition, subject);
    let add = async || OPEN.add(&mut client.connection(), &key, delivery.as_str(), config.lifetime).await;
    if let added @ ExpiringSetDecision::Added { .. } = add().await? {
        return Ok(added);
    }
    let mut command = redis::cmd("ZRANGE");
    let open: Vec<String> = client.query(command.arg(&key).arg(0).arg(-1)).await?;
    let mut pipeline = Pipeline::new();
    for id in &open {
        pipeline.cmd("HGET").arg(keys.delivery(&DeliveryId::from_stored(id))).arg("state");
    }
    let states: Vec<Option<String>> = client.pipe(&pipeline).await?;
    let has_ended =
        |state: &Option<String>| state.as_deref().is_some_and(|state| state != DeliveryState::Pending.as_str());
    let ended: Vec<&str> =
        open.iter().zip(&states).filter(|(_, state)| has_ended(state)).map(|(id, _)| id.as_str()).collect();
    if !ended.is_empty() {
        let () = client.query(redis::cmd("ZREM").arg(&key).arg(&ended)).await?;
    }
    add().await
}

/// Frees the place of a request that was not made.
pub(super) async fn withdraw(partition: &Partition, subject: &Subject, delivery: &DeliveryId) -> RedisResult<()> {
    partition.client.query(redis::cmd("ZREM").arg(key(partition, subject)).arg(delivery.as_str())).await
}

/// The key of a subject's open requests.
pub(super) fn key(partition: &Partition, subject: &Subject) -> String {
    partition.keys.verify_open(&digest_of(&[subject.as_str()]))
}
