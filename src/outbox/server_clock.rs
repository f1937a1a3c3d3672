//! The server's clock, by which everything about deliveries is decided.

use super::error::{Operation, OutboxError};
use crate::types::UnixMs;
use crate::wire::RedisClient;

/// What the server's clock shows.
pub(super) async fn server_time(client: &RedisClient) -> Result<UnixMs, OutboxError> {
    let clock = client.query(&redis::cmd("TIME")).await;
    clock.map(unix_ms).map_err(OutboxError::redis(Operation::Query, "the server's clock"))
}

/// TIME answers with seconds and microseconds.
fn unix_ms((seconds, micros): (i64, i64)) -> UnixMs {
    UnixMs(seconds * 1000 + micros / 1000)
}
