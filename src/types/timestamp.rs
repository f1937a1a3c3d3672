//! Points in time in Unix milliseconds, always by the server's clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use super::text_form::{display_as_inner, inline_schema};

/// Unix time in milliseconds. Negative before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub i64);

inline_schema!(UnixMs, { "type": "integer", "description": "Unix milliseconds." });

impl UnixMs {
    /// When something ends that does not end by itself.
    pub const MAX: Self = Self(i64::MAX);

    /// This instant moved by a number of milliseconds, saturating.
    #[must_use]
    pub const fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The instant that follows this one after `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        self.plus(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }

    /// Time since an earlier instant; zero for a later one.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant as a date and time; `None` outside the range of chrono (about 262,000 years either way).
    pub fn to_utc(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.0)
    }
}

/// The text is not a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a time in RFC 3339 with offset, such as 2026-11-21T08:37:00Z")]
pub struct TimestampError;

/// Parses RFC 3339 with any offset, to the millisecond.
impl FromStr for UnixMs {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        DateTime::parse_from_rfc3339(text).map(|time| Self(time.timestamp_millis())).map_err(|_| TimestampError)
    }
}

/// A time in RFC 3339 or as pages show it, such as `2026-11-21 08:37:00 UTC`; or a date: midnight in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOrDate(pub UnixMs);

/// The text is neither a time nor a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a date (midnight in UTC), such as 2026-11-21, or a time, such as 2026-11-21 08:37:00 UTC or \
     2026-11-21T08:37:00+07:00"
)]
pub struct TimeOrDateError;

impl FromStr for TimeOrDate {
    type Err = TimeOrDateError;

    fn from_str(text: &str) -> Result<Self, TimeOrDateError> {
        let of_page = text.strip_suffix(" UTC").map(|time| time.replacen(' ', "T", 1) + "Z");
        let of_page = of_page.as_deref().unwrap_or(text);
        let at = of_page.parse().or_else(|_| format!("{text}T00:00:00Z").parse());
        at.map(Self).map_err(|_| TimeOrDateError)
    }
}

/// RFC 3339 in UTC with milliseconds, such as `2026-11-21T08:37:00.123Z`; the bare number outside the calendar.
impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_utc() {
            Some(at) => f.write_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => self.0.fmt(f),
        }
    }
}

/// An instant with text as its JSON form, such as `2026-11-21T08:37:00.123Z`. All times that are shown have this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rfc3339(#[serde(with = "rfc3339")] pub UnixMs);

inline_schema!(Rfc3339, { "type": "string", "format": "date-time" });
display_as_inner!(Rfc3339);

/// An instant in JSON as the text of [`UnixMs`]; for `#[serde(with)]`.
pub mod rfc3339 {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::UnixMs;

    /// Writes the text.
    pub fn serialize<S: Serializer>(at: &UnixMs, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    /// Parses the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixMs, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
