//! The day of the month on which a subject's months begin.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::text_form::inline_schema;
use super::units::visited_number;

/// The last day of the longest month.
const BILLING_DAY_MAX: u8 = 31;

/// A day of the month, 1 to 31. A month without that day begins on its last day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct BillingDay(u8);

inline_schema!(BillingDay, { "type": "integer", "minimum": 1, "maximum": 31 });

/// The number is not a day of the month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a billing day is a day of the month, 1 to {BILLING_DAY_MAX}")]
pub struct BillingDayError;

impl BillingDay {
    /// The first day: calendar months.
    pub const FIRST: Self = Self(1);

    /// Returns `None` for a number out of range.
    pub const fn new(day: u8) -> Option<Self> {
        if day == 0 || day > BILLING_DAY_MAX { None } else { Some(Self(day)) }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for BillingDay {
    fn default() -> Self {
        Self::FIRST
    }
}

impl<'de> Deserialize<'de> for BillingDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(BillingDayVisitor)
    }
}

/// Reads a number, and names the allowed range for any other value.
struct BillingDayVisitor;

impl de::Visitor<'_> for BillingDayVisitor {
    type Value = BillingDay;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a day of the month, 1 to {BILLING_DAY_MAX}")
    }

    fn visit_u64<E: de::Error>(self, day: u64) -> Result<BillingDay, E> {
        let day_of_month = u8::try_from(day).ok().and_then(BillingDay::new);
        day_of_month.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(day), &self))
    }

    fn visit_i64<E: de::Error>(self, day: i64) -> Result<BillingDay, E> {
        match u64::try_from(day) {
            Ok(day) => self.visit_u64(day),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(day), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, day: f64) -> Result<BillingDay, E> {
        let day = visited_number(day, &self)?;
        self.visit_u64(day)
    }
}

impl std::str::FromStr for BillingDay {
    type Err = BillingDayError;
    fn from_str(text: &str) -> Result<Self, BillingDayError> {
        let is_number = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let day = if is_number { text.parse().ok() } else { None };
        day.and_then(Self::new).ok_or(BillingDayError)
    }
}

impl fmt::Display for BillingDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong billing day would bill another month.
    #[test]
    fn a_billing_day_is_a_day_of_the_month() {
        for day in 1..=31 {
            assert_eq!(day.to_string().parse(), Ok(BillingDay(day)));
        }
        for bad in ["", "0", "00", "32", "+1", "-1", "1.0", "1st", " 1", "001", "255", "257", "٣"] {
            assert_eq!(bad.parse::<BillingDay>(), Err(BillingDayError), "{bad:?}");
        }
    }
}
