//! Who answers where the embedded server should listen.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::client::RedisClient;
use super::embedded_error::EmbeddedError;
use super::node::RedisNode;
use super::server::{InspectError, ServerInfo, inspect};

/// How long a listener that drops connections is taken for one whose process is being ended.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// Between two looks at a server that is not up yet.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Who answers.
pub(super) enum Listener {
    Nobody,
    Server(Box<ServerInfo>),
    /// Something that is no Redis, or one that wants another password.
    Unknown,
}

/// Asks who answers there.
pub(super) async fn listener(node: &RedisNode) -> Result<Listener, EmbeddedError> {
    let begun = Instant::now();
    loop {
        let client = RedisClient::new(node.client()?);
        match inspect(&client).await {
            Ok(info) => return Ok(Listener::Server(Box::new(info))),
            Err(InspectError::Redis(error)) if error.is_connection_refusal() => return Ok(Listener::Nobody),
            // The system closes the sockets of a killed process one after the other: a moment later nobody listens.
            Err(InspectError::Redis(error)) if error.is_connection_dropped() && begun.elapsed() < CLOSING_MAX => {
                sleep(LOOK_EVERY).await;
            }
            Err(_) => return Ok(Listener::Unknown),
        }
    }
}
