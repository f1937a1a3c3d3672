//! Entries of a stream and their fields, seen where they lie in the buffer. Pure; copies and allocates nothing. Read
//! next: [`index`](super::index), which has found them.

use std::iter::FusedIterator;
use std::ops::Range;

use super::resp::{BulkString, LengthKind, LengthLine, ProtocolError, array, bulk, length};
use crate::types::StreamId;

/// Digits and nothing else; `parse` alone would take a sign.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// What stands before an entry's fields.
#[derive(Debug)]
pub(super) struct Head {
    /// Where the id lies.
    pub(super) id: Range<usize>,
    /// Number of names and values.
    pub(super) strings: usize,
    /// Where they begin.
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
    /// Where the next entry begins.
    pub(super) start: usize,
    /// Where each entry ends, which is where the one behind it begins.
    pub(super) ends: std::slice::Iter<'a, usize>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = XreadEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<XreadEntry<'a>> {
        let end = *self.ends.next()?;
        let bytes = self.buffer.get(self.start..end)?;
        self.start = end;
        // The index has seen these bytes, so they are whole and well formed.
        let head = Head::read(bytes, 0).ok().flatten()?;
        Some(XreadEntry { id: &bytes[head.id], fields: StreamFields { bytes, at: head.next, left: head.strings / 2 } })
    }

    /// Goes over entries without looking at them, so that `skip` costs the same however many it skips.
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

/// One entry of a stream, where it lies in the buffer.
#[derive(Debug, Clone)]
pub struct XreadEntry<'a> {
    /// Its id, `<ms>-<seq>`, as the server wrote it.
    pub id: &'a [u8],
    /// Its fields in their order; none where the entry was deleted while it was read.
    pub fields: StreamFields<'a>,
}

/// The beginning of an entry that has too many bytes to be read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncatedEntry {
    /// Its id.
    pub id: StreamId,
    /// Names and values in turn, as many as had arrived and at most [`TRUNCATED_STRINGS_MAX`], each cut to
    /// [`TRUNCATED_BYTES_MAX`].
    pub strings: Vec<Vec<u8>>,
}

/// How many names and values of an entry that is cut are kept.
pub const TRUNCATED_STRINGS_MAX: usize = 32;
/// How many bytes of a name or value are kept.
pub const TRUNCATED_BYTES_MAX: usize = 1024;

impl TruncatedEntry {
    /// Takes what has arrived of the entry that begins at the start of `buffer`.
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
        // A name without its value is left out.
        strings.truncate(strings.len() / 2 * 2);
        Ok(Self { id, strings })
    }

    /// Its fields, as far as they are kept.
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
