//! What everybody calls Redis through: one server, or whichever serves the key of a command.
//!
//! A client belongs to a partition: what names no key (TIME, INFO, PING) goes to the server that serves its stream.
//! Read next: [`super::connection`], the socket, and [`super::router`], how a command finds its server.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, Cmd, FromRedisValue, Pipeline, RedisResult, Value};

use crate::types::UnixMs;

pub use super::connection::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
pub use super::error_kind::{ErrorKind, error_kind};

use super::connection::NodeConnection;
use super::node::RedisNode;
use super::redis_url::RedisAddress;
use super::router::{RoutedCall, Router};

/// A client of Redis that many callers share. It connects when first needed and again after a connection broke. It
/// never sends a command again that may have run: the caller knows whether that is safe and how long to wait.
#[derive(Debug)]
pub struct RedisClient {
    servers: Servers,
}

#[derive(Debug)]
enum Servers {
    /// This one, whatever the key.
    One(Arc<NodeConnection>),
    /// The primary that serves the key.
    Routed(Router),
}

impl RedisClient {
    /// A client of one server. Connects nowhere yet.
    pub fn new(client: Client) -> Self {
        Self::on(Arc::new(NodeConnection::new(client)))
    }

    /// A client of the server at this URL, `redis://127.0.0.1:6379`. Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// What is wrong with the URL.
    pub fn open(url: &str) -> RedisResult<Self> {
        Ok(Self::new(Client::open(url)?))
    }

    /// A client of this server. Connects nowhere yet.
    pub(super) fn to(node: &RedisNode) -> RedisResult<Self> {
        Ok(Self::on(Arc::new(NodeConnection::to(node)?)))
    }

    /// A client that asks which server serves a key.
    pub(super) const fn routed(router: Router) -> Self {
        Self { servers: Servers::Routed(router) }
    }

    const fn on(connection: Arc<NodeConnection>) -> Self {
        Self { servers: Servers::One(connection) }
    }

    /// A client on the same connections for another partition: what names no key goes to the server that serves
    /// `default_key`.
    pub fn routed_by(&self, default_key: &str) -> Self {
        match &self.servers {
            Servers::One(connection) => Self::on(Arc::clone(connection)),
            Servers::Routed(router) => Self::routed(router.routed_by(default_key)),
        }
    }

    /// Runs one command.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; see [`error_kind`]. After a broken connection the command may or may not have
    /// run.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match &self.servers {
            Servers::One(connection) => connection.query(command).await,
            Servers::Routed(router) => command.query_async(&mut RoutedCall::new(router)).await,
        }
    }

    /// Removes the entries of a stream whose names and values pass, reading so many at a time, and says how many they
    /// were. Repeatable.
    ///
    /// # Errors
    ///
    /// As [`Self::query`]; a part may be removed.
    pub async fn remove_entries(
        &self,
        key: &str,
        at_once: usize,
        passes: impl Fn(&[Vec<u8>]) -> bool,
    ) -> RedisResult<u64> {
        let (mut from, mut removed) = ("-".to_owned(), 0);
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(key).arg(&from).arg("+").arg("COUNT").arg(at_once);
            let entries: Vec<(String, Vec<Vec<u8>>)> = self.query(&command).await?;
            let Some((last, _)) = entries.last() else { return Ok(removed) };
            from = format!("({last}");
            let ids: Vec<&String> = entries.iter().filter(|(_, values)| passes(values)).map(|(id, _)| id).collect();
            if !ids.is_empty() {
                removed += self.query::<u64>(redis::cmd("XDEL").arg(key).arg(&ids)).await?;
            }
        }
    }

    /// What the server's clock shows.
    pub async fn server_time(&self) -> RedisResult<UnixMs> {
        let (seconds, micros): (i64, i64) = self.query(&redis::cmd("TIME")).await?;
        Ok(UnixMs(seconds * 1000 + micros / 1000))
    }

    /// Runs several commands in one write; where their keys lie on several servers, in one write to each. A transaction
    /// is then one for each hash slot. Without commands nothing is asked, and the answer is empty.
    ///
    /// # Errors
    ///
    /// As [`RedisClient::query`]; the first failing command's error. Where one server can't be reached, the commands of
    /// the others may have run.
    pub async fn pipe<T: FromRedisValue>(&self, pipeline: &Pipeline) -> RedisResult<T> {
        // To the crate that would be an error.
        if pipeline.is_empty() {
            return Ok(T::from_redis_value(Value::Array(Vec::new()))?);
        }
        match &self.servers {
            Servers::One(connection) => connection.pipe(pipeline).await,
            Servers::Routed(router) => pipeline.query_async(&mut RoutedCall::new(router)).await,
        }
    }

    /// Runs one command that must be answered within `limit`, less than [`RESPONSE_TIMEOUT`], once there is a
    /// connection. One that is too slow is given up; calls that wait on it go on waiting.
    pub async fn query_within<T: FromRedisValue>(&self, limit: Duration, command: &Cmd) -> RedisResult<T> {
        match &self.servers {
            Servers::One(connection) => connection.query_within(limit, command).await,
            Servers::Routed(router) => command.query_async(&mut RoutedCall::within(router, limit)).await,
        }
    }

    /// Makes a script known to the server that `call`, an `EVALSHA`, goes to.
    pub(super) async fn load_script(&self, source: &str, call: &Cmd) -> RedisResult<()> {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(source);
        match &self.servers {
            Servers::One(connection) => connection.query(&load).await,
            Servers::Routed(router) => load.query_async(&mut RoutedCall::beside(router, call)).await,
        }
    }

    /// A client of the one server that answers what names no key: for commands that must share a connection.
    ///
    /// # Errors
    ///
    /// Nobody tells which server that is.
    pub async fn primary(&self) -> RedisResult<Self> {
        match &self.servers {
            Servers::One(connection) => Ok(Self::on(Arc::clone(connection))),
            Servers::Routed(router) => Ok(Self::on(Arc::new(router.connect_to_default().await?))),
        }
    }

    /// The server of commands without a key; `None` if there is only one server.
    ///
    /// # Errors
    ///
    /// Nobody tells which server that is.
    pub(super) async fn default_server(&self) -> RedisResult<Option<RedisAddress>> {
        match &self.servers {
            Servers::One(_) => Ok(None),
            Servers::Routed(router) => router.default_server().await.map(Some),
        }
    }

    /// A client of each server that holds keys, for what has to look at all of them.
    ///
    /// # Errors
    ///
    /// Nobody tells which servers these are.
    pub async fn primaries(&self) -> RedisResult<Vec<Self>> {
        match &self.servers {
            Servers::One(connection) => Ok(vec![Self::on(Arc::clone(connection))]),
            Servers::Routed(router) => Ok(router.primaries().await?.into_iter().map(Self::on).collect()),
        }
    }
}
