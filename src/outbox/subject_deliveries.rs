//! Which deliveries a subject has: an index that `schedule.lua` keeps with each change of a delivery.
//!
//! So nobody who asks for one subject reads the deliveries of all. Each id stays for as long as its hash, which
//! schedule.lua says.

use redis::RedisResult;

use crate::redis_client::Partition;
use crate::types::{DeliveryId, Subject};

/// The ids of the deliveries of a subject, in no order; without one, of those that are about nobody: digests. A hash
/// may have expired.
pub async fn deliveries_of(
    Partition { client, keys }: &Partition,
    subject: Option<&Subject>,
) -> RedisResult<Vec<DeliveryId>> {
    let key = format!("{}{}", keys.subject_deliveries_prefix(), subject.map_or("", Subject::as_str));
    let ids: Vec<String> = client.query(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1)).await?;
    Ok(ids.iter().map(|id| DeliveryId::from_stored(id)).collect())
}
