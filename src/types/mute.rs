//! Mutes: alerts are recorded but not sent, until a time or indefinitely. Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::UnixMs;
use super::duration;
use super::text::is_control;
use super::text_form::inline_schema;
use super::timestamp::{Rfc3339, TimestampError};

/// Maximum length of a reason, bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// The reason of a mute that a customer began in the portal. Only such a mute can be ended there.
pub const REASON_OF_PORTAL: &str = "muted in the portal";

/// The latest time that RFC 3339 can express: a later end could not be read back.
const LATEST: UnixMs = UnixMs(253_402_300_799_999);

/// A mute: alerts are recorded and not sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Mute {
    /// When it ends by itself, by the server's clock; null for one that lasts until somebody ends it.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<Rfc3339>")]
    pub until: Option<UnixMs>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

fn as_text<S: Serializer>(until: &Option<UnixMs>, serializer: S) -> Result<S::Ok, S::Error> {
    until.map(Rfc3339).serialize(serializer)
}

/// When a mute is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuteEnd {
    /// Never by itself.
    Never,
    /// After this long.
    After(Duration),
    /// At this time.
    At(UnixMs),
}

impl MuteEnd {
    /// The end from a time and a duration, such as `2h`: at most one of them.
    ///
    /// # Errors
    ///
    /// The field (`for` or `until`), and what is allowed.
    pub fn new(until: Option<Self>, duration: Option<&str>) -> Result<Self, &'static str> {
        match (until, duration) {
            (Some(_), Some(_)) => Err("until: can't be combined with for"),
            (until, None) => Ok(until.unwrap_or(Self::Never)),
            (None, Some(text)) => duration::parse(text)
                .map(Self::After)
                .ok_or("for: must be a number and a unit, such as \"30m\", \"2h\" or \"3d\""),
        }
    }
}

inline_schema!(MuteEnd, { "type": "string", "format": "date-time" });

/// Why a mute is invalid.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MuteError {
    #[error("a mute must end in the future: its end, {until}, is not later than the server's time, {now}")]
    Past { until: UnixMs, now: UnixMs },
    /// It would end in a year that RFC 3339 can't express.
    #[error("a mute must end before the year 10000; leave its end out for one that lasts")]
    TooLong,
    /// The reason is too long, or has control characters.
    #[error("a reason has 1 to {REASON_BYTES_MAX} bytes and no control characters")]
    Reason,
    #[error("must be true or the time at which it ends, such as 2026-11-21T08:37:00Z, and then the reason, if any")]
    Stored,
}

impl Mute {
    /// The mute that results from a request at the time `now`.
    pub fn new(end: MuteEnd, reason: Option<String>, now: UnixMs) -> Result<Self, MuteError> {
        let until = match end {
            MuteEnd::Never => None,
            MuteEnd::After(time) => Some(now.after(time)),
            MuteEnd::At(until) => Some(until),
        };
        match until {
            Some(until) if until > LATEST => return Err(MuteError::TooLong),
            Some(until) if until <= now => return Err(MuteError::Past { until, now }),
            _ => {}
        }
        Ok(Self { until, reason: checked_reason(reason)? })
    }

    /// When the mute ends; [`UnixMs::MAX`] for one that lasts until somebody ends it.
    pub fn end(&self) -> UnixMs {
        self.until.unwrap_or(UnixMs::MAX)
    }

    /// Whether the mute is in force at `now`.
    pub fn is_active(&self, now: UnixMs) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Parses the form that [`Self::to_stored`] writes; `None` for `false`.
    pub fn of_stored(text: &str) -> Result<Option<Self>, MuteError> {
        let (end, reason) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let until = match end {
            "false" => return Ok(None),
            "true" => None,
            time => Some(time.parse().map_err(|_| MuteError::Stored)?),
        };
        let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        Ok(Some(Self { until, reason }))
    }

    /// One text: `true` or the end, then the reason.
    pub fn to_stored(&self) -> String {
        let end = self.until.map_or_else(|| "true".to_owned(), |until| until.to_string());
        self.reason.as_ref().map_or_else(|| end.clone(), |reason| format!("{end} {reason}"))
    }

    /// The end and the reason, to follow `muted`: ` until 2026-11-21T08:37:00.000Z: maintenance`.
    pub fn terms(&self) -> String {
        let until = self.until.map_or_else(String::new, |until| format!(" until {until}"));
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        until + &reason
    }
}

/// A reason in its stored form: short, on one line, trimmed.
pub fn checked_reason(reason: Option<String>) -> Result<Option<String>, MuteError> {
    let Some(reason) = reason else { return Ok(None) };
    let trimmed = reason.trim();
    let is_legal = (1..=REASON_BYTES_MAX).contains(&trimmed.len()) && !trimmed.chars().any(is_control);
    if is_legal { Ok(Some(trimmed.to_owned())) } else { Err(MuteError::Reason) }
}

/// `muted until 2026-11-21T08:37:00.000Z: maintenance`, to follow "the contact is".
impl fmt::Display for Mute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "muted{}", self.terms())
    }
}

/// Parses the time at which a mute ends.
impl FromStr for MuteEnd {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        text.parse().map(Self::At)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: UnixMs = UnixMs(1_795_250_000_123);

    /// A mute that ended in the past would look as if it worked, and one of the year 10000 could not be read back.
    #[test]
    fn a_mute_ends_in_the_future_or_never() {
        let new = |end, reason: Option<&str>| Mute::new(end, reason.map(str::to_owned), NOW);
        let hour = new(MuteEnd::After(Duration::from_secs(3600)), Some(" at noon ")).expect("legal");
        assert_eq!(hour, Mute { until: Some(NOW.plus(3_600_000)), reason: Some("at noon".to_owned()) });
        assert_eq!((hour.is_active(NOW), hour.is_active(NOW.plus(3_600_000))), (true, false));
        assert!(new(MuteEnd::Never, None).expect("legal").is_active(UnixMs(i64::MAX)));
        assert_eq!(new(MuteEnd::At(NOW), None), Err(MuteError::Past { until: NOW, now: NOW }));
        assert_eq!(new(MuteEnd::After(Duration::MAX), None), Err(MuteError::TooLong));
        for reason in ["", "  ", "a\nb", &"x".repeat(257)] {
            assert_eq!(new(MuteEnd::Never, Some(reason)), Err(MuteError::Reason), "{reason:?}");
        }
    }

    /// Operators write mutes by hand.
    #[test]
    fn the_stored_form_is_an_end_and_a_reason() {
        let stored = |text: &str| Mute::of_stored(text).map(|mute| mute.map(|mute| mute.to_string()));
        for (text, shown) in [
            ("true", "muted"),
            ("true new office", "muted: new office"),
            ("2026-11-21T09:37:00+01:00", "muted until 2026-11-21T08:37:00.000Z"),
            ("2026-11-21T08:37:00Z  a b", "muted until 2026-11-21T08:37:00.000Z: a b"),
        ] {
            assert_eq!(stored(text), Ok(Some(shown.to_owned())), "{text}");
        }
        assert_eq!(stored("false"), Ok(None));
        for text in ["", "yes", "2h", "2026-11-21", "2026-11-21T08:37:00"] {
            assert_eq!(stored(text), Err(MuteError::Stored), "{text}");
        }
    }

    proptest! {
        /// A mute must be read back with the same end.
        #[test]
        fn mutes_read_back(until in proptest::option::of(0..=LATEST.0), reason in proptest::option::of("[a-zé0-9:]([a-zé ]{0,9}[a-z])?")) {
            let mute = Mute { until: until.map(UnixMs), reason };
            prop_assert_eq!(Mute::of_stored(&mute.to_stored()), Ok(Some(mute)));
        }
    }
}
