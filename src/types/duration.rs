//! Durations in the configuration: `300ms`, `6h`, `3d`, as humantime writes them.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

/// Reads a duration; for `#[serde(with = "types::duration")]`.
///
/// # Errors
///
/// A message that shows the text and gives examples; a bare number is refused too, because its unit would be a guess.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationText)
}

struct DurationText;

impl Visitor<'_> for DurationText {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration in quotes, as \"300ms\", \"6h\" or \"3d\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|_| {
            E::custom(format_args!(
                "{text:?} is not a duration: write a number and a unit, as \"300ms\", \"6h\" or \"3d\""
            ))
        })
    }
}

/// Writes a duration in the form that [`deserialize`] reads.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}
