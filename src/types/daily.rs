//! A time that occurs once a day: a time of day in a zone.

use std::fmt;
use std::str::FromStr;

use chrono::{Days, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone};

use crate::zones::Zone;

use super::UnixMs;
use super::text_form::serde_as_text;

/// The configured time of the daily digest: `08:00`, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestTime {
    /// Never.
    Off,
    /// At this time of day.
    At(NaiveTime),
}

serde_as_text!(DigestTime);

/// The text is not a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time of day is HH:MM, for example 08:00, or off")]
pub struct DigestTimeError;

/// A time that occurs once a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyTime {
    /// The time of day.
    pub time: NaiveTime,
    /// The zone.
    pub zone: Zone,
}

impl DailyTime {
    /// The last such time at or before `now`, and the one a day earlier; `None` outside the calendar.
    pub fn last_two(&self, now: UnixMs) -> Option<(UnixMs, UnixMs)> {
        let today = self.zone.from_utc_datetime(&now.to_utc()?.naive_utc()).date_naive();
        let at = |days| self.on(today.checked_sub_days(Days::new(days))?);
        let (today, yesterday, before) = (at(0)?, at(1)?, at(2)?);
        Some(if today <= now { (yesterday, today) } else { (before, yesterday) })
    }

    /// The time on a date. A time that the clocks skip uses the offset before the change. If a time occurs twice, the
    /// first one is used.
    pub(super) fn on(&self, date: NaiveDate) -> Option<UnixMs> {
        let local = NaiveDateTime::new(date, self.time);
        let at = match self.zone.from_local_datetime(&local).earliest() {
            Some(at) => at.naive_utc(),
            None => {
                let before = local.checked_sub_days(Days::new(1))?;
                local - self.zone.from_local_datetime(&before).earliest()?.offset().fix()
            }
        };
        Some(UnixMs(at.and_utc().timestamp_millis()))
    }
}

impl FromStr for DigestTime {
    type Err = DigestTimeError;

    fn from_str(text: &str) -> Result<Self, DigestTimeError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        // chrono alone would also accept 8:00.
        let time = NaiveTime::parse_from_str(text, "%H:%M").map_err(|_| DigestTimeError)?;
        if text.len() == 5 { Ok(Self::At(time)) } else { Err(DigestTimeError) }
    }
}

impl fmt::Display for DigestTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(time) => time.format("%H:%M").fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn ms(text: &str) -> UnixMs {
        UnixMs(DateTime::parse_from_rfc3339(text).expect("a time").timestamp_millis())
    }

    /// A digest made at 7:59 belongs to the day before, and a night without 2:30 must have a digest too.
    #[test]
    fn the_last_moment_is_found_in_any_zone() {
        let last = |time: &str, zone: Zone, now: &str| {
            let DigestTime::At(time) = time.parse().expect("legal") else { panic!("a time") };
            DailyTime { time, zone }.last_two(ms(now)).expect("a calendar").1
        };
        let zone = |name: &str| name.parse::<Zone>().expect("a zone");
        let berlin = zone("Europe/Berlin");
        assert_eq!(last("08:00", berlin, "2026-11-21T06:59:59Z"), ms("2026-11-20T07:00:00Z"));
        assert_eq!(last("08:00", berlin, "2026-11-21T07:00:00Z"), ms("2026-11-21T07:00:00Z"));
        assert_eq!(last("08:00", zone("Asia/Ho_Chi_Minh"), "2026-11-21T23:00:00Z"), ms("2026-11-21T01:00:00Z"));
        // The clocks skip from 02:00 to 03:00 on 2026-03-29, and show 02:30 twice on 2026-10-25.
        assert_eq!(last("02:30", berlin, "2026-03-29T12:00:00Z"), ms("2026-03-29T01:30:00Z"));
        assert_eq!(last("02:30", berlin, "2026-10-25T12:00:00Z"), ms("2026-10-25T00:30:00Z"));
    }

    /// A truncated time would become a digest at midnight.
    #[test]
    fn only_a_time_of_day_is_taken() {
        for good in ["00:00", "08:00", "23:59", "off"] {
            assert_eq!(good.parse::<DigestTime>().map(|time| time.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "8:00", "08", "24:00", "08:60", "08:00:00", "Off", "-1:00"] {
            assert_eq!(bad.parse::<DigestTime>(), Err(DigestTimeError), "{bad}");
        }
    }
}
