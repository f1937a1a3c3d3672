//! The date on which a subject's months, quarters and years begin.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::text_form::{display_as_inner, inline_schema};
use super::units::read_whole_number;

/// Defines a whole number from 1 to a maximum, with the error of other texts.
macro_rules! one_to {
    ($(#[$doc:meta])* $name:ident, $noun:literal, $what:literal, $max:literal, $error:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub struct $name(u8);

        inline_schema!($name, { "type": "integer", "minimum": 1, "maximum": $max });
        display_as_inner!($name);

        #[doc = concat!("The text is not ", $what, ".")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
        #[error("{} is {}, 1 to {}", $noun, $what, $max)]
        pub struct $error;

        impl $name {
            /// The first one, which is the default.
            pub const FIRST: Self = Self(1);

            /// Returns `None` for a number out of range.
            pub const fn new(number: u8) -> Option<Self> {
                if number == 0 || number > $max { None } else { Some(Self(number)) }
            }

            /// The number.
            pub const fn get(self) -> u8 {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::FIRST
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const EXPECTED: &str = concat!($what, ", 1 to ", $max);
                let number = read_whole_number(deserializer, EXPECTED)?;
                let in_range = u8::try_from(number).ok().and_then(Self::new);
                in_range.ok_or_else(|| de::Error::custom(format_args!("invalid value: {number}, expected {EXPECTED}")))
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                let is_number = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = if is_number { text.parse().ok() } else { None };
                number.and_then(Self::new).ok_or($error)
            }
        }
    };
}

one_to! {
    /// A day of the month, 1 to 31. A month without that day begins on its last day.
    BillingDay, "a billing day", "a day of the month", 31, BillingDayError
}

one_to! {
    /// A month of the year, 1 to 12.
    BillingMonth, "a billing month", "a month of the year", 12, BillingMonthError
}

/// The date on which a subject's years begin. Its quarters begin on the same day of every third month, and its months
/// on the same day of every month. The default is 1 January.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BillingStart {
    /// The month, which decides for quarters and years.
    pub month: BillingMonth,
    /// The day of the month.
    pub day: BillingDay,
}

impl From<BillingDay> for BillingStart {
    fn from(day: BillingDay) -> Self {
        Self { day, ..Self::default() }
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

    /// A month that does not exist would have no quarter and no year.
    #[test]
    fn a_billing_month_is_a_month_of_the_year() {
        for month in 1..=12 {
            assert_eq!(month.to_string().parse(), Ok(BillingMonth(month)));
        }
        for bad in ["", "0", "13", "jan", "+1"] {
            let error = bad.parse::<BillingMonth>().expect_err(bad);
            assert_eq!(error.to_string(), "a billing month is a month of the year, 1 to 12");
        }
    }
}
