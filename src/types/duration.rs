//! Durations in the configuration: `300ms`, `6h`, `3d`, as humantime writes them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Reads a duration; for `#[serde(with = "types::duration")]`.
///
/// # Errors
///
/// A message that shows the text and gives examples.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(|_| {
        serde::de::Error::custom(format!(
            "{text:?} is not a duration: write a number and a unit, as \"300ms\", \"6h\" or \"3d\""
        ))
    })
}

/// Writes a duration in the form that [`deserialize`] reads.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}
