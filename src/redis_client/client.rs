//! The client of Redis that all callers use: it sends a command to the one server, or to the server of the command's
//! key.
//!
//! A client belongs to a partition: commands without a key (TIME, INFO, PING) go to the server of the partition's
//! stream. Read next: [`super::connection`], the socket, and [`super::router`], which finds the server of a command.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Client, Cmd, FromRedisValue, Pipeline, RedisFuture, RedisResult, Value};

use crate::types::UnixMs;

pub use super::connection::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
pub use super::error_kind::{ErrorKind, error_kind};

use super::connection::NodeConnection;
use super::node::RedisNode;
use super::redis_url::RedisAddress;
use super::router::{RoutedCall, Router};

/// A client of Redis that many callers share. It connects on first use and reconnects after a connection broke. It
/// never resends a command that may have run: the caller knows whether a retry is safe and how long to wait.
#[derive(Debug)]
pub struct RedisClient {
    servers: Servers,
}

#[derive(Debug)]
enum Servers {
    /// One server for every key.
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

    /// A client on the same connections for another partition: commands without a key go to the server of
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
    /// The error of Redis or of the connection; see [`error_kind`]. If the connection broke, the command may have run.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match &self.servers {
            Servers::One(connection) => connection.query(command).await,
            Servers::Routed(router) => command.query_async(&mut RoutedCall::new(router)).await,
        }
    }

    /// Removes the stream entries whose fields pass the filter, reading `at_once` entries at a time. Returns the number
    /// of removed entries. Repeatable.
    ///
    /// # Errors
    ///
    /// As [`Self::query`]; some entries may already be removed.
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

    /// Returns the time of the server's clock.
    pub async fn server_time(&self) -> RedisResult<UnixMs> {
        let (seconds, micros): (i64, i64) = self.query(&redis::cmd("TIME")).await?;
        Ok(UnixMs(seconds * 1000 + micros / 1000))
    }

    /// Runs several commands in one write per server. A transaction becomes one transaction per hash slot. An empty
    /// pipeline sends nothing and returns an empty reply.
    ///
    /// # Errors
    ///
    /// As [`RedisClient::query`], with the error of the first failing command. If one server is unreachable, the
    /// commands of other servers may have run.
    pub async fn pipe<T: FromRedisValue>(&self, pipeline: &Pipeline) -> RedisResult<T> {
        // The crate would return an error.
        if pipeline.is_empty() {
            return Ok(T::from_redis_value(Value::Array(Vec::new()))?);
        }
        match &self.servers {
            Servers::One(connection) => connection.pipe(pipeline).await,
            Servers::Routed(router) => pipeline.query_async(&mut RoutedCall::new(router)).await,
        }
    }

    /// As [`Self::pipe`], with the result of each command of a pipeline that ignores errors.
    pub async fn pipe_each(&self, pipeline: &Pipeline) -> RedisResult<Vec<RedisResult<()>>> {
        match &self.servers {
            Servers::One(connection) => connection.pipe_each(pipeline).await,
            Servers::Routed(router) => pipeline.query_async(&mut RoutedCall::new(router)).await,
        }
    }

    /// Runs one command whose reply must arrive within `limit` (less than [`RESPONSE_TIMEOUT`]) once a connection
    /// exists. After that time it returns an error; other calls on the connection continue.
    pub async fn query_within<T: FromRedisValue>(&self, limit: Duration, command: &Cmd) -> RedisResult<T> {
        match &self.servers {
            Servers::One(connection) => connection.query_within(limit, command).await,
            Servers::Routed(router) => command.query_async(&mut RoutedCall::within(router, limit)).await,
        }
    }

    /// The client as a connection of the redis crate, for one call of a limiter. A command without a key goes to the
    /// server of the command before it: a limiter that loads its script means that server.
    pub fn connection(&self) -> ClientConnection<'_> {
        match &self.servers {
            Servers::One(connection) => ClientConnection::One(connection),
            Servers::Routed(router) => ClientConnection::Routed(RoutedCall::new(router)),
        }
    }

    /// Loads a script on the server that receives `call`, an `EVALSHA`.
    pub(super) async fn load_script(&self, source: &str, call: &Cmd) -> RedisResult<()> {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(source);
        match &self.servers {
            Servers::One(connection) => connection.query(&load).await,
            Servers::Routed(router) => load.query_async(&mut RoutedCall::beside(router, call)).await,
        }
    }

    /// A client of the one server of commands without a key, for commands that must share a connection.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the server.
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
    /// No Sentinel or node knows the server.
    pub(super) async fn default_server(&self) -> RedisResult<Option<RedisAddress>> {
        match &self.servers {
            Servers::One(_) => Ok(None),
            Servers::Routed(router) => router.default_server().await.map(Some),
        }
    }

    /// One client per primary, for operations on all keys.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the servers.
    pub async fn primaries(&self) -> RedisResult<Vec<Self>> {
        match &self.servers {
            Servers::One(connection) => Ok(vec![Self::on(Arc::clone(connection))]),
            Servers::Routed(router) => Ok(router.primaries().await?.into_iter().map(Self::on).collect()),
        }
    }
}

/// See [`RedisClient::connection`].
#[derive(Debug)]
pub enum ClientConnection<'a> {
    /// To the only server.
    One(&'a NodeConnection),
    /// To the primaries.
    Routed(RoutedCall<'a>),
}

impl ConnectionLike for ClientConnection<'_> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => Box::pin(connection.query(command)),
            Self::Routed(call) => call.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => Box::pin(connection.pipe_raw(pipeline, offset, count)),
            Self::Routed(call) => call.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        0
    }
}
