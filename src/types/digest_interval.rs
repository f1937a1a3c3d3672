//! For how long the notifications of a contact are gathered into one message. Pure.

use std::time::Duration;

use super::duration::{HumanDuration, parse};
use super::text_form::{inline_schema, serde_as_text};

/// The longest interval, 7 days: a message about last week is no news.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
/// The shortest one.
const SHORTEST: Duration = Duration::from_secs(1);

/// For how long notifications are gathered into one message, such as `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DigestInterval(Duration);

serde_as_text!(DigestInterval);
inline_schema!(DigestInterval, { "type": "string", "examples": ["1h"] });

/// The text is not such an interval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the interval of a digest, such as \"1h\": from 1s to 7d")]
pub struct DigestIntervalError(String);

impl DigestInterval {
    /// Its length.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl std::str::FromStr for DigestInterval {
    type Err = DigestIntervalError;

    fn from_str(text: &str) -> Result<Self, DigestIntervalError> {
        let interval = parse(text).filter(|interval| (SHORTEST..=LONGEST).contains(interval));
        interval.map(Self).ok_or_else(|| DigestIntervalError(text.chars().take(40).collect()))
    }
}

impl std::fmt::Display for DigestInterval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        HumanDuration(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interval of 0 would be no digest, and after a month nobody would miss the alert.
    #[test]
    fn an_interval_has_bounds() {
        for good in ["1s", "90s", "15m", "1h", "24h", "7d"] {
            let interval: DigestInterval = good.parse().expect(good);
            assert_eq!(interval.to_string().parse(), Ok(interval));
        }
        for bad in ["", "0s", "999ms", "8d", "1M", "1", "hourly", "-1h", "1h-2h"] {
            let error = bad.parse::<DigestInterval>().expect_err(bad).to_string();
            assert!(error.contains("such as \"1h\": from 1s to 7d"), "{error}");
        }
    }
}
