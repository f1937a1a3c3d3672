//! Rates: units per time, such as `60/1m`.

use std::fmt;
use std::time::Duration;

use super::Units;
use super::duration::{self, HumanDuration};
use super::text_form::serde_as_text;
use super::units::UNITS_MAX;

const _: () = assert!(UNITS_MAX == quotabell_throttle::UNITS_MAX);

/// A limit and the window that it applies to, as a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate(quotabell_throttle::Rate);

serde_as_text!(Rate);

/// The text is not a rate.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    #[error("{0:?} is not a rate: write units and a window, such as \"60/1m\" or \"1000/1h\"")]
    Form(String),
    #[error("{0:?} is not a rate: units are 1 to {UNITS_MAX}")]
    Limit(String),
    #[error("a window is a whole number of milliseconds, 1ms to 31d")]
    Window,
}

impl Rate {
    /// `limit` units in any window of this length.
    ///
    /// # Errors
    ///
    /// [`RateError::Window`] when the window is not a whole number of milliseconds from 1 ms to 31 d.
    pub fn new(limit: Units, window: Duration) -> Result<Self, RateError> {
        quotabell_throttle::Rate::new(limit.get(), window).map(Self).map_err(|_| RateError::Window)
    }

    /// Units per window.
    pub const fn limit(self) -> Units {
        Units::new(self.0.limit()).expect("a limit has the range of units")
    }

    /// Length of the window.
    pub const fn window(self) -> Duration {
        self.0.window()
    }
}

impl From<Rate> for quotabell_throttle::Rate {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

impl std::str::FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let form = || RateError::Form(text.to_owned());
        let (limit, window) = text.split_once('/').ok_or_else(form)?;
        let window = duration::parse(window).ok_or_else(form)?;
        let digits = limit.strip_prefix('-').unwrap_or(limit);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let limit = limit.parse().map_err(|_| if is_number { RateError::Limit(text.to_owned()) } else { form() })?;
        Self::new(limit, window)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit(), HumanDuration(self.window()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A rate is a setting: the error for a wrong rate must say how to write it.
    #[test]
    fn rates_that_are_none_are_refused() {
        for text in ["", "60", "60/", "/1m", "-/1m", "0/m", "60/1", "60 / 1m", "60/1m/2", "1e3/1m", "60/-1m"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Form(text.to_owned())), "{text}");
        }
        for text in ["0/1m", "00/1m", "-1/1m", "9007199254740992/1s", "99999999999999999999/1s"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Limit(text.to_owned())), "{text}");
        }
        for text in ["60/0s", "60/1us", "60/1500us", "60/32d"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Window), "{text}");
        }
    }

    proptest! {
        /// A printed setting can be read again.
        #[test]
        fn rates_read_back(limit in 1..=crate::types::units::UNITS_MAX, window_ms in 1_u64..=31 * 86_400_000) {
            let rate = Rate::new(Units::new(limit).expect("in range"), Duration::from_millis(window_ms)).expect("legal");
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }
}
