//! The deliveries that carry a notice, or leave in a message with others, by the id that receivers know.

use std::collections::BTreeMap;

use redis::{Pipeline, RedisResult};

use super::ids::{IdSlice, read_ids};
use crate::redis_client::{Partition, Partitions};
use crate::types::DeliveryId;
use crate::views::NotificationId;

/// Number of deliveries whose fields are read in one call.
const READ_MAX: usize = 1_000;

/// The deliveries with this id, by the complete id. Reads a field of every delivery, slice by slice, because no index
/// leads from a notice to its deliveries.
pub async fn find_notified<'a>(
    partitions: &'a Partitions,
    named: &NotificationId,
) -> RedisResult<BTreeMap<String, Vec<(&'a Partition, DeliveryId)>>> {
    let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for partition in partitions.iter() {
        let Partition { client, keys } = partition;
        let mut from = None;
        loop {
            let IdSlice { ids, next, .. } = read_ids(client, &keys.deliveries(), (None, None), from, READ_MAX).await?;
            let mut pipeline = Pipeline::new();
            for id in &ids {
                pipeline.cmd("HMGET").arg(keys.delivery(id)).arg(named.fields());
            }
            let values: Vec<Vec<Option<String>>> = client.pipe(&pipeline).await?;
            for (id, values) in ids.into_iter().zip(values) {
                if let Some(whole) = values.into_iter().flatten().find_map(|value| named.matching(value)) {
                    found.entry(whole).or_default().push((partition, id));
                }
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
    }
    Ok(found)
}
