//! The ids of deliveries in the lists of Redis: slice by slice, of one subject, or by prefix.

use std::collections::BTreeSet;

use redis::{Pipeline, RedisResult};
use serde::{Deserialize, Serialize};

use super::DeliveryFilter;
use crate::outbox::subject_deliveries::deliveries_of;
use crate::redis_client::{Partition, RedisClient};
use crate::types::{DeliveryId, DeliveryState, Keys, Subject, UnixMs};
use crate::views::IdPrefix;

/// Number of ids that are read in one call that reads nothing else.
const IDS_READ_MAX: usize = 5000;

/// The position at which a list continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCursor {
    /// The time of the last id.
    pub(super) at: i64,
    /// Number of ids with this time before the position.
    pub(super) seen: usize,
}

/// The list for a filter.
pub(super) fn index_of(keys: &Keys, filter: &DeliveryFilter) -> String {
    match filter.state {
        Some(DeliveryState::Pending) => keys.pending(),
        Some(DeliveryState::Dead) => keys.dead(),
        _ => keys.deliveries(),
    }
}

/// The ids of one slice, the newest first.
pub(super) struct IdSlice {
    pub(super) ids: Vec<DeliveryId>,
    /// The time of each.
    pub(super) scores: Vec<i64>,
    pub(super) next: Option<DeliveryCursor>,
}

pub(super) async fn read_ids(
    client: &RedisClient,
    index: &str,
    (since, before): (Option<UnixMs>, Option<UnixMs>),
    from: Option<DeliveryCursor>,
    count: usize,
) -> RedisResult<IdSlice> {
    let mut command = redis::cmd("ZREVRANGEBYSCORE");
    let newest = || before.map_or_else(|| "+inf".to_owned(), |before| format!("({}", before.0));
    command.arg(index).arg(from.map_or_else(newest, |cursor| cursor.at.to_string()));
    command.arg(since.map_or_else(|| "-inf".to_owned(), |since| since.0.to_string()));
    command.arg("WITHSCORES").arg("LIMIT").arg(from.map_or(0, |cursor| cursor.seen)).arg(count);
    let scored: Vec<(String, i64)> = client.query(&command).await?;
    let (ids, scores): (Vec<DeliveryId>, Vec<i64>) =
        scored.into_iter().map(|(id, score)| (DeliveryId::from_stored(&id), score)).unzip();
    let next = (scores.len() == count).then(|| cursor_after(&scores, from));
    Ok(IdSlice { ids, scores, next })
}

/// The slice of one subject: reads only its ids.
pub(super) async fn read_ids_of_subject(
    partition: &Partition,
    subject: &Subject,
    index: &str,
    (since, before): (Option<UnixMs>, Option<UnixMs>),
    from: Option<DeliveryCursor>,
    count: usize,
) -> RedisResult<IdSlice> {
    let mut scored = scored_of_subject(partition, subject, index).await?;
    scored.retain(|(_, at)| since.is_none_or(|since| since.0 <= *at) && before.is_none_or(|before| *at < before.0));
    // The order of ZREVRANGEBYSCORE.
    scored.sort_by(|(a, a_at), (b, b_at)| (b_at, b.as_str()).cmp(&(a_at, a.as_str())));
    let seen = from.map_or(0, |from| scored.partition_point(|(_, at)| *at > from.at) + from.seen);
    let (ids, scores): (Vec<DeliveryId>, Vec<i64>) = scored.into_iter().skip(seen).take(count).unzip();
    let next = (scores.len() == count).then(|| cursor_after(&scores, from));
    Ok(IdSlice { ids, scores, next })
}

/// The deliveries of a subject that are in a list, with their scores.
pub(super) async fn scored_of_subject(
    partition: &Partition,
    subject: &Subject,
    index: &str,
) -> RedisResult<Vec<(DeliveryId, i64)>> {
    let mut scored = Vec::new();
    for ids in deliveries_of(partition, Some(subject)).await?.chunks(IDS_READ_MAX) {
        let mut pipeline = Pipeline::new();
        for id in ids {
            pipeline.cmd("ZSCORE").arg(index).arg(id.as_str());
        }
        let places: Vec<Option<i64>> = partition.client.pipe(&pipeline).await?;
        scored.extend(ids.iter().cloned().zip(places).filter_map(|(id, place)| Some((id, place?))));
    }
    Ok(scored)
}

/// Many deliveries may have the same millisecond, so the cursor also counts those that were read of its millisecond.
pub(super) fn cursor_after(scores: &[i64], from: Option<DeliveryCursor>) -> DeliveryCursor {
    let at = scores.last().copied().unwrap_or_default();
    let seen = scores.iter().filter(|score| **score == at).count();
    let before = from.filter(|cursor| cursor.at == at).map_or(0, |cursor| cursor.seen);
    DeliveryCursor { at, seen: seen + before }
}

/// Finds the ids with each prefix, in the order of the prefixes. A complete id is looked up directly. Otherwise every
/// id is read once, slice by slice, because the lists are ordered by time.
pub(super) async fn find_ids(
    Partition { client, keys }: &Partition,
    prefixes: &[IdPrefix<DeliveryId>],
) -> RedisResult<Vec<BTreeSet<DeliveryId>>> {
    let mut pipeline = Pipeline::new();
    let whole: Vec<Option<DeliveryId>> = prefixes.iter().map(IdPrefix::whole).collect();
    for id in whole.iter().flatten() {
        pipeline.cmd("EXISTS").arg(keys.delivery(id));
    }
    let there: Vec<bool> = client.pipe(&pipeline).await?;
    let mut there = there.into_iter();
    let mut found: Vec<BTreeSet<DeliveryId>> =
        whole.iter().map(|id| id.clone().filter(|_| there.next() == Some(true)).into_iter().collect()).collect();
    let mut from = None;
    while whole.iter().any(Option::is_none) {
        let IdSlice { ids, next, .. } = read_ids(client, &keys.deliveries(), (None, None), from, IDS_READ_MAX).await?;
        for (prefix, found) in prefixes.iter().zip(&mut found).filter(|(prefix, _)| prefix.whole().is_none()) {
            found.extend(ids.iter().filter(|id| prefix.matches(id.as_str())).cloned());
        }
        from = next;
        if from.is_none() {
            break;
        }
    }
    Ok(found)
}
