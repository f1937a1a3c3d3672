//! The reader of one stream: XREAD on its own connection, each reply parsed in place.
//!
//! It does not interpret entries and stores no position: the caller names the entry to read after. It sends one request
//! at a time. A reply owns its bytes, so the next read may arrive while the entries are still in use. Read next:
//! [`index`](super::index), which parses a reply.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::RESPONSE_TIMEOUT;
use super::endpoint::{Primary, RedisEndpoint};
use super::entries::{Entries, TruncatedEntry};
use super::index::{IndexProgress, ReplyIndex};
use super::raw::{ByteStream, ENTRY_BYTES_MAX, RawConnection, ReadError};
use super::resp;
use crate::types::{StreamId, keys, nonce};

/// The name of the connection in `CLIENT LIST`.
const NAME: &str = "quotabell-reader";

/// One reply to XREAD, with the server's time at the end of the read.
#[derive(Debug)]
pub struct XreadReply {
    buffer: Vec<u8>,
    index: ReplyIndex,
    last: Option<StreamId>,
}

impl XreadReply {
    /// Parses the bytes of both replies, to XREAD and to the TIME behind it.
    ///
    /// # Errors
    ///
    /// The bytes are not these two replies, or are incomplete.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, ReadError> {
        let mut index = ReplyIndex::new();
        match index.advance(&bytes)? {
            IndexProgress::Complete => Self::new(bytes, index),
            IndexProgress::Incomplete => Err(ReadError::Closed),
        }
    }

    fn new(buffer: Vec<u8>, index: ReplyIndex) -> Result<Self, ReadError> {
        if let Some(reply) = index.error_reply() {
            return Err(ReadError::refused(reply.command, &buffer[reply.text.clone()]));
        }
        let last = index.last(&buffer)?;
        Ok(Self { buffer, index, last })
    }

    /// Its entries, as views into the bytes.
    pub fn entries(&self) -> Entries<'_> {
        self.index.iter(&self.buffer)
    }

    /// Length of the reply to XREAD in bytes.
    pub const fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// The server's time at the end of the read, Unix milliseconds.
    pub const fn server_ms(&self) -> i64 {
        self.index.server_ms()
    }

    /// Id of the last entry; `None` without entries.
    pub const fn last(&self) -> Option<StreamId> {
        self.last
    }
}

/// State of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No reply is due.
    Idle,
    /// A request is being written. A later call sees this state only if the write was cancelled.
    Writing,
    /// A reply is due or arriving.
    Asked { block: Duration },
}

/// Reads one stream on its own connection. After any error except an error reply it is unusable: connect again.
#[derive(Debug)]
pub struct StreamReader {
    connection: RawConnection,
    /// The server that it is connected to; `None` over a given byte stream.
    primary: Option<Primary>,
    /// The run id of the server process; `None` if it is unknown.
    run_id: Option<Arc<str>>,
    /// Why the server does not limit its output buffer for this reader; `None` if it does.
    unbounded: Option<ReadError>,
    stream: Box<[u8]>,
    request: Vec<u8>,
    index: ReplyIndex,
    state: State,
}

impl StreamReader {
    /// Connects to the primary that serves the stream, as a subscriber: the server closes the connection instead of
    /// buffering a reply beyond its limit for subscribers ([`RawConnection::subscribe`]). If the user may not
    /// subscribe, [`Self::unbounded`] returns the reason.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the primary, or an error of [`RawConnection::connect`].
    pub async fn connect(endpoint: &RedisEndpoint, stream: &str) -> Result<Self, ReadError> {
        let mut reader = Self::connect_unbounded(endpoint, stream).await?;
        reader.subscribe().await?;
        Ok(reader)
    }

    /// Tries again to become a subscriber if the user had no right to when the reader connected: somebody may have
    /// granted it since. Call it between two requests.
    ///
    /// # Errors
    ///
    /// The connection broke, or a reply is due ([`ReadError::Desynchronized`]).
    pub async fn subscribe_again(&mut self) -> Result<(), ReadError> {
        if self.unbounded.is_none() {
            return Ok(());
        }
        if self.state != State::Idle {
            return Err(ReadError::Desynchronized);
        }
        self.subscribe().await
    }

    async fn subscribe(&mut self) -> Result<(), ReadError> {
        let channel = keys::reader_channel(&self.run_id.as_deref().map_or_else(nonce, str::to_owned));
        self.unbounded = match self.connection.subscribe(&channel).await {
            Ok(()) => None,
            Err(refused @ ReadError::Refused { .. }) => Some(refused),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Like [`Self::connect`], but without the server's limit, for a single entry beyond it: ask for one entry only.
    ///
    /// # Errors
    ///
    /// Like [`Self::connect`].
    pub async fn connect_unbounded(endpoint: &RedisEndpoint, stream: &str) -> Result<Self, ReadError> {
        let primary = endpoint.ask_primary_of(stream).await;
        let primary = primary.map_err(|source| ReadError::NoPrimary { key: stream.to_owned(), source })?;
        let connection = RawConnection::connect(primary.node(), Some(NAME)).await;
        let mut connection = connection.inspect_err(|_| primary.suspect())?;
        let run_id = connection.run_id().await?.map(Arc::from);
        Ok(Self { primary: Some(primary), run_id, ..Self::on(connection, stream) })
    }

    /// Reads over a byte stream that is connected and logged in.
    pub fn over(bytes: impl ByteStream + 'static, stream: &str) -> Self {
        Self::on(RawConnection::over(bytes), stream)
    }

    fn on(connection: RawConnection, stream: &str) -> Self {
        Self {
            connection,
            primary: None,
            run_id: None,
            unbounded: None,
            stream: stream.as_bytes().into(),
            request: Vec::new(),
            index: ReplyIndex::new(),
            state: State::Idle,
        }
    }

    /// Asks for `count` entries (at least one) after the id `after`; with `block`, the server waits that long for the
    /// first entry (at least 1 ms, because 0 means forever). Only writes.
    ///
    /// TIME follows in the same write. The server answers it after XREAD, even after one that blocked, so its reply is
    /// the time at which the read was complete.
    ///
    /// # Errors
    ///
    /// The connection broke, the previous reply was not received ([`ReadError::Desynchronized`]), or another server has
    /// become the primary ([`ReadError::Replaced`]): a former primary that is cut off would still answer.
    pub async fn request(&mut self, after: &str, count: u32, block: Option<Duration>) -> Result<(), ReadError> {
        if self.state != State::Idle {
            return Err(ReadError::Desynchronized);
        }
        if self.primary.as_ref().is_some_and(Primary::is_replaced) {
            return Err(ReadError::Replaced);
        }
        self.state = State::Writing;
        self.request.clear();
        let count = count.max(1).to_string();
        let block_ms = block.map(|block| block.as_millis().max(1).to_string());
        let mut parts: Vec<&[u8]> = vec![b"XREAD", b"COUNT", count.as_bytes()];
        if let Some(block_ms) = &block_ms {
            parts.extend([b"BLOCK".as_slice(), block_ms.as_bytes()]);
        }
        parts.extend([b"STREAMS", &*self.stream, after.as_bytes()]);
        resp::command(&mut self.request, &parts);
        resp::command(&mut self.request, &[b"TIME"]);
        timeout(RESPONSE_TIMEOUT, self.connection.write(&self.request))
            .await
            .unwrap_or(Err(ReadError::Timeout { command: "XREAD", limit: RESPONSE_TIMEOUT }))?;
        self.state = State::Asked { block: block.unwrap_or_default() };
        Ok(())
    }

    /// Waits for the next reply, at most the request's `block` plus [`RESPONSE_TIMEOUT`]. If cancelled, the next call
    /// continues.
    ///
    /// # Errors
    ///
    /// The connection is unusable, for example because the first entry is too long ([`ReadError::LongEntry`]), or
    /// because the reply or another entry is ([`ReadError::TooLong`]). After an error reply the caller may send the
    /// next request; if the server closed the connection after the error reply, that request fails with
    /// [`ReadError::Desynchronized`], which counts as
    /// [`ErrorKind::Unreachable`](super::error_kind::ErrorKind::Unreachable).
    pub async fn receive(&mut self) -> Result<XreadReply, ReadError> {
        let State::Asked { block } = self.state else { return Err(ReadError::Desynchronized) };
        let limit = block.saturating_add(RESPONSE_TIMEOUT);
        let waited =
            timeout(limit, self.both_replies()).await.unwrap_or(Err(ReadError::Timeout { command: "XREAD", limit }));
        match waited {
            Ok(()) => self.state = State::Idle,
            // A server that is demoted, or has too many clients, sends the reason and closes the connection.
            Err(_) if self.index.error_reply().is_some() => {}
            Err(error) => return Err(error),
        }
        let next = ReplyIndex::with_capacity(self.index.count());
        let index = std::mem::replace(&mut self.index, next);
        XreadReply::new(self.connection.take_bytes(index.end()), index)
    }

    /// The run id of the server process that sent the entries; `None` if the user may not ask for it.
    pub const fn run_id(&self) -> Option<&Arc<str>> {
        self.run_id.as_ref()
    }

    /// Why the server does not limit its output buffer for this reader, although the reader asked for it.
    pub const fn unbounded(&self) -> Option<&ReadError> {
        self.unbounded.as_ref()
    }

    /// Capacity of the buffer in bytes.
    pub fn capacity(&self) -> usize {
        self.connection.capacity()
    }

    async fn both_replies(&mut self) -> Result<(), ReadError> {
        loop {
            let progress = self.index.advance(self.connection.buffer())?;
            self.check_entries()?;
            if progress == IndexProgress::Complete {
                return Ok(());
            }
            self.connection.fill().await?;
        }
    }

    /// Fails as soon as an entry is known to be too long, without waiting for its end.
    fn check_entries(&self) -> Result<(), ReadError> {
        let buffer = self.connection.buffer();
        match self.index.long_entry(buffer, ENTRY_BYTES_MAX) {
            None => Ok(()),
            Some(long) if long.before == 0 => Err(ReadError::LongEntry(TruncatedEntry::read(&buffer[long.start..])?)),
            // Entries before it are read first.
            Some(_) => Err(ReadError::TooLong { max: ENTRY_BYTES_MAX }),
        }
    }
}
