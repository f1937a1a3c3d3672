//! The shared connection to one server: many callers, one socket, made again when it breaks.
//!
//! Knows one server and nothing of others: which one serves a key is decided in [`super::topology`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, FromRedisValue, Pipeline, ProtocolVersion, RedisConnectionInfo,
    RedisError, RedisResult,
};
use tokio::sync::Mutex;

use super::deployment_error::DeploymentError;
use super::error_kind::{ErrorKind, error_kind, is_no_reply};
use super::login::RedisLogin;
use super::node::RedisNode;
use super::redis_url::RedisCredentials;

/// How long a command may take before its connection is given up. Longer than any script of ours holds the server, and
/// than a fork or a disk hiccup usually does.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Calls that are written in one go. Those beyond wait to be queued, which costs more than a place in the queue.
const CALLS_QUEUED_MAX: usize = 1024;

/// A connection to a server that is made when first needed and again after it broke. It never retries a call by itself:
/// the caller knows whether that is safe and how long to wait.
#[derive(Debug)]
pub struct NodeConnection {
    client: Client,
    /// User, password and database, said by us on each new connection rather than by the crate. That makes one error of
    /// every answer to AUTH and another of every answer to SELECT: a server that is busy would be taken for a wrong
    /// password.
    login: RedisLogin,
    db: i64,
    /// Read by each call, so never locked for longer than a copy takes.
    current: RwLock<Option<Current>>,
    /// One connects, the others wait for what comes of it; its error, where that is none.
    connecting: Mutex<Option<RedisError>>,
    /// Attempts to connect that have ended.
    attempts: AtomicU64,
}

#[derive(Debug, Clone)]
struct Current {
    number: u64,
    connection: MultiplexedConnection,
}

impl NodeConnection {
    /// A connection that is made through `client`. Connects nowhere yet.
    pub fn new(client: Client) -> Self {
        let settings = client.get_connection_info().redis_settings();
        let username = settings.username().map(str::to_owned);
        let credentials =
            settings.password().map(|password| RedisCredentials { username, password: password.to_owned() });
        let (client, login, db) = match Client::open(without_login(&client)) {
            Ok(bare) if settings.protocol() == ProtocolVersion::RESP2 => {
                (bare, RedisLogin::fixed(credentials), settings.db())
            }
            // In RESP3 the login is part of HELLO, and its errors come through as they are.
            _ => (client, RedisLogin::default(), 0),
        };
        let attempts = AtomicU64::new(0);
        Self { client, login, db, current: RwLock::default(), connecting: Mutex::default(), attempts }
    }

    /// A connection to this server. Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// The redis crate refuses the settings.
    pub fn to(node: &RedisNode) -> RedisResult<Self> {
        Ok(Self { login: node.login.clone(), ..Self::new(node.client()?) })
    }

    /// Runs one command.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; see [`error_kind`]. After a broken connection the command may or may not have
    /// run.
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

    /// Runs one command that must be answered within `limit`, less than [`RESPONSE_TIMEOUT`], once there is a
    /// connection. One that is too slow is given up; calls that wait on it go on waiting.
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

    /// The connection, made where there is none.
    async fn current(&self) -> RedisResult<Current> {
        if let Some(current) = self.established() {
            return Ok(current);
        }
        let ended = self.attempts.load(Ordering::Acquire);
        let mut failed = self.connecting.lock().await;
        if let Some(current) = self.established() {
            return Ok(current);
        }
        // Each by itself, the callers of a server that hangs would fail one after the other.
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
        // A counter is enough to tell the connection that failed from the one that replaced it meanwhile.
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

    /// Drops the connection where the error says that another one may do better.
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

    /// The error, which names the server where that is no Redis.
    fn explained(&self, error: RedisError) -> RedisError {
        if !is_no_reply(&error) {
            return error;
        }
        let node = self.client.get_connection_info().addr().to_string();
        DeploymentError::NotRedis { node, parse_error: error }.into()
    }
}

/// Where the client connects to, without user, password and database.
fn without_login(client: &Client) -> ConnectionInfo {
    let info = client.get_connection_info().clone();
    // Off by default in the crate: small commands would wait for the acknowledgement of the one before.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    info.set_tcp_settings(tcp).set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name())
}
