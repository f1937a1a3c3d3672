//! The example of the public API works on a real server.

#[path = "../../examples/limiters.rs"]
#[allow(dead_code, reason = "its main is run by cargo")]
mod limiters;

use crate::support::redis_server::RedisServer;

/// Newcomers copy this code: it must work and, as it says, leave nothing permanent.
#[tokio::test]
async fn the_example_runs_and_leaves_only_what_ends() {
    let server = RedisServer::start();
    let client = server.client();
    limiters::tour(&client, "example").await.expect("it does what it shows");
    let keys: Vec<String> = client.query(redis::cmd("KEYS").arg("*")).await.expect("keys");
    assert!(keys.len() >= 6, "{keys:?}");
    for key in keys {
        let ends_ms: i64 = client.query(redis::cmd("PTTL").arg(&key)).await.expect("a time to live");
        assert!(ends_ms > 0, "{key} stays");
    }
}
