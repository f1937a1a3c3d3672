//! The shared connection to one server: many callers, one socket, reconnected after it broke.
//!
//! It knows one server only; [`super::topology`] decides which server serves a key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, ProtocolVersion, RedisConnectionInfo,
    RedisError, RedisResult, Value,
};
use tokio::sync::Mutex;

use super::deployment_error::DeploymentError;
use super::error_kind::{ErrorKind, error_kind, is_no_reply};
use super::login::RedisLogin;
use super::node::RedisNode;
use super::redis_url::RedisCredentials;

/// Maximum time of a command before its connection is closed. Longer than any of our scripts blocks the server, and
/// longer than a fork or a slow disk usually does.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to connect.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of calls per write. Further calls wait for a place in the queue.
const CALLS_QUEUED_MAX: usize = 1024;

/// A connection to a server, made on first use and again after it broke. It never retries a call: the caller knows
/// whether a retry is safe and how long to wait.
#[derive(Debug)]
pub struct NodeConnection {
    client: Client,
    /// User, password and database. This file sends them on each new connection, because the crate maps every error of
    /// AUTH to one error and every error of SELECT to another: a busy server would look like a wrong password.
    login: RedisLogin,
    db: i64,
    /// Each call reads it, so it is locked only for a copy.
    current: RwLock<Option<Current>>,
    /// One caller connects and the others wait for the result; holds the error if connecting failed.
    connecting: Mutex<Option<RedisError>>,
    /// Number of finished attempts to connect.
    attempts: AtomicU64,
}

#[derive(Debug, Clone)]
struct Current {
    number: u64,
    connection: MultiplexedConnection,
}

impl NodeConnection {
    /// A connection through `client`. Connects nowhere yet.
    pub fn new(client: Client) -> Self {
        let settings = client.get_connection_info().redis_settings();
        let username = settings.username().map(str::to_owned);
        let credentials =
            settings.password().map(|password| RedisCredentials { username, password: password.to_owned() });
        let (client, login, db) = match Client::open(without_login(&client)) {
            Ok(bare) if settings.protocol() == ProtocolVersion::RESP2 => {
                (bare, RedisLogin::fixed(credentials), settings.db())
            }
            // In RESP3 the login is part of HELLO, and its errors arrive unchanged.
            _ => (client, RedisLogin::default(), 0),
        };
        let attempts = AtomicU64::new(0);
        Self { client, login, db, current: RwLock::default(), connecting: Mutex::default(), attempts }
    }

    /// A connection to this server. Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// The redis crate rejects the settings.
    pub fn to(node: &RedisNode) -> RedisResult<Self> {
        Ok(Self { login: node.login.clone(), ..Self::new(node.client()?) })
    }

    /// Runs one command.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection; see [`error_kind`]. If the connection broke, the command may have run.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let Current { number, mut connection } = self.current().await?;
        let reply = command.query_async(&mut connection).await;
        self.discard_if_broken(number, reply)
    }

    /// Runs several commands in one write.
    ///
    /// # Errors
    ///
    /// As [`NodeConnection::query`]; the first failing command's error.
    pub async fn pipe<T: FromRedisValue>(&self, pipeline: &Pipeline) -> RedisResult<T> {
        let Current { number, mut connection } = self.current().await?;
        let reply = pipeline.query_async(&mut connection).await;
        self.discard_if_broken(number, reply)
    }

    /// As [`Self::pipe`], with the result of each command.
    pub async fn pipe_each(&self, pipeline: &Pipeline) -> RedisResult<Vec<RedisResult<()>>> {
        let Current { number, mut connection } = self.current().await?;
        let replies: RedisResult<Vec<RedisResult<()>>> = pipeline.query_async(&mut connection).await;
        // A server that has become a replica refuses each command and keeps the connection.
        for error in replies.iter().flatten().filter_map(|reply| reply.as_ref().err()) {
            let _ = self.discard_if_broken::<()>(number, Err(error.clone()));
        }
        self.discard_if_broken(number, replies)
    }

    /// As [`Self::pipe`], with each reply as it came.
    pub async fn pipe_raw(&self, pipeline: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let Current { number, mut connection } = self.current().await?;
        let replies = connection.req_packed_commands(pipeline, offset, count).await;
        self.discard_if_broken(number, replies)
    }

    /// Runs one command whose reply must arrive within `limit` (less than [`RESPONSE_TIMEOUT`]) once a connection
    /// exists. After that time it returns an error; other calls on the connection continue.
    ///
    /// # Errors
    ///
    /// As [`NodeConnection::query`].
    pub async fn query_within<T: FromRedisValue>(&self, limit: Duration, command: &Cmd) -> RedisResult<T> {
        let Current { number, mut connection } = self.current().await?;
        let reply = match tokio::time::timeout(limit, command.query_async(&mut connection)).await {
            Ok(reply) => reply,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        };
        self.discard_if_broken(number, reply)
    }

    /// Returns the connection and makes it if there is none.
    async fn current(&self) -> RedisResult<Current> {
        if let Some(current) = self.established() {
            return Ok(current);
        }
        let ended = self.attempts.load(Ordering::Acquire);
        let mut failed = self.connecting.lock().await;
        if let Some(current) = self.established() {
            return Ok(current);
        }
        // If each caller connected for itself, the callers of a hanging server would time out one after another.
        if let Some(error) = failed.as_ref().filter(|_| self.attempts.load(Ordering::Acquire) != ended) {
            return Err(error.clone());
        }
        let made = self.connect().await;
        *failed = made.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::Release);
        let current = made?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(current.clone());
        Ok(current)
    }

    async fn connect(&self) -> RedisResult<Current> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_pipeline_buffer_size(CALLS_QUEUED_MAX);
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        self.log_in(&mut connection).await.map_err(|error| self.explained(error))?;
        // The number tells the connection that failed from a newer one.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Current { number, connection })
    }

    async fn log_in(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        if let Some(RedisCredentials { username, password }) = self.login.current() {
            let mut auth = redis::cmd("AUTH");
            let answer: RedisResult<()> = auth.arg(&username).arg(password).query_async(connection).await;
            match &answer {
                Ok(()) => self.login.accepted(),
                Err(error) if error_kind(error) == ErrorKind::Login => {
                    let node = self.client.get_connection_info().addr();
                    self.login.refused(node, username.as_deref(), error);
                }
                Err(_) => {}
            }
            answer?;
        }
        if self.db != 0 {
            let () = redis::cmd("SELECT").arg(self.db).query_async(connection).await?;
        }
        Ok(())
    }

    fn established(&self) -> Option<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops the connection if the error says that a new one may work.
    fn discard_if_broken<T>(&self, number: u64, reply: RedisResult<T>) -> RedisResult<T> {
        let reply = reply.map_err(|error| self.explained(error));
        if let Err(error) = &reply
            && matches!(
                error_kind(error),
                ErrorKind::Unreachable | ErrorKind::ReadOnly | ErrorKind::Deployment | ErrorKind::Login
            )
        {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            if current.as_ref().is_some_and(|current| current.number == number) {
                *current = None;
            }
        }
        reply
    }

    /// The error, with the server's name if the server is no Redis.
    fn explained(&self, error: RedisError) -> RedisError {
        if !is_no_reply(&error) {
            return error;
        }
        let node = self.client.get_connection_info().addr().to_string();
        DeploymentError::NotRedis { node, parse_error: error }.into()
    }
}

/// Address and settings of the client, without user, password and database.
fn without_login(client: &Client) -> ConnectionInfo {
    let info = client.get_connection_info().clone();
    // Off by default in the crate: small commands would wait for the acknowledgment of the previous one.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    info.set_tcp_settings(tcp).set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name())
}
