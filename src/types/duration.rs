//! Durations in the configuration: `300ms`, `6h`, `3d`, as humantime writes them.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use serde_json::Value;

use super::units::unexpected;

/// Reads a duration; for `#[serde(with = "types::duration")]`.
///
/// # Errors
///
/// An error that shows the text and gives examples; it also refuses a bare number, because its unit would be a guess.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    const EXAMPLES: &str = "\"300ms\", \"6h\" or \"3d\"";
    let value = Value::deserialize(deserializer)?;
    let Some(text) = value.as_str() else {
        return Err(unexpected(&value, &format!("a duration in quotes, such as {EXAMPLES}")));
    };
    let wrong =
        || D::Error::custom(format_args!("{text:?} is not a duration: write a number and a unit, such as {EXAMPLES}"));
    parse(text).ok_or_else(wrong)
}

/// Reads and writes a duration that may be missing; for `#[serde(with = "types::duration::optional")]`.
pub mod optional {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    /// Reads a duration.
    ///
    /// # Errors
    ///
    /// As [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }

    /// Writes the duration.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }
}

/// Parses a duration. Refuses months and years: they have no fixed length, and `1M` resembles a minute.
pub fn parse(text: &str) -> Option<Duration> {
    let indefinite = |unit: &str| unit == "M" || unit.starts_with("month") || unit.starts_with('y');
    let definite = !text.split(|character: char| !character.is_alphabetic()).any(indefinite);
    humantime::parse_duration(text).ok().filter(|_| definite)
}

/// Whole milliseconds, rounded up: a schedule in milliseconds must not start too early.
pub fn whole_ms(delay: Duration) -> Duration {
    let ms = delay.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// Writes a duration in the form that [`deserialize`] reads.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&HumanDuration(*duration))
}

/// A duration as people write it in a configuration: one number and the largest unit without a remainder, `3d`, `36h`,
/// `90s`. Nobody writes humantime's own form, `3days`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct HumanDuration(pub Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let unit = UNITS.iter().find(|(_, unit_nanos)| nanos.is_multiple_of(*unit_nanos));
        match unit {
            Some((name, unit_nanos)) if nanos > 0 => write!(f, "{}{name}", nanos / unit_nanos),
            _ => f.write_str("0s"),
        }
    }
}

/// Units with their nanoseconds, the largest first. No weeks, months and years, because limits and defaults use days.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Operators compare a printed setting with the text that they wrote.
    #[test]
    fn durations_are_written_as_people_write_them() {
        for text in ["0s", "300ms", "5s", "90s", "5h", "36h", "3d", "7d", "365d", "1us", "7ns"] {
            assert_eq!(HumanDuration(humantime::parse_duration(text).expect(text)).to_string(), text);
        }
        assert_eq!(HumanDuration(Duration::from_secs(60)).to_string(), "1m");
    }

    /// A month resembles a minute and would be an endless limit.
    #[test]
    fn months_and_years_are_no_durations() {
        for text in ["1M", "3M", "1month", "2months", "1y", "1yr", "1year", "2years", "1h 1M"] {
            assert_eq!(parse(text), None, "{text}");
            assert!(humantime::parse_duration(text).is_ok(), "{text}");
        }
        assert_eq!((parse("1m"), parse("2w")), (Some(Duration::from_secs(60)), Some(Duration::from_secs(14 * 86_400))));
    }

    proptest! {
        /// Printed settings can be read again.
        #[test]
        fn any_duration_reads_back(seconds in 0_u64..1_000_000_000_000, nanos in 0_u32..1_000_000_000) {
            for duration in [Duration::from_secs(seconds), Duration::new(seconds % 1_000_000, nanos)] {
                prop_assert_eq!(humantime::parse_duration(&HumanDuration(duration).to_string()), Ok(duration));
            }
        }
    }
}
