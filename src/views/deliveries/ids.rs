//! The ids of deliveries in the lists that Redis keeps: slice by slice, of one subject, or by their beginning.

use std::collections::BTreeSet;

use redis::{Pipeline, RedisResult};
use serde::{Deserialize, Serialize};

use super::DeliveryFilter;
use crate::outbox::subject_deliveries::deliveries_of;
use crate::redis_client::{Partition, RedisClient};
use crate::types::{DeliveryId, DeliveryState, Keys, Subject, UnixMs};
use crate::views::IdPrefix;

/// Ids read in one call where nothing else is.
const IDS_READ_MAX: usize = 5000;

/// The position at which a list continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCursor {
    /// The time of the last id that was looked at.
    pub(super) at: i64,
    /// Ids of that very time that were looked at.
    pub(super) seen: usize,
}

/// The list that holds what a filter asks for.
pub(super) fn index_of(keys: &Keys, filter: &DeliveryFilter) -> String {
    match filter.state {
        Some(DeliveryState::Pending) => keys.pending(),
        Some(DeliveryState::Dead) => keys.dead(),
        _ => keys.deliveries(),
    }
}

/// Ids of one slice, the newest first.
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

/// The same of one subject: reads no ids but its own.
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
    // As ZREVRANGEBYSCORE has them.
    scored.sort_by(|(a, a_at), (b, b_at)| (b_at, b.as_str()).cmp(&(a_at, a.as_str())));
    let seen = from.map_or(0, |from| scored.partition_point(|(_, at)| *at > from.at) + from.seen);
    let (ids, scores): (Vec<DeliveryId>, Vec<i64>) = scored.into_iter().skip(seen).take(count).unzip();
    let next = (scores.len() == count).then(|| cursor_after(&scores, from));
    Ok(IdSlice { ids, scores, next })
}

/// The deliveries of a subject that are in a list, with their places there.
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

/// Many deliveries may be made in one millisecond, so the cursor also counts how many of its millisecond were seen.
pub(super) fn cursor_after(scores: &[i64], from: Option<DeliveryCursor>) -> DeliveryCursor {
    let at = scores.last().copied().unwrap_or_default();
    let seen = scores.iter().filter(|score| **score == at).count();
    let before = from.filter(|cursor| cursor.at == at).map_or(0, |cursor| cursor.seen);
    DeliveryCursor { at, seen: seen + before }
}

/// Finds the ids that begin so, for each prefix in its order. A whole id is looked for. Otherwise every id is read
/// once, slice by slice: the lists are in the order of time.
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
