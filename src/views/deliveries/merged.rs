//! Deliveries of all partitions: merges the lists by time, and finds the partition of a delivery by its id.

use redis::RedisResult;
use serde::{Deserialize, Serialize};

use super::ids::{DeliveryCursor, find_ids};
use super::read::{DeliverySlice, list, list_all};
use super::{DeliveryFilter, DeliveryView};
use crate::redis_client::{Partition, Partitions};
use crate::types::{DeliveryId, DeliveryState};
use crate::views::IdPrefix;

/// Like [`list_all`], for every partition, or for the subject's if the filter names one.
pub async fn list_partitions(
    partitions: &Partitions,
    filter: &DeliveryFilter,
    limit: usize,
) -> RedisResult<Vec<DeliveryView>> {
    let mut listed = Vec::new();
    for partition in partitions.of_subject_or_all(filter.subject.as_ref()) {
        listed.extend(list_all(partition, filter, limit).await?);
    }
    // The same order as in each list: dead ones by the time of death.
    let is_dead = filter.state == Some(DeliveryState::Dead);
    let time = |view: &DeliveryView| if is_dead { view.ended_at } else { Some(view.created_at) };
    listed.sort_by_key(time);
    listed.drain(..listed.len().saturating_sub(limit));
    Ok(listed)
}

/// Maximum number of slices that one call of [`list_from`] reads, so that a filter without matches does not read
/// forever.
const SLICES_MAX: usize = 10;

/// The position of a list over all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveriesCursor {
    /// The index of the partition.
    pub(super) partition: usize,
    /// The position in it; `None` for its start.
    pub(super) slice: Option<DeliveryCursor>,
}

/// Reads at most `limit` deliveries that pass the filter, partition by partition, the newest of each first. It may
/// return fewer, or none, although more follow.
pub async fn list_from(
    partitions: &Partitions,
    filter: &DeliveryFilter,
    after: Option<DeliveriesCursor>,
    limit: usize,
) -> RedisResult<(Vec<DeliveryView>, Option<DeliveriesCursor>)> {
    let searched: Vec<&Partition> = partitions.of_subject_or_all(filter.subject.as_ref()).collect();
    let mut cursor = after.unwrap_or(DeliveriesCursor { partition: 0, slice: None });
    let mut listed = Vec::new();
    for _ in 0..SLICES_MAX {
        let Some(partition) = searched.get(cursor.partition) else { return Ok((listed, None)) };
        if listed.len() >= limit {
            break;
        }
        let DeliverySlice { deliveries, next } = list(partition, filter, cursor.slice, limit - listed.len()).await?;
        listed.extend(deliveries);
        cursor = match next {
            Some(next) => DeliveriesCursor { slice: Some(next), ..cursor },
            None => DeliveriesCursor { partition: cursor.partition + 1, slice: None },
        };
    }
    let is_over = cursor.partition >= searched.len();
    Ok((listed, (!is_over).then_some(cursor)))
}

/// The deliveries with each prefix and their partitions, in the order of their ids.
pub async fn find<'a>(
    partitions: &'a Partitions,
    prefixes: &[IdPrefix<DeliveryId>],
) -> RedisResult<Vec<Vec<(&'a Partition, DeliveryId)>>> {
    let mut found = vec![Vec::new(); prefixes.len()];
    for partition in partitions.iter() {
        for (found, ids) in found.iter_mut().zip(find_ids(partition, prefixes).await?) {
            found.extend(ids.into_iter().map(|id| (partition, id)));
        }
    }
    found.iter_mut().for_each(|found| found.sort_by(|(_, a), (_, b)| a.cmp(b)));
    Ok(found)
}

/// The partition of a delivery, which its id does not tell. The first partition if none has it.
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
