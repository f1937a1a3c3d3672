//! Ids by their first digits, as lists show and commands accept them.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use crate::types::{AlertId, DeliveryId};

/// Number of hex digits of a complete id.
const DIGITS: usize = 32;
/// Number of digits in a list: enough for thousands of deliveries.
const SHORT_DIGITS: usize = 8;

/// An id: a word and [`DIGITS`] hex digits.
pub trait PrefixedId {
    const WORD: &'static str;
}

impl PrefixedId for DeliveryId {
    const WORD: &'static str = "delivery_";
}

impl PrefixedId for AlertId {
    const WORD: &'static str = "alert_";
}

/// The first digits of an id, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPrefix<I> {
    digits: String,
    id: PhantomData<I>,
}

/// The text is not the prefix of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is {word} and {DIGITS} hex digits; the first digits are enough, such as 6f1ed002")]
pub struct IdPrefixError {
    word: &'static str,
}

/// The first digits of an id, which every command accepts.
pub fn short_id(id: &str) -> &str {
    let digits = id.split_once('_').map_or(id, |(_, digits)| digits);
    digits.get(..SHORT_DIGITS).unwrap_or(digits)
}

impl<I: PrefixedId> IdPrefix<I> {
    /// Whether an id has this prefix.
    pub fn matches(&self, id: &str) -> bool {
        id.strip_prefix(I::WORD).is_some_and(|digits| digits.starts_with(&self.digits))
    }
}

impl IdPrefix<DeliveryId> {
    /// The id, if the prefix is complete.
    pub fn whole(&self) -> Option<DeliveryId> {
        (self.digits.len() == DIGITS).then(|| DeliveryId::from_stored(&self.to_string()))
    }
}

impl<I: PrefixedId> fmt::Display for IdPrefix<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", I::WORD, self.digits)
    }
}

impl<I: PrefixedId> FromStr for IdPrefix<I> {
    type Err = IdPrefixError;

    fn from_str(text: &str) -> Result<Self, IdPrefixError> {
        let digits = text.strip_prefix(I::WORD).unwrap_or(text).to_ascii_lowercase();
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match is_hex && (1..=DIGITS).contains(&digits.len()) {
            true => Ok(Self { digits, id: PhantomData }),
            false => Err(IdPrefixError { word: I::WORD }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id that was copied from a list, a log or a ticket must be understood, and nothing else.
    #[test]
    fn prefixes_are_hex_digits_with_or_without_the_word() {
        let whole = "6f1ed002ab5595859014ebf0951522d9";
        for text in ["6", "6f1ed002", "delivery_6f1ed002", "delivery_6F1E", whole, &format!("delivery_{whole}")] {
            let prefix: IdPrefix<DeliveryId> = text.parse().expect("a prefix");
            assert!(prefix.matches(&format!("delivery_{whole}")), "{text}");
            assert_eq!(prefix.whole().is_some(), text.ends_with(whole), "{text}");
        }
        for text in ["", "delivery_", "x", "alert_6f1ed002", &format!("{whole}0")] {
            assert_eq!(text.parse::<IdPrefix<DeliveryId>>(), Err(IdPrefixError { word: DeliveryId::WORD }), "{text}");
        }
        assert!(!"6f1f".parse::<IdPrefix<DeliveryId>>().expect("a prefix").matches(&format!("delivery_{whole}")));
    }
}
