//! Bounds that the limiters share: how long a key is, how many members a set has, times as the scripts take them.

use std::borrow::Cow;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::types::text::hex;

/// The most members of a sorted set: at about 118 bytes each, 12 MB, and what the server removes in one step when all
/// of them lapse.
pub const MEMBERS_MAX: u64 = 100_000;

/// The longest key that is used as it is. Whatever is behind a key is small; the key should not outweigh it.
pub const KEY_BYTES_MAX: usize = 256;
/// What is kept of a longer one, before the digest: the hash tag in it stands at the front. With the digest it is
/// longer than any key that is used as it is, so nobody can choose a key that is stored as another's digest.
const KEPT_BYTES: usize = 196;
/// The longest key that is stored: what is kept, a colon, and 64 digits.
pub const STORED_KEY_BYTES_MAX: usize = KEPT_BYTES + 1 + 64;

/// The limit needs more members than a sorted set may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a limit of {limit} needs as many members of a sorted set, at most {MEMBERS_MAX} are allowed: for a rate use gcra, which needs none"
)]
pub struct TooManyMembers {
    /// The limit.
    pub limit: u64,
}

/// The key itself, or where it is longer than [`KEY_BYTES_MAX`], its first bytes and a SHA-256 of the whole. A hash tag
/// (`{..}`) that ends within the first [`KEPT_BYTES`] stays, so the key stays in its slot.
pub(crate) fn bounded(key: &str) -> Cow<'_, str> {
    if key.len() <= KEY_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    let mut kept = KEPT_BYTES;
    while !key.is_char_boundary(kept) {
        kept -= 1;
    }
    Cow::Owned(format!("{}:{}", &key[..kept], hex(&Sha256::digest(key.as_bytes()))))
}

/// Milliseconds for a script, at least 1 so that no key is without an end.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, crate::types::units::UNITS_MAX)
}

/// Microseconds for a script.
pub(crate) fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).clamp(1, crate::types::units::UNITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A key that some client chose must not grow without bound, nor meet another's, nor leave its slot.
        #[test]
        fn long_keys_are_bounded_and_stay_apart(a in "[a-zé]{0,400}", b in "[a-zé]{0,400}") {
            prop_assume!(a != b);
            let of = |rest: &str| bounded(&format!("any:{{usage}}:{rest}")).into_owned();
            prop_assert!(of(&a).len() <= STORED_KEY_BYTES_MAX);
            let tagged = of(&a).starts_with("any:{usage}:");
            prop_assert!(tagged);
            prop_assert_ne!(of(&a), of(&b));
            // Whoever names themselves as what is stored for another would share the other's limit.
            if a.len() > KEY_BYTES_MAX {
                let stored = of(&a);
                prop_assert!(bounded(&stored) != stored.as_str());
            }
        }
    }
}
