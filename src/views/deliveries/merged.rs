//! Deliveries of every partition: the lists merged in the order of time, and the partition of one by its id.

use redis::RedisResult;

use super::read::{find_ids, list_all};
use super::{DeliveryFilter, DeliveryView};
use crate::types::{DeliveryId, DeliveryState};
use crate::views::{DeliveryIdMatches, DeliveryIdPrefix};
use crate::wire::{Partition, Partitions};

/// As [`list_all`], of every partition, or of the subject's where the filter names one.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn list_partitions(
    partitions: &Partitions,
    filter: &DeliveryFilter,
    limit: usize,
) -> RedisResult<Vec<DeliveryView>> {
    if let Some(subject) = &filter.subject {
        let Partition { client, keys } = partitions.of(subject);
        return list_all(client, keys, filter, limit).await;
    }
    let mut listed = Vec::new();
    for Partition { client, keys } in partitions.iter() {
        listed.extend(list_all(client, keys, filter, limit).await?);
    }
    // As each list, which keeps its own order: dead ones by the time of death.
    let is_dead = filter.state == Some(DeliveryState::Dead);
    let time = |view: &DeliveryView| if is_dead { view.ended_at_ms } else { Some(view.created_at_ms) };
    listed.sort_by_key(time);
    listed.drain(..listed.len().saturating_sub(limit));
    Ok(listed)
}

/// As [`find_ids`], in every partition.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn find_ids_in_partitions(
    partitions: &Partitions,
    prefixes: &[DeliveryIdPrefix],
) -> RedisResult<Vec<DeliveryIdMatches>> {
    let mut found: Vec<Vec<DeliveryId>> = vec![Vec::new(); prefixes.len()];
    for Partition { client, keys } in partitions.iter() {
        for (found, matches) in found.iter_mut().zip(find_ids(client, keys, prefixes).await?) {
            match matches {
                DeliveryIdMatches::None => {}
                DeliveryIdMatches::One(id) => found.push(id),
                DeliveryIdMatches::Several(ids) => found.extend(ids),
            }
        }
    }
    Ok(found.into_iter().map(DeliveryIdMatches::from_iter).collect())
}

/// The partition in which a delivery lies: an id does not say whose it is. The first one where it lies in none.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn partition_of<'a>(partitions: &'a Partitions, id: &DeliveryId) -> RedisResult<&'a Partition> {
    let first = partitions.first();
    if partitions.count() == 1 {
        return Ok(first);
    }
    let mut pipeline = redis::pipe();
    for partition in partitions.iter() {
        pipeline.cmd("EXISTS").arg(partition.keys.delivery(id));
    }
    let there: Vec<bool> = first.client.pipe(&pipeline).await?;
    Ok(partitions.iter().zip(there).find_map(|(partition, is_there)| is_there.then_some(partition)).unwrap_or(first))
}
