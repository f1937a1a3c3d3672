//! Waits for attempts that were running when the source was marked: the source records their outcomes until their
//! leases end.

use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions, RedisClient};
use crate::types::{Destination, Keys};

use super::error::MigrationError;

/// Interval between checks of the source's leases.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Waits until no delivery of the source is leased, at most the longest lease, because no new lease starts after the
/// mark. Otherwise the target could send a message again.
pub(super) async fn wait(from: &Partitions, say: &mut impl FnMut(&str)) -> Result<(), MigrationError> {
    let mut is_said = false;
    for Partition { client, keys } in from.iter() {
        let redis = MigrationError::redis(format!("look which deliveries of {} are being attempted", keys.stream()));
        while is_any_leased(client, keys).await.map_err(&redis)? {
            if !std::mem::replace(&mut is_said, true) {
                say("waiting for attempts that are under way");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }
    Ok(())
}

async fn is_any_leased(client: &RedisClient, keys: &Keys) -> RedisResult<bool> {
    let now = client.server_time().await?;
    for index in [keys.destinations(), keys.destinations_unhealthy()] {
        let destinations: Vec<String> = client.query(redis::cmd("ZRANGE").arg(index).arg(0).arg(-1)).await?;
        for destinations in destinations.chunks(1_000) {
            let mut pipeline = redis::pipe();
            for destination in destinations {
                let leased = format!("{}{}", keys.leased_prefix(), Destination::from_stored(destination));
                pipeline.cmd("ZCOUNT").arg(leased).arg(format!("({}", now.0)).arg("+inf");
            }
            let leased: Vec<u64> = client.pipe(&pipeline).await?;
            if leased.into_iter().any(|leased| leased > 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
