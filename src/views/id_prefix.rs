//! Ids by their first digits: what a list shows, and what every command takes.

use std::str::FromStr;

use crate::types::{AlertId, DeliveryId};

/// What every delivery's id begins with.
const DELIVERY: &str = "delivery_";
/// What every alert's id begins with.
const ALERT: &str = "alert_";
/// Hex digits of a whole id.
const DIGITS: usize = 32;
/// How many of them a list shows: enough for thousands of deliveries.
const SHORT_DIGITS: usize = 8;

/// The first digits of a delivery's id, or all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryIdPrefix {
    digits: String,
}

/// The first digits of an alert's id, or all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertIdPrefix {
    digits: String,
}

/// The text is not the beginning of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is {word} and {DIGITS} hex digits; the first digits are enough, such as 6f1ed002")]
pub struct IdPrefixError {
    word: &'static str,
}

/// The first digits of an id, which every command takes in its place.
pub fn short_id(id: &str) -> &str {
    let digits = id.split_once('_').map_or(id, |(_, digits)| digits);
    digits.get(..SHORT_DIGITS).unwrap_or(digits)
}

/// The digits of what may be the beginning of an id.
fn digits_of(text: &str, word: &'static str) -> Result<String, IdPrefixError> {
    let digits = text.strip_prefix(word).unwrap_or(text).to_ascii_lowercase();
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = is_hex && (1..=DIGITS).contains(&digits.len());
    if fits { Ok(digits) } else { Err(IdPrefixError { word }) }
}

/// The ids that begin so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryIdMatches {
    None,
    One(DeliveryId),
    Several(Vec<DeliveryId>),
}

impl DeliveryIdPrefix {
    /// The id, where all its digits are there.
    pub fn whole(&self) -> Option<DeliveryId> {
        (self.digits.len() == DIGITS).then(|| self.as_id())
    }

    /// The digits in the place of an id.
    pub fn as_id(&self) -> DeliveryId {
        DeliveryId::from_stored(&format!("{DELIVERY}{}", self.digits))
    }

    /// Whether an id begins so.
    pub fn is_of(&self, id: &str) -> bool {
        id.strip_prefix(DELIVERY).is_some_and(|digits| digits.starts_with(&self.digits))
    }
}

impl FromStr for DeliveryIdPrefix {
    type Err = IdPrefixError;

    fn from_str(text: &str) -> Result<Self, IdPrefixError> {
        Ok(Self { digits: digits_of(text, DELIVERY)? })
    }
}

impl AlertIdPrefix {
    pub fn is_of(&self, id: &AlertId) -> bool {
        id.as_str().strip_prefix(ALERT).is_some_and(|digits| digits.starts_with(&self.digits))
    }
}

impl FromStr for AlertIdPrefix {
    type Err = IdPrefixError;

    fn from_str(text: &str) -> Result<Self, IdPrefixError> {
        Ok(Self { digits: digits_of(text, ALERT)? })
    }
}

impl FromIterator<DeliveryId> for DeliveryIdMatches {
    fn from_iter<I: IntoIterator<Item = DeliveryId>>(ids: I) -> Self {
        let mut ids: Vec<DeliveryId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.len() {
            0 | 1 => ids.pop().map_or(Self::None, Self::One),
            _ => Self::Several(ids),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is pasted from a list, a log or a ticket must be understood, and nothing else.
    #[test]
    fn prefixes_are_hex_digits_with_or_without_the_word() {
        let whole = "6f1ed002ab5595859014ebf0951522d9";
        for text in ["6", "6f1ed002", "delivery_6f1ed002", "delivery_6F1E", whole, &format!("delivery_{whole}")] {
            let prefix: DeliveryIdPrefix = text.parse().expect("a prefix");
            assert!(prefix.is_of(&format!("delivery_{whole}")), "{text}");
            assert_eq!(prefix.whole().is_some(), text.ends_with(whole), "{text}");
        }
        for text in ["", "delivery_", "x", "alert_6f1ed002", &format!("{whole}0")] {
            assert_eq!(text.parse::<DeliveryIdPrefix>(), Err(IdPrefixError { word: DELIVERY }), "{text}");
        }
        assert!(!"6f1f".parse::<DeliveryIdPrefix>().expect("a prefix").is_of(&format!("delivery_{whole}")));
    }
}
