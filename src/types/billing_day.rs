//! The day of the month on which a subject's months begin.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The last day of the longest month.
const BILLING_DAY_MAX: u8 = 31;

/// A day of the month, 1 to 31. A month that has no such day begins on its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct BillingDay(u8);

/// The number is not a day that every calendar knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a billing day is a day of the month, 1 to {BILLING_DAY_MAX}")]
pub struct BillingDayError;

impl BillingDay {
    /// The first: calendar months.
    pub const FIRST: Self = Self(1);

    /// Takes a number in range.
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

impl TryFrom<u8> for BillingDay {
    type Error = BillingDayError;
    fn try_from(day: u8) -> Result<Self, BillingDayError> {
        Self::new(day).ok_or(BillingDayError)
    }
}

impl From<BillingDay> for u8 {
    fn from(day: BillingDay) -> Self {
        day.0
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

    /// A billing day that is wrong by one would bill another month.
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
