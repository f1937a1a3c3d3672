//! Entries of a stream and their fields, as views into the buffer. Pure; copies and allocates nothing. Read next:
//! [`index`](super::index), which finds them.

use std::iter::FusedIterator;
use std::ops::Range;

use super::resp::{BulkString, LengthKind, LengthLine, ProtocolError, array, bulk, length};
use crate::types::StreamId;

/// Parses digits only; `parse` would also accept a sign.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The part of an entry before its fields.
#[derive(Debug)]
pub(super) struct Head {
    /// Position of the id.
    pub(super) id: Range<usize>,
    /// Number of names and values.
    pub(super) strings: usize,
    /// Position of the first name.
    pub(super) next: usize,
}

impl Head {
    #[inline]
    pub(super) fn read(buffer: &[u8], at: usize) -> Result<Option<Self>, ProtocolError> {
        let Some(LengthLine { count, next }) = array(buffer, at)? else { return Ok(None) };
        if count != Some(2) {
            return Err(ProtocolError { at, expected: "an entry" });
        }
        let Some(BulkString { start, end, next: at }) = bulk(buffer, next)? else { return Ok(None) };
        let Some(LengthLine { count, next }) = array(buffer, at)? else { return Ok(None) };
        let strings = count.unwrap_or(0);
        if !strings.is_multiple_of(2) {
            return Err(ProtocolError { at, expected: "names and values in pairs" });
        }
        Ok(Some(Self { id: start..end, strings, next }))
    }
}

/// The entries of a reply, in stream order.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    pub(super) buffer: &'a [u8],
    /// Start of the next entry.
    pub(super) start: usize,
    /// End of each entry, which is the start of the following one.
    pub(super) ends: std::slice::Iter<'a, usize>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = XreadEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<XreadEntry<'a>> {
        let end = *self.ends.next()?;
        let bytes = self.buffer.get(self.start..end)?;
        self.start = end;
        // The index has checked these bytes: they are complete and well-formed.
        let head = Head::read(bytes, 0).ok().flatten()?;
        Some(XreadEntry { id: &bytes[head.id], fields: StreamFields { bytes, at: head.next, left: head.strings / 2 } })
    }

    /// Skips entries without reading them, so that `skip` always costs the same.
    #[inline]
    fn nth(&mut self, n: usize) -> Option<XreadEntry<'a>> {
        if let Some(before) = n.checked_sub(1) {
            self.start = *self.ends.nth(before)?;
        }
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ends.size_hint()
    }
}

impl ExactSizeIterator for Entries<'_> {}
impl FusedIterator for Entries<'_> {}

/// One entry of a stream, as a view into the buffer.
#[derive(Debug, Clone)]
pub struct XreadEntry<'a> {
    /// Its id, `<ms>-<seq>`, as the server wrote it.
    pub id: &'a [u8],
    /// Its fields in order; empty if the entry was deleted during the read.
    pub fields: StreamFields<'a>,
}

/// The beginning of an entry that is too long to read as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncatedEntry {
    /// Its id.
    pub id: StreamId,
    /// Names and values in turn: what had arrived, at most [`TRUNCATED_STRINGS_MAX`], each cut to
    /// [`TRUNCATED_BYTES_MAX`].
    pub strings: Vec<Vec<u8>>,
}

/// Maximum number of names and values kept of a truncated entry.
pub const TRUNCATED_STRINGS_MAX: usize = 32;
/// Maximum number of bytes kept of a name or value.
pub const TRUNCATED_BYTES_MAX: usize = 1024;

impl TruncatedEntry {
    /// Reads the arrived part of the entry at the start of `buffer`.
    pub(super) fn read(buffer: &[u8]) -> Result<Self, ProtocolError> {
        let malformed = ProtocolError { at: 0, expected: "an entry" };
        let head = Head::read(buffer, 0)?.ok_or(malformed)?;
        let id = StreamId::parse(&buffer[head.id]).ok_or(malformed)?;
        let (mut at, mut strings) = (head.next, Vec::new());
        while strings.len() < head.strings.min(TRUNCATED_STRINGS_MAX) {
            let Some(LengthLine { count: Some(bytes), next }) = length(buffer, at, LengthKind::Bulk)? else { break };
            let Some(kept) = buffer.get(next..next + bytes.min(TRUNCATED_BYTES_MAX)) else { break };
            strings.push(kept.to_vec());
            at = next + bytes + 2;
        }
        // Drop a name without a value.
        strings.truncate(strings.len() / 2 * 2);
        Ok(Self { id, strings })
    }

    /// The fields that were kept.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.strings.chunks_exact(2).map(|pair| (pair[0].as_slice(), pair[1].as_slice()))
    }
}

/// One field of an entry; any bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamField<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The fields of an entry, in their order.
#[derive(Debug, Clone)]
pub struct StreamFields<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Iterator for StreamFields<'a> {
    type Item = StreamField<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamField<'a>> {
        self.left = self.left.checked_sub(1)?;
        let name = bulk(self.bytes, self.at).ok().flatten()?;
        let value = bulk(self.bytes, name.next).ok().flatten()?;
        self.at = value.next;
        Some(StreamField { name: &self.bytes[name.start..name.end], value: &self.bytes[value.start..value.end] })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StreamFields<'_> {}
impl FusedIterator for StreamFields<'_> {}
