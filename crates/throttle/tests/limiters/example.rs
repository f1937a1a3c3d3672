//! The example of the public API works on a real server.

#[path = "../../examples/limiters.rs"]
#[allow(dead_code, reason = "its main is run by cargo")]
mod limiters;

use crate::connect;
use crate::redis_server::RedisServer;

/// Newcomers copy this code: it must work and, as it says, leave nothing permanent.
#[tokio::test]
async fn the_example_runs_and_leaves_only_what_ends() {
    let server = RedisServer::start();
    let mut connection = connect(&server.sync_client()).await;
    limiters::tour(&mut connection, "example").await.expect("it does what it shows");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
    assert!(keys.len() >= 6, "{keys:?}");
    for key in keys {
        let ends_ms: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.expect("a time to live");
        assert!(ends_ms > 0, "{key} stays");
    }
}
