//! RESP2 and the necessary part of RESP3: encodes requests, and finds replies in a buffer without copying them.
//!
//! Pure: reads no socket and allocates nothing for what it reads. Every function takes the buffer and a position, and
//! returns that the bytes are complete, incomplete (`None`), or no RESP ([`ProtocolError`]). It checks every length
//! from the server against a bound, and reserves no memory by it. Read next: [`index`](super::index), which parses
//! XREAD with it.

use std::ops::Range;

/// Maximum length of a bulk string in Redis (`proto-max-bulk-len`, 512 MB by default).
pub const BULK_MAX: u64 = 512 * 1024 * 1024;
/// Maximum length of an array in Redis.
pub const ARRAY_MAX: u64 = u32::MAX as u64;
/// Maximum length of a status or error line. Those of Redis stay below 1 KiB; scripts may quote keys and arguments.
pub const LINE_MAX: usize = 64 * 1024;
/// Number of digits in the larger bound, so that a line of endless zeros is rejected.
const DIGITS_MAX: usize = 10;

/// The bytes are not the expected reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reply from redis is malformed at byte {at}: expected {expected}")]
pub struct ProtocolError {
    /// Offset in the reply.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

/// The type that a length line announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthKind {
    /// `*`
    Array,
    /// `%`: this number of pairs follows. RESP3 only.
    Map,
    /// `>`: a message that the server pushes. RESP3 only.
    Push,
    /// `$`
    Bulk,
}

/// A parsed length line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthLine {
    /// Number of elements or bytes that follow; `None` for nil (`*-1`, `$-1`).
    pub count: Option<usize>,
    /// Offset behind the line.
    pub next: usize,
}

/// A bulk string that is complete in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkString {
    /// Offset of its first byte.
    pub start: usize,
    /// Offset after its last byte.
    pub end: usize,
    /// Offset behind the string and its line end.
    pub next: usize,
}

/// A status or error line that is complete in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyLine {
    /// Its text, without the first character and the line end.
    pub text: Range<usize>,
    /// Offset behind the line.
    pub next: usize,
}

/// Encodes a command as an array of bulk strings.
pub fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    announce(out, b'*', parts.len());
    for part in parts {
        announce(out, b'$', part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn announce(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(length.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Parses a length line.
///
/// # Errors
///
/// Another type, no number, a number above the bound of its type, or a line without CR LF at its end.
#[inline]
pub fn length(buffer: &[u8], at: usize, kind: LengthKind) -> Result<Option<LengthLine>, ProtocolError> {
    let (first, max, expected) = match kind {
        LengthKind::Array => (b'*', ARRAY_MAX, "an array"),
        LengthKind::Map => (b'%', ARRAY_MAX, "a map"),
        LengthKind::Push => (b'>', ARRAY_MAX, "a push"),
        LengthKind::Bulk => (b'$', BULK_MAX, "a bulk string"),
    };
    let malformed = Err(ProtocolError { at, expected });
    let Some((found, digits)) = buffer.get(at..).and_then(<[u8]>::split_first) else { return Ok(None) };
    if *found != first {
        return malformed;
    }
    // Nearly all lengths have one or two digits.
    match digits {
        [a @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some(LengthLine { count: Some(usize::from(a - b'0')), next: at + 4 }));
        }
        [a @ b'0'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            let count = usize::from(a - b'0') * 10 + usize::from(b - b'0');
            return Ok(Some(LengthLine { count: Some(count), next: at + 5 }));
        }
        _ => {}
    }
    let mut count = 0_u64;
    for (position, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 && position < DIGITS_MAX {
            count = count * 10 + u64::from(digit);
        } else if *byte == b'\r' && position > 0 && count <= max {
            return match digits.get(position + 1) {
                Some(b'\n') => {
                    let count = usize::try_from(count).map_err(|_| ProtocolError { at, expected })?;
                    Ok(Some(LengthLine { count: Some(count), next: at + position + 3 }))
                }
                Some(_) => malformed,
                None => Ok(None),
            };
        } else if *byte == b'-' && position == 0 {
            return nil(digits, at, expected);
        } else {
            return malformed;
        }
    }
    Ok(None)
}

/// The rest of `*-1` or `$-1`.
fn nil(digits: &[u8], at: usize, expected: &'static str) -> Result<Option<LengthLine>, ProtocolError> {
    const NIL: &[u8] = b"-1\r\n";
    if digits.starts_with(NIL) {
        Ok(Some(LengthLine { count: None, next: at + 1 + NIL.len() }))
    } else if NIL.starts_with(digits) {
        Ok(None)
    } else {
        Err(ProtocolError { at, expected })
    }
}

/// Parses an array's length line.
///
/// # Errors
///
/// Like [`length`].
#[inline]
pub fn array(buffer: &[u8], at: usize) -> Result<Option<LengthLine>, ProtocolError> {
    length(buffer, at, LengthKind::Array)
}

/// Finds a bulk string other than nil.
///
/// # Errors
///
/// Like [`length`], or nil, or no CR LF at the end of the string.
#[inline]
pub fn bulk(buffer: &[u8], at: usize) -> Result<Option<BulkString>, ProtocolError> {
    let Some(LengthLine { count, next: start }) = length(buffer, at, LengthKind::Bulk)? else { return Ok(None) };
    let Some(count) = count else { return Err(ProtocolError { at, expected: "a bulk string that is not nil" }) };
    let end = start + count;
    match buffer.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some(BulkString { start, end, next: end + 2 })),
        Some(_) => Err(ProtocolError { at: end, expected: "the end of a bulk string" }),
        None => Ok(None),
    }
}

/// Finds the end of a whole reply of any kind. Of RESP3 it knows the types in the replies to HELLO and SUBSCRIBE.
///
/// # Errors
///
/// Like [`length`] and [`line()`], or another type.
pub fn skip(buffer: &[u8], mut at: usize) -> Result<Option<usize>, ProtocolError> {
    let mut values = 1_usize;
    while values > 0 {
        values -= 1;
        let (kind, each) = match buffer.get(at) {
            None => return Ok(None),
            Some(b'*') => (LengthKind::Array, 1),
            Some(b'>') => (LengthKind::Push, 1),
            Some(b'%') => (LengthKind::Map, 2),
            Some(b'$') => {
                let Some(found) = bulk(buffer, at)? else { return Ok(None) };
                at = found.next;
                continue;
            }
            Some(b'+' | b'-' | b':' | b'_') => {
                let Some(found) = line(buffer, at)? else { return Ok(None) };
                at = found.next;
                continue;
            }
            Some(_) => return Err(ProtocolError { at, expected: "a reply" }),
        };
        let Some(found) = length(buffer, at, kind)? else { return Ok(None) };
        values = values.saturating_add(found.count.unwrap_or(0).saturating_mul(each));
        at = found.next;
    }
    Ok(Some(at))
}

/// Finds the line of any type that begins at `at`.
///
/// # Errors
///
/// A line longer than [`LINE_MAX`], or without CR LF at its end.
pub fn line(buffer: &[u8], at: usize) -> Result<Option<ReplyLine>, ProtocolError> {
    let Some(rest) = buffer.get(at..) else { return Ok(None) };
    let window = rest.get(..LINE_MAX).unwrap_or(rest);
    match window.iter().position(|byte| *byte == b'\n') {
        Some(end) if end >= 2 && window[end - 1] == b'\r' => {
            Ok(Some(ReplyLine { text: at + 1..at + end - 1, next: at + end + 1 }))
        }
        None if rest.len() < LINE_MAX => Ok(None),
        _ => Err(ProtocolError { at, expected: "a line" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// If a length were trusted, one broken reply could take all memory.
    #[test]
    fn lengths_beyond_their_bounds_are_refused() {
        assert_eq!(bulk(b"$3\r\nabc\r\n", 0), Ok(Some(BulkString { start: 4, end: 7, next: 9 })));
        assert_eq!(array(b"*-1\r\n", 0), Ok(Some(LengthLine { count: None, next: 5 })));
        for refused in [
            "$536870913\r\n",
            "$99999999999999999999",
            "$00000000000",
            "$-2\r\n",
            "$\r\n",
            "$+1\r\n",
            "$1\n",
            "$-1\r\n",
            ":1\r\n",
        ] {
            assert!(bulk(refused.as_bytes(), 0).is_err(), "{refused:?}");
        }
        for refused in ["*4294967296\r\n", "*1x\r\n", "*1\rx", "*-10", "$1\r\n"] {
            assert!(array(refused.as_bytes(), 0).is_err(), "{refused:?}");
        }
        assert!(bulk(b"$1\r\nabc", 0).is_err(), "a string that does not end where it said");
    }

    /// If a reply is skipped wrongly, every later reply answers another request.
    #[test]
    fn replies_of_every_shape_are_skipped_whole() {
        let hello = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*1\r\n%1\r\n+name\r\n*0\r\n+OK\r\n";
        assert_eq!(skip(hello, 0), Ok(Some(hello.len() - 5)));
        let subscribed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n_\r\n";
        assert_eq!(skip(subscribed, 0), Ok(Some(subscribed.len() - 3)));
        for whole in [hello.as_slice(), subscribed] {
            let end = skip(whole, 0).expect("well formed").expect("whole");
            assert!((0..end).all(|cut| skip(&whole[..cut], 0) == Ok(None)));
        }
        assert!(skip(b"!x\r\n", 0).is_err());
    }

    /// An endless line would be buffered forever.
    #[test]
    fn a_line_without_end_is_refused() {
        assert_eq!(line(b"-ERR no\r\n", 0), Ok(Some(ReplyLine { text: 1..7, next: 9 })));
        assert_eq!(line(b"-ERR no\r", 0), Ok(None));
        assert!(line(b"-ERR no\n", 0).is_err());
        assert!(line(&[b'x'; LINE_MAX], 0).is_err());
    }

    proptest! {
        /// Decoding must return what was encoded, for all bytes.
        #[test]
        fn a_command_is_read_back(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8)) {
            let mut out = Vec::new();
            command(&mut out, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let head = array(&out, 0).expect("an array").expect("whole");
            prop_assert_eq!(head.count, Some(parts.len()));
            let mut at = head.next;
            for part in &parts {
                let found = bulk(&out, at).expect("a bulk").expect("whole");
                prop_assert_eq!(&out[found.start..found.end], part.as_slice());
                at = found.next;
            }
            prop_assert_eq!(at, out.len());
        }
    }
}
