//! Ids of stream entries.

use std::fmt;
use std::str::FromStr;

use super::text_form::{inline_schema, serde_as_text};

/// The id of a stream entry: milliseconds and a sequence number. Ordered as in Redis; the text is not (`1-10` sorts
/// before `1-9` as a string).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct StreamId {
    /// Unix milliseconds, normally of the server's clock when the entry was added.
    pub ms: u64,
    /// Number of the entry within its millisecond.
    pub seq: u64,
}

serde_as_text!(StreamId);
inline_schema!(StreamId, { "type": "string" });

impl StreamId {
    /// Before every entry: a reader that starts here reads all.
    pub const ZERO: Self = Self { ms: 0, seq: 0 };

    /// Parses `ms-seq`.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let dash = bytes.iter().position(|byte| *byte == b'-')?;
        Some(Self { ms: number(&bytes[..dash])?, seq: number(&bytes[dash + 1..])? })
    }

    /// Parses a stored checkpoint; without one, reading begins at the first entry.
    pub fn from_stored(checkpoint: Option<&str>) -> Self {
        checkpoint.and_then(|id| id.parse().ok()).unwrap_or(Self::ZERO)
    }
}

/// Any number with this many digits fits u64.
const DIGITS_SAFE: usize = 19;

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > DIGITS_SAFE + 1 {
        return None;
    }
    digits.iter().enumerate().try_fold(0_u64, |n, (at, byte)| {
        let digit = Some(byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9).map(u64::from)?;
        // Hot path: each entry has an id, and only its last digit can overflow, so the others are not checked.
        if at < DIGITS_SAFE { Some(n * 10 + digit) } else { n.checked_mul(10)?.checked_add(digit) }
    })
}

/// The text is not the id of a stream entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a stream id, which is written ms-seq")]
pub struct StreamIdError;

impl FromStr for StreamId {
    type Err = StreamIdError;
    fn from_str(text: &str) -> Result<Self, StreamIdError> {
        Self::parse(text.as_bytes()).ok_or(StreamIdError)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// String order would put 1-10 before 1-9 and skip entries.
    #[test]
    fn ids_are_ordered_as_numbers() {
        assert!(StreamId::parse(b"1-9") < StreamId::parse(b"1-10"));
    }

    proptest! {
        /// Every id survives the text form, including the largest.
        #[test]
        fn text_round_trips(ms: u64, seq: u64) {
            let id = StreamId { ms, seq };
            prop_assert_eq!(StreamId::parse(id.to_string().as_bytes()), Some(id));
        }

        /// Arbitrary bytes never cause a panic.
        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let _ = StreamId::parse(&bytes);
        }
    }
}
