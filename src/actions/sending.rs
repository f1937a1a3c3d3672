//! Pauses and resumes sending for all daemons.

use redis::RedisResult;
use serde::Serialize;

use crate::outbox::{self, Pause, read_pause};
use crate::redis_client::{Partition, Partitions};
use crate::types::timestamp::Rfc3339;
use crate::views::deliveries::list_destinations;

/// Whether deliveries are sent.
#[derive(Debug, Serialize)]
pub struct SendingState {
    pub paused: bool,
    pub since: Option<Rfc3339>,
    pub reason: Option<String>,
    /// Attempts that are under way.
    pub in_flight: u64,
}

/// Pauses sending. May be repeated; a second pause replaces the reason.
///
/// # Errors
///
/// The failure of Redis or the connection. Some partitions may be paused.
pub async fn pause(partitions: &Partitions, reason: Option<&str>) -> RedisResult<SendingState> {
    outbox::pause(partitions, reason).await?;
    state(partitions).await
}

/// Resumes sending. May be repeated.
///
/// # Errors
///
/// The failure of Redis or the connection. Some partitions may still be paused.
pub async fn resume(partitions: &Partitions) -> RedisResult<SendingState> {
    outbox::resume(partitions).await?;
    state(partitions).await
}

async fn state(partitions: &Partitions) -> RedisResult<SendingState> {
    let pause = current_pause(partitions).await?;
    let in_flight = list_destinations(partitions).await?.iter().map(|one| one.in_flight).sum();
    let paused = pause.is_some();
    let (since, reason) = pause.map_or((None, None), |pause| (pause.since.map(Rfc3339), pause.reason));
    Ok(SendingState { paused, since, reason, in_flight })
}

/// The pause of the first partition that has one.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn current_pause(partitions: &Partitions) -> RedisResult<Option<Pause>> {
    for Partition { client, keys } in partitions.iter() {
        if let Some(pause) = read_pause(client, keys).await? {
            return Ok(Some(pause));
        }
    }
    Ok(None)
}
