//! The reply to `XREAD` on one stream and to the `TIME` behind it, indexed in place.
//!
//! Pure: the caller passes the buffer to a [`ReplyIndex`] whenever it has grown, and the index continues at its last
//! position, so it reads every byte once. It stores one offset per entry and allocates nothing else; it does not
//! interpret entries. Read next: [`xread`](super::xread), which fills the buffer.

use std::ops::Range;

use super::entries::{Entries, Head, decimal};
use super::resp::{self, BulkString, LengthKind, LengthLine, ProtocolError, array, bulk, line};
use crate::types::StreamId;

/// Maximum number of entries to reserve room for in advance.
const CAPACITY_MAX: usize = 128 * 1024;

/// The state in which indexing continues when more bytes arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Streams,
    Stream,
    Name,
    Entries,
    Entry,
    Fields,
    Time,
    Seconds,
    Microseconds,
    Complete,
}

/// Whether both replies have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexProgress {
    /// More bytes are needed.
    Incomplete,
    /// Both replies are in the buffer.
    Complete,
}

/// Position of an error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    /// The command that failed.
    pub command: &'static str,
    /// Its text.
    pub text: Range<usize>,
}

/// An entry that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongEntry {
    /// Number of entries before it.
    pub before: usize,
    /// Position of its start.
    pub start: usize,
}

/// Positions of the entries of one reply.
#[derive(Debug)]
pub struct ReplyIndex {
    stage: Stage,
    /// Everything before this offset has been read.
    at: usize,
    entries_left: usize,
    strings_left: usize,
    /// Start of the first entry.
    begin: usize,
    /// End of each entry, which is the start of the next one.
    ends: Vec<usize>,
    last_id: Range<usize>,
    /// Length of the reply to XREAD.
    bytes: usize,
    seconds: u64,
    server_ms: i64,
    error_reply: Option<ErrorReply>,
}

impl Default for ReplyIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplyIndex {
    /// An empty index.
    pub const fn new() -> Self {
        Self {
            stage: Stage::Streams,
            at: 0,
            entries_left: 0,
            strings_left: 0,
            begin: 0,
            ends: Vec::new(),
            last_id: 0..0,
            bytes: 0,
            seconds: 0,
            server_ms: 0,
            error_reply: None,
        }
    }

    /// An empty index with room for about this number of entries.
    pub fn with_capacity(entries: usize) -> Self {
        Self { ends: Vec::with_capacity(entries.min(CAPACITY_MAX)), ..Self::new() }
    }

    /// Continues through the buffer up to its end. Bytes from earlier calls must be unchanged.
    ///
    /// # Errors
    ///
    /// The bytes are not these two replies; the index is then unusable.
    pub fn advance(&mut self, buffer: &[u8]) -> Result<IndexProgress, ProtocolError> {
        while self.stage != Stage::Complete {
            let step = match self.stage {
                Stage::Entry | Stage::Fields => self.entries(buffer)?,
                Stage::Time | Stage::Seconds | Stage::Microseconds => self.time(buffer)?,
                _ => self.opening(buffer)?,
            };
            if step.is_none() {
                return Ok(IndexProgress::Incomplete);
            }
        }
        Ok(IndexProgress::Complete)
    }

    /// Offset of the first byte behind the two replies.
    pub const fn end(&self) -> usize {
        self.at
    }

    /// Number of entries found.
    pub const fn count(&self) -> usize {
        self.ends.len()
    }

    /// Length of the reply to XREAD.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The server's time after it replied, Unix milliseconds.
    pub const fn server_ms(&self) -> i64 {
        self.server_ms
    }

    /// The first error reply of the two.
    pub const fn error_reply(&self) -> Option<&ErrorReply> {
        self.error_reply.as_ref()
    }

    /// Id of the last entry; `None` without entries.
    ///
    /// # Errors
    ///
    /// It is not an entry id.
    pub fn last(&self, buffer: &[u8]) -> Result<Option<StreamId>, ProtocolError> {
        if self.ends.is_empty() {
            return Ok(None);
        }
        let at = self.last_id.start;
        let id = buffer.get(self.last_id.clone()).and_then(StreamId::parse);
        id.map(Some).ok_or(ProtocolError { at, expected: "an entry id" })
    }

    /// The entries found, in stream order.
    pub fn iter<'a>(&'a self, buffer: &'a [u8]) -> Entries<'a> {
        Entries { buffer, start: self.begin, ends: self.ends.iter() }
    }

    /// The first entry with more than `max` bytes, even if only a part has arrived.
    pub fn long_entry(&self, buffer: &[u8], max: usize) -> Option<LongEntry> {
        if buffer.len() <= max {
            return None;
        }
        let is_open = matches!(self.stage, Stage::Entry | Stage::Fields) && self.entries_left > 0;
        let ends = self.ends.iter().copied().chain(is_open.then_some(buffer.len()));
        let mut start = self.begin;
        for (before, end) in ends.enumerate() {
            if end - start > max {
                return Some(LongEntry { before, start });
            }
            start = end;
        }
        None
    }

    /// The part before the entries: `*1 *2 $name *n`, in RESP3 `%1 $name *n`, or nil, or an error.
    fn opening(&mut self, buffer: &[u8]) -> Result<Option<()>, ProtocolError> {
        if self.stage == Stage::Name {
            let Some(BulkString { next, .. }) = bulk(buffer, self.at)? else { return Ok(None) };
            self.enter(Stage::Entries, next);
            return Ok(Some(()));
        }
        if self.stage == Stage::Streams && buffer.first() == Some(&b'-') {
            return self.error(buffer, "XREAD", Stage::Time);
        }
        let at = self.at;
        match (self.stage, buffer.get(at)) {
            (Stage::Streams, Some(b'_')) => {
                let Some(found) = line(buffer, at)? else { return Ok(None) };
                self.enter(Stage::Time, found.next);
                self.bytes = self.at;
                return Ok(Some(()));
            }
            (Stage::Streams, Some(b'%')) => {
                let Some(found) = resp::length(buffer, at, LengthKind::Map)? else { return Ok(None) };
                if found.count != Some(1) {
                    return Err(ProtocolError { at, expected: "the entries of one stream" });
                }
                self.enter(Stage::Name, found.next);
                return Ok(Some(()));
            }
            _ => {}
        }
        let Some(LengthLine { count, next }) = array(buffer, at)? else { return Ok(None) };
        match (self.stage, count) {
            // There are no new entries: nil, or an empty list from some servers.
            (Stage::Streams, None | Some(0)) => self.enter(Stage::Time, next),
            (Stage::Streams, Some(1)) => self.enter(Stage::Stream, next),
            (Stage::Stream, Some(2)) => self.enter(Stage::Name, next),
            (Stage::Entries, Some(0)) => self.enter(Stage::Time, next),
            (Stage::Entries, Some(count)) => {
                self.entries_left = count;
                self.begin = next;
                self.enter(Stage::Entry, next);
            }
            _ => return Err(ProtocolError { at, expected: "the entries of one stream" }),
        }
        if self.stage == Stage::Time {
            self.bytes = self.at;
        }
        Ok(Some(()))
    }

    /// Entries, each `*2 $id *2k ($name $value)k`. An entry deleted meanwhile may have nil for its fields.
    fn entries(&mut self, buffer: &[u8]) -> Result<Option<()>, ProtocolError> {
        loop {
            while self.strings_left > 0 {
                let Some(BulkString { next, .. }) = bulk(buffer, self.at)? else { return Ok(None) };
                self.at = next;
                self.strings_left -= 1;
            }
            if self.stage == Stage::Fields {
                self.ends.push(self.at);
                self.entries_left -= 1;
            }
            if self.entries_left == 0 {
                self.bytes = self.at;
                self.enter(Stage::Time, self.at);
                return Ok(Some(()));
            }
            self.stage = Stage::Entry;
            let Some(head) = Head::read(buffer, self.at)? else { return Ok(None) };
            self.last_id = head.id;
            self.strings_left = head.strings;
            self.enter(Stage::Fields, head.next);
        }
    }

    /// The reply to TIME: seconds and microseconds, as two strings.
    fn time(&mut self, buffer: &[u8]) -> Result<Option<()>, ProtocolError> {
        let at = self.at;
        if self.stage == Stage::Time {
            if buffer.get(at) == Some(&b'-') {
                return self.error(buffer, "TIME", Stage::Complete);
            }
            let Some(LengthLine { count, next }) = array(buffer, at)? else { return Ok(None) };
            if count != Some(2) {
                return Err(ProtocolError { at, expected: "the server's time" });
            }
            self.enter(Stage::Seconds, next);
            return Ok(Some(()));
        }
        let Some(BulkString { start, end, next }) = bulk(buffer, at)? else { return Ok(None) };
        let malformed = ProtocolError { at, expected: "the server's time" };
        let number = decimal(&buffer[start..end]).ok_or(malformed)?;
        if self.stage == Stage::Seconds {
            self.seconds = number;
            self.enter(Stage::Microseconds, next);
        } else {
            let ms = self.seconds.checked_mul(1000).and_then(|ms| ms.checked_add(number / 1000));
            self.server_ms = ms.and_then(|ms| i64::try_from(ms).ok()).ok_or(malformed)?;
            self.enter(Stage::Complete, next);
        }
        Ok(Some(()))
    }

    /// An error reply in place of the expected one; the first of two is kept.
    fn error(&mut self, buffer: &[u8], command: &'static str, then: Stage) -> Result<Option<()>, ProtocolError> {
        let Some(found) = line(buffer, self.at)? else { return Ok(None) };
        self.error_reply.get_or_insert(ErrorReply { command, text: found.text });
        self.enter(then, found.next);
        Ok(Some(()))
    }

    const fn enter(&mut self, stage: Stage, at: usize) {
        self.stage = stage;
        self.at = at;
    }
}
