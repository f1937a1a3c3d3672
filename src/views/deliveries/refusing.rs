//! Receivers that refuse what they get. They answer, so their circuits stay closed while their deliveries die.

use redis::{FromRedisValue, Pipeline, RedisResult};

use crate::redis_client::{Partition, Partitions, RedisClient};
use crate::types::{Attempt, DeliveryId, Destination, OutcomeClass};

/// Maximum number of queues that are searched, in all partitions together.
const QUEUES_MAX: usize = 100;
/// Number of deliveries that are read of each.
const READ_MAX: usize = 5;
/// Number of attempts after which a refusal needs attention: a receiver that is being changed may refuse for a moment.
const ATTEMPTS_MIN: u32 = 3;

/// The queue of a receiver that refuses deliveries.
#[derive(Debug)]
pub struct RefusingQueue<'a> {
    pub partition: &'a Partition,
    pub destination: Destination,
    /// The last error of a delivery that waits.
    pub error: String,
}

/// The queues with a delivery whose last attempt was refused. Searches a bounded number of them, in a few calls: those
/// that are due last, as after refusals.
pub async fn refusing_queues(partitions: &Partitions) -> RedisResult<Vec<RefusingQueue<'_>>> {
    let client = &partitions.first().client;
    let all: Vec<&Partition> = partitions.iter().collect();
    let names: Vec<Vec<String>> = for_each(client, &all, |pipeline, Partition { keys, .. }| {
        pipeline.cmd("ZRANGE").arg(keys.destinations()).arg(0).arg(QUEUES_MAX - 1).arg("REV");
    })
    .await?;
    let of_partition = |(partition, names): (_, Vec<String>)| {
        names.into_iter().map(move |name| (partition, Destination::from_stored(&name)))
    };
    let queues = all.into_iter().zip(names).flat_map(of_partition);
    let queues: Vec<(&Partition, Destination)> =
        queues.filter(|(_, destination)| *destination != Destination::none()).take(QUEUES_MAX).collect();
    let ids: Vec<Vec<String>> = for_each(client, &queues, |pipeline, (Partition { keys, .. }, destination)| {
        pipeline.cmd("ZRANGE").arg(keys.due(destination)).arg(0).arg(READ_MAX - 1).arg("REV");
    })
    .await?;
    let of_queue =
        |(queue, ids): (_, Vec<String>)| ids.into_iter().map(move |id| (queue, DeliveryId::from_stored(&id)));
    let waiting: Vec<(&(&Partition, Destination), DeliveryId)> = queues.iter().zip(ids).flat_map(of_queue).collect();
    let tried: Vec<(Option<u32>, Option<String>)> = for_each(client, &waiting, |pipeline, ((partition, _), id)| {
        pipeline.cmd("HMGET").arg(partition.keys.delivery(id)).arg(&["attempts", "last_error"]);
    })
    .await?;
    let failed = waiting.into_iter().zip(tried).filter_map(|((queue, id), (attempts, error))| {
        Some((queue, id, attempts.filter(|attempts| *attempts >= ATTEMPTS_MIN)?, error?))
    });
    let failed: Vec<_> = failed.collect();
    // A running attempt is counted and has no record yet.
    let records: Vec<Vec<Option<String>>> = for_each(client, &failed, |pipeline, ((partition, _), id, attempts, _)| {
        let fields = [*attempts, attempts - 1].map(|number| format!("attempt:{number}"));
        pipeline.cmd("HMGET").arg(partition.keys.delivery(id)).arg(&fields);
    })
    .await?;
    let refused = failed.into_iter().zip(records).filter_map(|(((partition, destination), _, _, error), records)| {
        let last: Attempt = serde_json::from_str(records.iter().flatten().next()?).ok()?;
        let is_refused = last.outcome == OutcomeClass::Rejected.as_str();
        is_refused.then(|| RefusingQueue { partition, destination: destination.clone(), error })
    });
    let mut refused: Vec<RefusingQueue<'_>> = refused.collect();
    refused.dedup_by(|a, b| a.destination == b.destination && std::ptr::eq(a.partition, b.partition));
    Ok(refused)
}

/// Sends one command for each item, all in one call.
async fn for_each<I, T: FromRedisValue>(
    client: &RedisClient,
    items: &[I],
    command: impl Fn(&mut Pipeline, &I),
) -> RedisResult<Vec<T>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = redis::pipe();
    items.iter().for_each(|item| command(&mut pipeline, item));
    client.pipe(&pipeline).await
}
