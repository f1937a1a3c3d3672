//! Units: how much an event uses, a whole number.

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::text_form::{display_as_inner, inline_schema};

/// The largest number that Redis' Lua stores exactly: 2^53 - 1. No counter, limit or event exceeds it.
pub const UNITS_MAX: u64 = (1 << 53) - 1;

/// Units of one event or one limit: 1 to 2^53 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Units(u64);

inline_schema!(Units, { "type": "integer", "minimum": 1, "maximum": UNITS_MAX });
display_as_inner!(Units);

/// The bytes are not units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("units must be decimal digits, 1 to {UNITS_MAX}")]
pub struct UnitsError;

impl Units {
    /// One unit: the default of an event.
    pub const ONE: Self = Self(1);

    /// Returns `None` for a number out of range.
    pub const fn new(units: u64) -> Option<Self> {
        if units == 0 || units > UNITS_MAX { None } else { Some(Self(units)) }
    }

    /// Parses decimal digits only: no sign, point, space, hex or exponent. Leading zeros are allowed.
    ///
    /// # Errors
    ///
    /// [`UnitsError`] for anything else, and for 0 and numbers above 2^53 - 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, UnitsError> {
        if bytes.is_empty() {
            return Err(UnitsError);
        }
        let mut units: u64 = 0;
        for byte in bytes {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return Err(UnitsError);
            }
            units = units * 10 + u64::from(digit);
            // Checked at each digit, so that the product above stays below 2^57 for any length.
            if units > UNITS_MAX {
                return Err(UnitsError);
            }
        }
        Self::new(units).ok_or(UnitsError)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The whole number that a JSON float represents. In JSON Schema `1.0` is an integer like `1`, and some languages have
/// no other form. From 2^53 on the float could differ from the number that was meant.
pub fn whole_number(float: f64) -> Option<u64> {
    (float.fract() == 0.0 && (0.0..=UNITS_MAX as f64).contains(&float)).then_some(float as u64)
}

/// Reads a whole number, also one that is written with a point or an exponent.
///
/// # Errors
///
/// The error names the value, and what is `expected`.
pub fn read_whole_number<'de, D: Deserializer<'de>>(deserializer: D, expected: &str) -> Result<u64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let whole = value.as_u64().or_else(|| value.as_f64().and_then(whole_number));
    whole.ok_or_else(|| unexpected(&value, expected))
}

/// The error that names the value, and what is `expected`.
pub(crate) fn unexpected<E: de::Error>(value: &Value, expected: &str) -> E {
    let found = match value {
        Value::Null => de::Unexpected::Unit,
        Value::Bool(bool) => de::Unexpected::Bool(*bool),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => de::Unexpected::Unsigned(number),
            (None, Some(number)) => de::Unexpected::Signed(number),
            (None, None) => de::Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => de::Unexpected::Str(text),
        Value::Array(_) => de::Unexpected::Seq,
        Value::Object(_) => de::Unexpected::Map,
    };
    E::invalid_type(found, &expected)
}

impl TryFrom<u64> for Units {
    type Error = UnitsError;
    fn try_from(units: u64) -> Result<Self, UnitsError> {
        Self::new(units).ok_or(UnitsError)
    }
}

impl std::str::FromStr for Units {
    type Err = UnitsError;
    fn from_str(text: &str) -> Result<Self, UnitsError> {
        Self::parse(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Texts that Lua's tonumber or Rust's parse would accept must not be counted as something else.
    #[test]
    fn number_like_text_is_refused() {
        for bad in ["", "0", "-1", "+1", "1.5", "1e3", "0x10", " 5", "5 ", "NaN", "inf", "1_000", "٣"] {
            assert_eq!(Units::parse(bad.as_bytes()), Err(UnitsError), "{bad:?}");
        }
        assert_eq!(Units::parse(b"9007199254740992"), Err(UnitsError));
        assert_eq!(Units::parse("9".repeat(400).as_bytes()), Err(UnitsError));
    }

    proptest! {
        /// Every number in range survives the text form.
        #[test]
        fn digits_round_trip(units in 1..=UNITS_MAX) {
            prop_assert_eq!(Units::parse(units.to_string().as_bytes()).map(Units::get), Ok(units));
        }

        /// Arbitrary bytes never cause a panic, and only digits are accepted.
        #[test]
        fn only_digits_pass(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            if Units::parse(&bytes).is_ok() {
                prop_assert!(bytes.iter().all(u8::is_ascii_digit));
            }
        }
    }
}
