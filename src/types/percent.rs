//! Percentages of a limit.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::text_form::{display_as_inner, inline_schema};
use super::units::{Units, read_whole_number};

/// The largest percentage: ten times the limit.
pub const PERCENT_MAX: u16 = 1000;

/// A percentage of a limit: 1 to 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Percent(u16);

inline_schema!(Percent, { "type": "integer", "minimum": 1, "maximum": PERCENT_MAX });
display_as_inner!(Percent);

/// The number is not a percentage of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number of percent, 1 to {PERCENT_MAX}")]
pub struct PercentError;

impl Percent {
    /// Returns `None` for a number out of range.
    pub const fn new(percent: u16) -> Option<Self> {
        if percent == 0 || percent > PERCENT_MAX { None } else { Some(Self(percent)) }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The smallest count that reaches this percentage of `limit`: ceil(limit x percent / 100).
    ///
    /// Computed in u128, because doubles are off by one unit for limits above 4e15. May exceed 2^53 - 1 for percentages
    /// above 100; such a threshold can't be reached, and the caller omits it.
    pub fn threshold_units(self, limit: Units) -> u128 {
        (u128::from(limit.get()) * u128::from(self.0)).div_ceil(100)
    }
}

impl TryFrom<u64> for Percent {
    type Error = PercentError;
    fn try_from(percent: u64) -> Result<Self, PercentError> {
        u16::try_from(percent).ok().and_then(Self::new).ok_or(PercentError)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = read_whole_number(deserializer, "a whole number of percent, 1 to 1000")?;
        Self::try_from(percent).map_err(de::Error::custom)
    }
}

impl std::str::FromStr for Percent {
    type Err = PercentError;
    fn from_str(text: &str) -> Result<Self, PercentError> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(PercentError);
        }
        text.parse().ok().and_then(Self::new).ok_or(PercentError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::units::UNITS_MAX;
    use proptest::prelude::*;

    proptest! {
        /// The threshold is the smallest count with used * 100 >= limit * percent, for all sizes.
        #[test]
        fn threshold_is_the_least_count_that_reaches_the_percentage(limit in 1..=UNITS_MAX, percent in 1..=PERCENT_MAX) {
            let limit_units = Units::new(limit).expect("in range");
            let threshold = Percent::new(percent).expect("in range").threshold_units(limit_units);
            let reached = |used: u128| used * 100 >= u128::from(limit) * u128::from(percent);
            prop_assert!(reached(threshold));
            prop_assert!(!reached(threshold - 1));
        }
    }
}
