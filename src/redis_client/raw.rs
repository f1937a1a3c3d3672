//! A connection whose replies are read in place: a socket, a growing buffer, and the login.
//!
//! For the stream reader and for the few callers that must see a connection end; all others use
//! [`RedisClient`](super::client::RedisClient). Never retries and never reconnects: drop it after an error. Read next:
//! [`xread`](super::xread).

use std::fmt;
use std::io;
use std::time::Duration;

use redis::RedisError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connection::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT};
use super::entries::TruncatedEntry;
use super::error_kind::{ErrorKind, error_kind, error_kind_of_reply};
use super::node::RedisNode;
use super::redis_url::{RedisAddress, RedisCredentials};
use super::resp::{self, ProtocolError};

/// Minimum free room before a read, so that a large reply needs few reads.
const READ_MIN: usize = 64 * 1024;
/// Maximum room reserved for the next reply. Twice the size that the reader aims at.
const CAPACITY_MAX: usize = 8 * 1024 * 1024;
/// Maximum length of an entry that is read as a whole, as encoded in the reply. Half of a server's default output limit
/// for subscribers, so that such an entry always fits.
pub const ENTRY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum length of a reply: twice a server's default output limit for subscribers.
const BUFFER_MAX: usize = 64 * 1024 * 1024;
const _: () = assert!(CAPACITY_MAX < ENTRY_BYTES_MAX && 2 * ENTRY_BYTES_MAX <= BUFFER_MAX);

/// Why a raw connection is unusable, or why the server refused a command.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Connecting failed, possibly in TLS.
    #[error("connect to {node}")]
    Connect {
        /// The server, without credentials.
        node: String,
        source: io::Error,
    },
    #[error("find the primary that serves {key}")]
    NoPrimary { key: String, source: RedisError },
    #[error("the primary was replaced")]
    Replaced,
    #[error("no answer to {command} within {} ms", .limit.as_millis())]
    Timeout { command: &'static str, limit: Duration },
    #[error("redis closed the connection")]
    Closed,
    #[error("exchange bytes with redis")]
    Io(#[source] io::Error),
    #[error("redis answered {command} with {code} {text}")]
    Refused {
        /// The command, without arguments.
        command: &'static str,
        code: String,
        text: String,
    },
    /// The server's bytes are no reply to the command.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The reply exceeds the memory limit: ask for less.
    #[error("reply from redis is longer than {max} bytes")]
    TooLong { max: usize },
    /// The first entry of a reply has more than [`ENTRY_BYTES_MAX`]. The rest of it was not read.
    #[error("an entry of the stream has more than {ENTRY_BYTES_MAX} bytes")]
    LongEntry(TruncatedEntry),
    /// An earlier request was cancelled half-way, so the next reply would answer another request.
    #[error("connection to redis was given up in the middle of a request or reply")]
    Desynchronized,
}

impl ReadError {
    /// What the failure means for the caller.
    pub fn error_kind(&self) -> ErrorKind {
        match self {
            Self::NoPrimary { source, .. } => error_kind(source),
            Self::Replaced => ErrorKind::Moved,
            Self::Connect { .. } | Self::Timeout { .. } | Self::Closed | Self::Io(_) | Self::Desynchronized => {
                ErrorKind::Unreachable
            }
            Self::Refused { code, text, .. } => error_kind_of_reply(code, text),
            Self::Protocol(_) | Self::TooLong { .. } | Self::LongEntry(_) => ErrorKind::Other,
        }
    }

    /// An error reply, from its text.
    pub(super) fn refused(command: &'static str, reply: &[u8]) -> Self {
        let reply = String::from_utf8_lossy(reply);
        let (code, text) = reply.split_once(' ').unwrap_or((&reply, ""));
        Self::Refused { command, code: code.to_owned(), text: text.to_owned() }
    }
}

/// A stream of bytes in both directions: TCP, TLS over it, a Unix socket, and a pipe in tests.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> ByteStream for T {}

/// A connection and the bytes that arrived on it.
pub struct RawConnection {
    stream: Box<dyn ByteStream>,
    buffer: Vec<u8>,
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection").field("buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}

impl RawConnection {
    /// Connects, logs in and selects the database within [`CONNECT_TIMEOUT`]. `CLIENT LIST` shows `name`; a user who
    /// may not set it connects without a name.
    ///
    /// # Errors
    ///
    /// Connecting failed, or the server refused the login or the database.
    pub async fn connect(node: &RedisNode, name: Option<&str>) -> Result<Self, ReadError> {
        let made = async {
            let stream = open(node).await.map_err(|source| ReadError::Connect { node: node.to_string(), source })?;
            let mut connection = Self { stream, buffer: Vec::new() };
            connection.log_in(node, name).await?;
            Ok(connection)
        };
        timeout(CONNECT_TIMEOUT, made).await.unwrap_or_else(|_| {
            Err(ReadError::Connect { node: node.to_string(), source: io::ErrorKind::TimedOut.into() })
        })
    }

    /// Wraps a stream that is connected and logged in.
    pub fn over(stream: impl ByteStream + 'static) -> Self {
        Self { stream: Box::new(stream), buffer: Vec::new() }
    }

    /// Sends one command and waits for its status within [`RESPONSE_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// The connection broke, or the server answered with an error.
    pub async fn call(&mut self, command: &'static str, parts: &[&[u8]]) -> Result<(), ReadError> {
        timeout(RESPONSE_TIMEOUT, self.ask(command, parts))
            .await
            .unwrap_or(Err(ReadError::Timeout { command, limit: RESPONSE_TIMEOUT }))
    }

    /// Like [`Self::call`], without a time limit; the caller bounds it.
    ///
    /// # Errors
    ///
    /// Like [`Self::call`].
    pub async fn ask(&mut self, command: &'static str, parts: &[&[u8]]) -> Result<(), ReadError> {
        let end = self.exchange(parts).await?;
        let status = match self.buffer.first() {
            Some(b'+') => Ok(()),
            _ => Err(self.refusal(command)?.unwrap_or(ProtocolError { at: 0, expected: "a status" }.into())),
        };
        self.consume(end);
        status
    }

    /// Sends one command and waits for its whole reply at the start of the buffer. Returns the end of the reply.
    async fn exchange(&mut self, parts: &[&[u8]]) -> Result<usize, ReadError> {
        let mut request = Vec::new();
        resp::command(&mut request, parts);
        self.write(&request).await?;
        loop {
            if let Some(end) = resp::skip(&self.buffer, 0)? {
                return Ok(end);
            }
            self.fill().await?;
        }
    }

    /// The error reply at the start of the buffer, if there is one.
    fn refusal(&self, command: &'static str) -> Result<Option<ReadError>, ReadError> {
        let line = resp::line(&self.buffer, 0)?.filter(|_| self.buffer.first() == Some(&b'-'));
        Ok(line.map(|found| ReadError::refused(command, &self.buffer[found.text])))
    }

    /// The run id of the server process, from `INFO`: a restart or a failover changes it. `None` if the user may not
    /// run INFO. Call it before [`Self::subscribe`]. Takes at most [`RESPONSE_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn run_id(&mut self) -> Result<Option<String>, ReadError> {
        let asked = async {
            let end = self.exchange(&[b"INFO", b"server"]).await?;
            let reply = String::from_utf8_lossy(&self.buffer[..end]);
            let run_id = reply.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned);
            self.consume(end);
            Ok(run_id)
        };
        let limit = RESPONSE_TIMEOUT;
        timeout(limit, asked).await.unwrap_or(Err(ReadError::Timeout { command: "INFO", limit }))
    }

    /// Turns this connection into a subscriber, so that the server limits its output buffer. Later replies use RESP3.
    /// Takes at most [`RESPONSE_TIMEOUT`].
    ///
    /// A server limits what it buffers for a subscriber (`client-output-buffer-limit pubsub`, 32 MiB by default), but
    /// by default not for other clients: COUNT entries of any size. In RESP3 a subscriber may run every command.
    ///
    /// # Errors
    ///
    /// The connection broke, or the user may not subscribe to `channel` or run HELLO ([`ReadError::Refused`]): then the
    /// connection stays usable, but its replies may use RESP3.
    pub async fn subscribe(&mut self, channel: &str) -> Result<(), ReadError> {
        const STEPS: [&str; 2] = ["HELLO", "SUBSCRIBE"];
        let asked = async {
            for (command, argument) in STEPS.into_iter().zip(["3", channel]) {
                let end = self.exchange(&[command.as_bytes(), argument.as_bytes()]).await?;
                let refused = self.refusal(command)?;
                self.consume(end);
                refused.map_or(Ok(()), Err)?;
            }
            Ok(())
        };
        let limit = RESPONSE_TIMEOUT;
        timeout(limit, asked).await.unwrap_or(Err(ReadError::Timeout { command: STEPS[1], limit }))
    }

    /// Writes a whole request. If cancelled half-way, the connection is unusable.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn write(&mut self, request: &[u8]) -> Result<(), ReadError> {
        self.stream.write_all(request).await.map_err(ReadError::Io)?;
        self.stream.flush().await.map_err(ReadError::Io)
    }

    /// Waits for bytes and appends them to the buffer. Safe to cancel at any time.
    ///
    /// # Errors
    ///
    /// The connection ended or broke, or the buffer is full.
    pub async fn fill(&mut self) -> Result<(), ReadError> {
        if self.buffer.len() >= BUFFER_MAX {
            return Err(ReadError::TooLong { max: BUFFER_MAX });
        }
        if self.buffer.capacity() - self.buffer.len() < READ_MIN {
            // Doubles, so that a large reply is moved only a few times; never reserves by a length from the server.
            self.buffer.reserve(self.buffer.len().max(READ_MIN));
        }
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err(ReadError::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(ReadError::Io(error)),
        }
    }

    /// Bytes that arrived and are not consumed.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Removes and returns the first `count` bytes of the buffer, and reserves the same room again, because replies
    /// have similar sizes.
    pub fn take_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut rest = self.buffer.split_off(count.min(self.buffer.len()));
        rest.reserve(count.min(CAPACITY_MAX));
        std::mem::replace(&mut self.buffer, rest)
    }

    fn consume(&mut self, count: usize) {
        self.buffer.drain(..count);
    }

    /// Capacity of the buffer in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    async fn log_in(&mut self, node: &RedisNode, name: Option<&str>) -> Result<(), ReadError> {
        if let Some(RedisCredentials { username, password }) = node.login.current() {
            let words = [Some("AUTH"), username.as_deref(), Some(&password)];
            let words: Vec<&[u8]> = words.into_iter().flatten().map(str::as_bytes).collect();
            let answer = self.call("AUTH", &words).await;
            match &answer {
                Ok(()) => node.login.accepted(),
                Err(error) if error.error_kind() == ErrorKind::Login => {
                    node.login.refused(&node.address, username.as_deref(), error);
                }
                Err(_) => {}
            }
            answer?;
        }
        if node.db != 0 {
            self.call("SELECT", &[b"SELECT", node.db.to_string().as_bytes()]).await?;
        }
        if let Some(name) = name {
            match self.call("CLIENT SETNAME", &[b"CLIENT", b"SETNAME", name.as_bytes()]).await {
                Ok(()) | Err(ReadError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

async fn open(node: &RedisNode) -> io::Result<Box<dyn ByteStream>> {
    let (host, port) = match &node.address {
        RedisAddress::Unix { path } => return Ok(Box::new(UnixStream::connect(path).await?)),
        RedisAddress::Tcp { host, port } => (host.as_str(), *port),
    };
    let stream = TcpStream::connect((host, port)).await?;
    // Requests are small and wait for their reply, so Nagle's delay gains nothing.
    stream.set_nodelay(true)?;
    match &node.tls {
        None => Ok(Box::new(stream)),
        Some(tls) => {
            let connector = TlsConnector::from(tls.config());
            Ok(Box::new(connector.connect(tls.server_name(), stream).await?))
        }
    }
}
