//! The limiters on a real redis-server: at their edges, against plain models on a clock that the test sets, and in
//! races of 64 connections.

mod claims_model;
#[allow(dead_code, reason = "`make test-peers` uses all of it")]
mod clocked_server;
mod edges;
#[path = "../../../../tests/support/eventually.rs"]
mod eventually;
mod example;
mod model;
mod races;
mod rates_model;
#[path = "../../../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests of quotabell use all of it")]
mod redis_server;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

/// A connection that waits longer than the half second of the default: the machine may be busy.
async fn connect(client: &redis::Client) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(eventually::WAIT_MAX));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}
