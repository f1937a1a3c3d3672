//! The quiet time of a contact: a part of each day in which its notifications wait. Pure.

use chrono::{Days, NaiveTime, TimeZone as _};

use super::UnixMs;
use super::daily::DailyTime;
use super::text_form::{inline_schema, serde_as_text};
use crate::zones::Zone;

/// A part of each day, such as `22:00-07:00`. The end is no longer quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuietTime {
    from: NaiveTime,
    to: NaiveTime,
}

serde_as_text!(QuietTime);
inline_schema!(QuietTime, { "type": "string", "pattern": "^[0-9]{2}:[0-9]{2}-[0-9]{2}:[0-9]{2}$" });

/// Why a text is not a quiet time.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuietTimeError {
    #[error("{0:?} is not a quiet time, such as \"22:00-07:00\", with times from 00:00 to 23:59")]
    Form(String),
    /// Nothing would ever be sent.
    #[error("{0:?} covers the whole day: the beginning and the end must differ; a mute sends nothing at all")]
    WholeDay(String),
}

impl QuietTime {
    /// When the quiet time ends in which `now` lies, in this zone; `None` if `now` is not in it. If the clocks are
    /// changed meanwhile, it ends when the clocks first show its end, or would have.
    pub fn ends_after(self, now: UnixMs, zone: Zone) -> Option<UnixMs> {
        let local = zone.from_utc_datetime(&now.to_utc()?.naive_utc()).naive_local();
        let (time, wraps) = (local.time(), self.from > self.to);
        let is_quiet = if wraps { time >= self.from || time < self.to } else { (self.from..self.to).contains(&time) };
        if !is_quiet {
            return None;
        }
        let days = u64::from(wraps && time >= self.from);
        let end = DailyTime { time: self.to, zone }.on(local.date().checked_add_days(Days::new(days))?)?;
        // In an hour that the clocks show twice, the end may be past while its time of day is still ahead.
        Some(if end > now { end } else { end.plus(HOUR_MS) }).filter(|end| *end > now)
    }
}

/// Clocks are set back by an hour, nearly everywhere.
const HOUR_MS: i64 = 3_600_000;

impl std::str::FromStr for QuietTime {
    type Err = QuietTimeError;

    fn from_str(text: &str) -> Result<Self, QuietTimeError> {
        // chrono alone would also accept 7:00.
        let time = |part: &str| NaiveTime::parse_from_str(part, "%H:%M").ok().filter(|_| part.len() == 5);
        let parts = text.split_once('-').and_then(|(from, to)| Some((time(from)?, time(to)?)));
        match parts {
            None => Err(QuietTimeError::Form(text.chars().take(40).collect())),
            Some((from, to)) if from == to => Err(QuietTimeError::WholeDay(text.to_owned())),
            Some((from, to)) => Ok(Self { from, to }),
        }
    }
}

impl std::fmt::Display for QuietTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.from.format("%H:%M"), self.to.format("%H:%M"))
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use proptest::prelude::*;

    fn ms(text: &str) -> UnixMs {
        UnixMs(DateTime::parse_from_rfc3339(text).expect("a time").timestamp_millis())
    }

    /// A message at three in the morning, or none at noon, is what the setting is there to prevent.
    #[test]
    fn a_quiet_time_ends_when_the_clock_on_the_wall_says_so() {
        for (quiet, zone, now, end) in [
            ("22:00-07:00", "UTC", "2026-11-21T21:59:59Z", None),
            ("22:00-07:00", "UTC", "2026-11-21T22:00:00Z", Some("2026-11-22T07:00:00Z")),
            ("22:00-07:00", "UTC", "2026-11-22T06:59:59Z", Some("2026-11-22T07:00:00Z")),
            ("22:00-07:00", "UTC", "2026-11-22T07:00:00Z", None),
            ("12:00-13:30", "UTC", "2026-11-21T12:10:00Z", Some("2026-11-21T13:30:00Z")),
            ("12:00-13:30", "UTC", "2026-11-21T22:10:00Z", None),
            ("22:00-07:00", "Asia/Ho_Chi_Minh", "2026-11-21T16:00:00Z", Some("2026-11-22T00:00:00Z")),
            // Days of 23 and of 25 hours.
            ("22:00-07:00", "Europe/Berlin", "2026-03-28T22:00:00Z", Some("2026-03-29T05:00:00Z")),
            ("22:00-07:00", "Europe/Berlin", "2026-10-24T21:00:00Z", Some("2026-10-25T06:00:00Z")),
            // 02:30 does not exist, and occurs twice.
            ("22:00-02:30", "Europe/Berlin", "2026-03-28T22:00:00Z", Some("2026-03-29T01:30:00Z")),
            ("22:00-02:30", "Europe/Berlin", "2026-10-24T21:00:00Z", Some("2026-10-25T00:30:00Z")),
            ("22:00-02:30", "Europe/Berlin", "2026-10-25T00:30:00Z", None),
            ("22:00-02:30", "Europe/Berlin", "2026-10-25T01:10:00Z", Some("2026-10-25T01:30:00Z")),
        ] {
            let (parsed, zone): (QuietTime, Zone) = (quiet.parse().expect("legal"), zone.parse().expect("a zone"));
            assert_eq!(parsed.ends_after(ms(now), zone), end.map(ms), "{quiet} at {now}");
            assert_eq!(parsed.to_string(), quiet);
        }
    }

    /// Nothing would ever be sent, or at another time than was meant.
    #[test]
    fn what_is_no_part_of_a_day_is_refused() {
        for whole in ["00:00-00:00", "22:00-22:00"] {
            let error = whole.parse::<QuietTime>().expect_err(whole).to_string();
            assert!(error.contains("covers the whole day"), "{error}");
        }
        for bad in
            ["", "22:00", "22-07", "22:00-7:00", "22:00 - 07:00", "24:00-07:00", "22:00-24:00", "22:60-07:00", "-"]
        {
            let error = bad.parse::<QuietTime>().expect_err(bad).to_string();
            assert!(error.contains("such as \"22:00-07:00\""), "{error}");
        }
    }

    proptest! {
        /// A notification that waits is sent: the end lies ahead, within a day, and is not quiet itself.
        #[test]
        fn every_quiet_time_ends(from in 0..1440_u32, length in 1..1440_u32, at in 0..31_536_000_i64,
                                 zone in 0..4_usize) {
            let time = |minutes: u32| format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
            let quiet: QuietTime = format!("{}-{}", time(from), time(from + length)).parse().expect("legal");
            let zone = ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia"][zone].parse().expect("a zone");
            let now = UnixMs(1_767_225_600_000 + at * 1000);
            if let Some(end) = quiet.ends_after(now, zone) {
                prop_assert!(end > now && end <= now.plus(25 * HOUR_MS));
                prop_assert_eq!(quiet.ends_after(end, zone), None);
            }
        }
    }
}
