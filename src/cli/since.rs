//! `--since`: the start of a list.

use std::str::FromStr;
use std::time::Duration;

use crate::types::timestamp::TimeOrDate;
use crate::types::{UnixMs, duration};

/// A time, a date, or a duration before the server's present time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    At(UnixMs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "neither a duration, such as 30m, 6h or 3d, nor a date (midnight in UTC), such as 2026-11-21, nor a time, such as \
     '2026-11-21 08:37:00 UTC' or 2026-11-21T08:37:00+07:00"
)]
pub struct SinceError;

impl Since {
    /// The selected time, given the present time.
    pub fn before(self, now: UnixMs) -> UnixMs {
        match self {
            Self::Ago(duration) => {
                UnixMs(now.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
            }
            Self::At(time) => time,
        }
    }
}

impl FromStr for Since {
    type Err = SinceError;

    fn from_str(text: &str) -> Result<Self, SinceError> {
        if let Some(ago) = duration::parse(text) {
            return Ok(Self::Ago(ago));
        }
        text.parse().map(|TimeOrDate(at)| Self::At(at)).map_err(|_| SinceError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time without a zone would be ambiguous, and so would a number without a unit. A date is one in UTC.
    #[test]
    fn since_is_a_duration_a_date_or_a_whole_time() {
        let before = |text: &str| text.parse().map(|since: Since| since.before(UnixMs(100_000)).0);
        assert_eq!(before("90s"), Ok(10_000));
        assert_eq!(before("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(before("1970-01-02"), Ok(86_400_000));
        assert_eq!(before("1970-01-01 00:00:01 UTC"), Ok(1000), "as pages show it");
        for text in ["", "90", "2026-11-31", "2026-11", "2026-11-21T08:37:00", "2026-11-21 UTC", "1M", "yesterday"] {
            assert_eq!(before(text), Err(SinceError), "{text}");
        }
    }
}
