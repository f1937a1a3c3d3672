//! Dead deliveries by destination and cause.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::ids::{IdSlice, read_ids};
use super::read::destination_of;
use super::{DeliveriesCursor, cause_of};
use crate::redis_client::{Partition, Partitions};
use crate::types::timestamp::Rfc3339;
use crate::types::{Channel, DeliveryId, DeliveryState, Destination, Keys, UnixMs};
use crate::views::Cursor;

/// Number of dead deliveries in a slice.
const READ_MAX: usize = 2_000;
/// Maximum number of partitions in a slice: each takes two calls.
const PARTITIONS_MAX: usize = 10;
/// What is read of each: not the alert, which is far larger.
const FIELDS: [&str; 5] = ["state", "destination", "channel", "last_error", "ended_at_ms"];

/// Dead deliveries in one slice, grouped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DeadCauseList")]
pub struct DeadCausesView {
    /// The most frequent cause first, within the slice.
    pub causes: Vec<DeadCauseView>,
    /// Number of dead deliveries in the slice.
    pub examined: usize,
    /// What `after` takes to get the next slice; null at the end.
    pub next: Option<String>,
}

/// The dead deliveries to a destination with one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DeadCause")]
pub struct DeadCauseView {
    pub destination: Destination,
    pub channel: Channel,
    /// The last error, with `<address>` for email addresses.
    pub cause: String,
    #[schemars(range(min = 1))]
    pub count: usize,
    /// When the first and the last of them died.
    pub first_died_at: Option<Rfc3339>,
    pub last_died_at: Option<Rfc3339>,
    /// The one that died last.
    pub newest: DeliveryId,
}

/// Reads the next slice of the dead deliveries that can still be replayed.
pub async fn dead_causes(partitions: &Partitions, from: Option<DeliveriesCursor>) -> RedisResult<DeadCausesView> {
    let mut cursor = from.unwrap_or(DeliveriesCursor { partition: 0, slice: None });
    let mut dead = Vec::new();
    let mut searched = VecDeque::from(partitions_with(partitions, Keys::dead).await?);
    searched.retain(|(index, _)| cursor.partition <= *index);
    for _ in 0..PARTITIONS_MAX {
        let Some((index, partition)) = searched.pop_front() else { break };
        let slice = cursor.slice.filter(|_| cursor.partition == index);
        let dead_key = partition.keys.dead();
        let IdSlice { ids, next, .. } =
            read_ids(&partition.client, &dead_key, (None, None), slice, READ_MAX - dead.len()).await?;
        dead.extend(read_dead(partition, ids).await?);
        cursor = DeliveriesCursor { partition: index, slice: next };
        if next.is_some() {
            break;
        }
        cursor.partition += 1;
    }
    let is_over = cursor.slice.is_none() && searched.is_empty();
    let next = (!is_over).then(|| Cursor(cursor).to_string());
    Ok(DeadCausesView { examined: dead.len(), causes: grouped(dead), next })
}

/// The partitions that have a key, with their indexes.
pub async fn partitions_with(
    partitions: &Partitions,
    key: fn(&Keys) -> String,
) -> RedisResult<Vec<(usize, &Partition)>> {
    let mut exist = redis::pipe();
    for Partition { keys, .. } in partitions.iter() {
        exist.cmd("EXISTS").arg(key(keys));
    }
    let exist: Vec<bool> = partitions.first().client.pipe(&exist).await?;
    Ok(partitions.iter().enumerate().zip(exist).filter_map(|(partition, exists)| exists.then_some(partition)).collect())
}

/// A delivery that died.
struct DeadDelivery {
    id: DeliveryId,
    destination: Destination,
    channel: Channel,
    cause: String,
    at: Option<Rfc3339>,
}

/// Those of a partition that are still dead.
async fn read_dead(
    Partition { client, keys }: &Partition,
    ids: Vec<DeliveryId>,
) -> RedisResult<impl Iterator<Item = DeadDelivery>> {
    let mut pipeline = redis::pipe();
    for id in &ids {
        pipeline.cmd("HMGET").arg(keys.delivery(id)).arg(&FIELDS);
    }
    let replies: Vec<[Option<String>; FIELDS.len()]> =
        if ids.is_empty() { Vec::new() } else { client.pipe(&pipeline).await? };
    let of_fields = |(id, [state, destination, channel, error, at]): (DeliveryId, [Option<String>; FIELDS.len()])| {
        let is_dead = DeliveryState::from_stored(&state?)? == DeliveryState::Dead;
        is_dead.then_some(DeadDelivery {
            id,
            destination: destination_of(destination.as_ref()),
            channel: Channel::from_stored(&channel?)?,
            cause: cause_of(error.as_deref()),
            at: at.and_then(|at| at.parse().ok()).map(UnixMs).map(Rfc3339),
        })
    };
    Ok(ids.into_iter().zip(replies).filter_map(of_fields))
}

fn grouped(dead: Vec<DeadDelivery>) -> Vec<DeadCauseView> {
    let mut causes: BTreeMap<(Destination, String), DeadCauseView> = BTreeMap::new();
    for DeadDelivery { id, destination, channel, cause, at } in dead {
        let group = causes.entry((destination.clone(), cause.clone())).or_insert_with(|| DeadCauseView {
            destination,
            channel,
            cause,
            count: 0,
            first_died_at: at,
            last_died_at: at,
            newest: id.clone(),
        });
        group.count += 1;
        group.first_died_at = group.first_died_at.min(at);
        if at > group.last_died_at {
            (group.last_died_at, group.newest) = (at, id);
        }
    }
    let mut causes: Vec<DeadCauseView> = causes.into_values().collect();
    causes.sort_by_key(|cause| Reverse(cause.count));
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::deliveries::UNKNOWN_CAUSE;

    /// One full mailbox server must be one line, not one for each of its mailboxes.
    #[test]
    fn a_cause_names_no_address() {
        assert_eq!(cause_of(Some("550 5.1.1 <ann@b.test>: no such user")), "550 5.1.1 <address> no such user");
        assert_eq!((cause_of(Some("HTTP 503")), cause_of(None)), ("HTTP 503".to_owned(), UNKNOWN_CAUSE.to_owned()));
    }
}
