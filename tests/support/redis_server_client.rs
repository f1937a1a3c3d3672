//! A client of a test's server, as the daemon uses it.

use quotabell::redis_client::RedisClient;

use super::redis_server::RedisServer;

impl RedisServer {
    /// A client as the daemon uses it.
    pub fn client(&self) -> RedisClient {
        RedisClient::new(self.sync_client())
    }
}
