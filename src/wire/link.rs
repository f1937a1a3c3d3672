//! The shared connection for commands and scripts: many callers, one socket, made again when it breaks.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind,
};
use tokio::sync::Mutex;

/// How long a command may take before its connection is given up. Longer than any script of ours holds the server, and than a
/// fork or a disk hiccup usually does.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to Redis that is made when first needed and again after it broke. It never retries a call by itself: the caller
/// knows whether that is safe and how long to wait.
#[derive(Debug)]
pub struct Link {
    client: Client,
    current: Mutex<Option<Current>>,
}

#[derive(Debug, Clone)]
struct Current {
    number: u64,
    connection: MultiplexedConnection,
}

impl Link {
    /// A link that connects through `client`. Connects nowhere yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, current: Mutex::new(None) }
    }

    /// Runs one command.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; see [`fault_of`]. After a broken connection the command may or may not have run.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let Current { number, mut connection } = self.current().await?;
        let reply = command.query_async(&mut connection).await;
        self.judged(number, reply).await
    }

    /// Runs several commands in one write.
    ///
    /// # Errors
    ///
    /// As [`Link::query`]; the first failing command's error.
    pub async fn pipe<T: FromRedisValue>(&self, pipeline: &Pipeline) -> RedisResult<T> {
        let Current { number, mut connection } = self.current().await?;
        let reply = pipeline.query_async(&mut connection).await;
        self.judged(number, reply).await
    }

    async fn current(&self) -> RedisResult<Current> {
        let mut current = self.current.lock().await;
        if let Some(current) = current.as_ref() {
            return Ok(current.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        // A counter is enough to tell the connection that failed from the one that replaced it meanwhile.
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(current.insert(Current { number, connection }).clone())
    }

    /// Drops the connection where the error says that another one may do better.
    async fn judged<T>(&self, number: u64, reply: RedisResult<T>) -> RedisResult<T> {
        if let Err(error) = &reply
            && matches!(fault_of(error), Fault::Away | Fault::ReadOnly)
        {
            let mut current = self.current.lock().await;
            if current.as_ref().is_some_and(|current| current.number == number) {
                *current = None;
            }
        }
        reply
    }
}

/// What a failed call to Redis means for whoever made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No connection, or it broke: connect again.
    Away,
    /// The server is up but not ready to serve (LOADING, BUSY, MASTERDOWN, TRYAGAIN): wait.
    NotReady,
    /// A replica, or a primary that was demoted: connect again, wait.
    ReadOnly,
    /// `maxmemory` is reached: wait until memory is freed.
    Full,
    /// Wrong password or user.
    Login,
    /// The user may not run the command or touch the key.
    Denied,
    /// A key of ours holds another type, or a value that is not ours.
    WrongType,
    /// Something else: a bug or a server that is not what we take it for.
    Other,
}

impl Fault {
    /// Whether waiting and trying again can mend it.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Away | Self::NotReady | Self::ReadOnly | Self::Full)
    }
}

/// Classifies an error by its kind and code, never by its free text.
#[must_use]
pub fn fault_of(error: &RedisError) -> Fault {
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Fault::Login,
        ErrorKind::Io => return Fault::Away,
        ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::TryAgain | ServerErrorKind::MasterDown) => {
            return Fault::NotReady;
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => return Fault::ReadOnly,
        _ => {}
    }
    if error.is_io_error() || error.is_connection_dropped() || error.is_timeout() {
        return Fault::Away;
    }
    match error.code() {
        Some("NOAUTH" | "WRONGPASS") => Fault::Login,
        Some("NOPERM") => Fault::Denied,
        Some("WRONGTYPE") => Fault::WrongType,
        Some("OOM") => Fault::Full,
        Some("LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "MISCONF" | "NOREPLICAS") => Fault::NotReady,
        Some("READONLY" | "UNBLOCKED") => Fault::ReadOnly,
        _ => Fault::Other,
    }
}
