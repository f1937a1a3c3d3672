//! Bounds that all limiters share: rates, length of keys, members of sets, times as the scripts read them.

use std::borrow::Cow;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// Maximum of a limit and of the units of one call: Redis' Lua holds whole numbers exactly up to 2^53 - 1.
pub const UNITS_MAX: u64 = (1 << 53) - 1;
/// Maximum number of members of a sorted set. At about 118 bytes each they are 12 MB, which the server frees in one
/// step when all of them expire.
pub const MEMBERS_MAX: u64 = 100_000;
/// Maximum length of a key that is stored as it is, in bytes.
pub const KEY_BYTES_MAX: usize = 256;
/// Bytes that are kept of a longer key, before the digest. With the digest the stored key is longer than any key that
/// is stored as it is, so nobody can choose a key that is stored as the digest of another.
const KEPT_BYTES: usize = 196;
/// Maximum length of a stored key: the kept bytes, a colon and 64 digits.
pub const STORED_KEY_BYTES_MAX: usize = KEPT_BYTES + 1 + 64;
/// Maximum window. It also keeps the arithmetic of [`crate::Gcra`] within 128 bits.
const WINDOW_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// A limit and the window that it holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    limit: u64,
    window: Duration,
}

/// The numbers make no rate.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("a limit is 1 to {UNITS_MAX}")]
    Limit,
    #[error("a window is a whole number of milliseconds, 1 ms to 31 days")]
    Window,
}

impl Rate {
    /// `limit` units in a window.
    ///
    /// # Errors
    ///
    /// The limit is not from 1 to [`UNITS_MAX`], or the window is not a whole number of milliseconds from 1 ms to 31
    /// days.
    pub fn new(limit: u64, window: Duration) -> Result<Self, RateError> {
        if !(1..=UNITS_MAX).contains(&limit) {
            return Err(RateError::Limit);
        }
        let is_whole = window.subsec_nanos().is_multiple_of(1_000_000);
        if !is_whole || window.is_zero() || window > WINDOW_MAX {
            return Err(RateError::Window);
        }
        Ok(Self { limit, window })
    }

    /// Units in a window.
    #[must_use]
    pub const fn limit(self) -> u64 {
        self.limit
    }

    /// Length of the window.
    #[must_use]
    pub const fn window(self) -> Duration {
        self.window
    }
}

/// The limit needs more members than a sorted set may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a limit of {limit} needs as many members of a sorted set, at most {MEMBERS_MAX} are allowed: for a rate use gcra, which needs none"
)]
pub struct TooManyMembers {
    /// The limit.
    pub limit: u64,
}

/// The key under which a limiter stores its state: `key` itself, or for one longer than [`KEY_BYTES_MAX`] its first 196
/// bytes, a colon and the SHA-256 of the whole. A hash tag (`{..}`) that ends within the kept bytes keeps the key in
/// its slot.
#[must_use]
pub fn stored_key(key: &str) -> Cow<'_, str> {
    if key.len() <= KEY_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    let mut kept = KEPT_BYTES;
    while !key.is_char_boundary(kept) {
        kept -= 1;
    }
    let digest: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(format!("{}:{digest}", &key[..kept]))
}

/// Milliseconds for a script, at least 1: every key gets a TTL.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, UNITS_MAX)
}

/// Microseconds for a script.
pub(crate) fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).clamp(1, UNITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A limit of 0 would divide by zero, and a longer window overflow.
    #[test]
    fn rates_out_of_range_are_refused() {
        let rate = |limit, us| Rate::new(limit, Duration::from_micros(us)).map(|_| ());
        assert_eq!([rate(0, 1000), rate(UNITS_MAX + 1, 1000)], [Err(RateError::Limit); 2]);
        let day_us = 86_400_000_000;
        assert_eq!([rate(1, 0), rate(1, 1), rate(1, 1500), rate(1, 32 * day_us)], [Err(RateError::Window); 4]);
        assert_eq!([rate(1, 1000), rate(UNITS_MAX, 31 * day_us)], [Ok(()); 2]);
    }

    proptest! {
        /// A key that a client chose must not grow without bound, meet the key of another, or leave its slot.
        #[test]
        fn long_keys_are_bounded_and_stay_apart(a in "[a-zé]{0,400}", b in "[a-zé]{0,400}") {
            prop_assume!(a != b);
            let of = |rest: &str| stored_key(&format!("any:{{usage}}:{rest}")).into_owned();
            prop_assert!(of(&a).len() <= STORED_KEY_BYTES_MAX);
            let tagged = of(&a).starts_with("any:{usage}:");
            prop_assert!(tagged);
            prop_assert_ne!(of(&a), of(&b));
            // A client that names itself as the stored key of another would share the other's limit.
            if a.len() > KEY_BYTES_MAX {
                let stored = of(&a);
                prop_assert!(stored_key(&stored) != stored.as_str());
            }
        }
    }
}
