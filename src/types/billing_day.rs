//! The day of the month on which a subject's months begin.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::text_form::{display_as_inner, inline_schema};
use super::units::read_whole_number;

/// The last day of the longest month.
const BILLING_DAY_MAX: u8 = 31;

/// A day of the month, 1 to 31. A month without that day begins on its last day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct BillingDay(u8);

inline_schema!(BillingDay, { "type": "integer", "minimum": 1, "maximum": 31 });
display_as_inner!(BillingDay);

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
        const EXPECTED: &str = "a day of the month, 1 to 31";
        let day = read_whole_number(deserializer, EXPECTED)?;
        let in_month = u8::try_from(day).ok().and_then(Self::new);
        in_month.ok_or_else(|| de::Error::custom(format_args!("invalid value: {day}, expected {EXPECTED}")))
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
