//! The deliveries of a subject: an index that `schedule.lua` updates with each change of a delivery.
//!
//! So a query about one subject need not read all deliveries. An id stays as long as its hash; schedule.lua has the
//! details.

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions};
use crate::types::{DeliveryId, Subject};

/// The ids of a subject's deliveries, unsorted; without a subject, those of digests. A listed hash may have expired.
pub async fn deliveries_of(
    Partition { client, keys }: &Partition,
    subject: Option<&Subject>,
) -> RedisResult<Vec<DeliveryId>> {
    let key = format!("{}{}", keys.subject_deliveries_prefix(), subject.map_or("", Subject::as_str));
    let ids: Vec<String> = client.query(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1)).await?;
    Ok(ids.iter().map(|id| DeliveryId::from_stored(id)).collect())
}

/// At most `count` ids of each subject's deliveries, in one call: pending ones, then those that ended last.
pub async fn newest_of_each(
    partitions: &Partitions,
    subjects: impl IntoIterator<Item = &Subject>,
    count: usize,
) -> RedisResult<Vec<Vec<DeliveryId>>> {
    let mut pipeline = redis::pipe();
    for subject in subjects {
        let prefix = partitions.partition_of(subject).keys.subject_deliveries_prefix();
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(format!("{prefix}{subject}")).arg("+inf").arg("-inf").arg("LIMIT").arg(0).arg(count);
        pipeline.add_command(command);
    }
    let listed: Vec<Vec<String>> = partitions.first().client.pipe(&pipeline).await?;
    Ok(listed.iter().map(|ids| ids.iter().map(|id| DeliveryId::from_stored(id)).collect()).collect())
}
