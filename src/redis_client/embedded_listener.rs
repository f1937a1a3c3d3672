//! Finds out what listens on the port of the embedded server.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::client::RedisClient;
use super::embedded_error::EmbeddedError;
use super::node::RedisNode;
use super::server::{InspectError, ServerInfo, inspect};

/// Maximum time for which a listener that drops connections counts as a process that is ending.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// Interval between two checks of a server that is starting.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What listens on the port.
pub(super) enum Listener {
    Nobody,
    Server(Box<ServerInfo>),
    /// Something else than Redis, or a server with another password.
    Unknown,
}

/// Asks what listens at the address.
pub(super) async fn listener(node: &RedisNode) -> Result<Listener, EmbeddedError> {
    let begun = Instant::now();
    loop {
        let client = RedisClient::new(node.client()?);
        match inspect(&client).await {
            Ok(info) => return Ok(Listener::Server(Box::new(info))),
            Err(InspectError::Redis(error)) if error.is_connection_refusal() => return Ok(Listener::Nobody),
            // The system closes the sockets of a killed process one after another: a moment later nothing listens.
            Err(InspectError::Redis(error)) if error.is_connection_dropped() && begun.elapsed() < CLOSING_MAX => {
                sleep(LOOK_EVERY).await;
            }
            Err(_) => return Ok(Listener::Unknown),
        }
    }
}
