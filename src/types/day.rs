//! Days: calendar dates in a subject's time zone, and the instants at which they begin.
//!
//! A day begins at the first instant of its date. Midnight may be missing (Cairo, Santiago in spring) or doubled
//! (Havana in autumn), and a date may return for an hour after the next one has begun (St John's until 2011). In the
//! last case the later day continues, so that each day begins exactly where the previous one ends.

use std::fmt;

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveTime, Offset, TimeZone, Utc};

use crate::zones::Zone;

use super::text_form::{inline_schema, parsed_text};
use super::timestamp::UnixMs;

/// A calendar date, written `YYYY-MM-DD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(pub(super) NaiveDate);

parsed_text!(Day, DayError);
inline_schema!(Day, { "type": "string", "format": "date" });

/// The text is not a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a day must be a date, YYYY-MM-DD")]
pub struct DayError;

/// A day in one zone, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaySpan {
    /// The date.
    pub day: Day,
    /// The first instant of the day.
    pub start: UnixMs,
    /// The first instant of the next day.
    pub end: UnixMs,
}

impl DaySpan {
    /// The day of `zone` that contains the instant `at`; `None` outside the years 0001 to 9998, because other dates or
    /// the ends of their periods have no four-digit form.
    pub fn containing(zone: Zone, at: UnixMs) -> Option<Self> {
        let local = zone.from_utc_datetime(&at.to_utc()?.naive_utc()).date_naive();
        // If the local date returned after the next day began, the instant belongs to the next day.
        let next = local.checked_add_days(Days::new(1))?;
        let date = if start_of(zone, next)? <= at { next } else { local };
        Self::for_day(zone, Day(date))
    }

    /// This date in `zone`; `None` outside the years 0001 to 9998. A date that the zone skipped is empty.
    pub fn for_day(zone: Zone, day: Day) -> Option<Self> {
        if !has_four_digits(day.0) {
            return None;
        }
        let next = day.0.checked_add_days(Days::new(1))?;
        Some(Self { day, start: start_of(zone, day.0)?, end: start_of(zone, next)? })
    }
}

impl Day {
    /// Parses `YYYY-MM-DD`.
    ///
    /// # Errors
    ///
    /// [`DayError`] for any other text and for dates that do not exist.
    pub fn parse(text: &str) -> Result<Self, DayError> {
        // chrono alone would also accept signs and missing zeros, but a day has only one text.
        let fits = |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
        if text.len() != 10 || !text.bytes().enumerate().all(fits) {
            return Err(DayError);
        }
        NaiveDate::parse_from_str(text, "%Y-%m-%d").map(Self).map_err(|_| DayError)
    }

    /// Number of days from 1970-01-01 to this day.
    pub fn since_epoch(self) -> i64 {
        i64::from(self.0.to_epoch_days())
    }

    /// The day this number of days after 1970-01-01; `None` outside the years 0001 to 9998.
    pub fn of_epoch(days: i64) -> Option<Self> {
        let date = NaiveDate::from_epoch_days(i32::try_from(days).ok()?)?;
        has_four_digits(date).then_some(Self(date))
    }

    /// The UTC date of the instant.
    pub fn in_utc(at: UnixMs) -> Option<Self> {
        DaySpan::containing(Zone::UTC, at).map(|span| span.day)
    }

    /// The day `n` days before this one.
    #[must_use]
    pub fn before(self, n: u64) -> Option<Self> {
        self.0.checked_sub_days(Days::new(n)).map(Self)
    }

    /// The day after this one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add_days(Days::new(1)).map(Self)
    }

    /// The first instant at which this day has ended in every zone of the world.
    ///
    /// Source: the westernmost zone in use is UTC-12, so a date ends there 12 hours after it ends in UTC.
    pub fn ends_everywhere(self) -> UnixMs {
        const WESTERNMOST_HOURS: i64 = 12;
        let midnight = self.0.and_time(NaiveTime::MIN).and_utc().timestamp_millis();
        UnixMs(midnight).plus((24 + WESTERNMOST_HOURS) * 3_600_000)
    }
}

/// Whether a period may begin on this date: its end must have four digits too.
pub(super) fn has_four_digits(date: NaiveDate) -> bool {
    (1..=9998).contains(&date.year())
}

/// The first instant whose local date is `date` or later.
pub(super) fn start_of(zone: Zone, date: NaiveDate) -> Option<UnixMs> {
    let midnight = date.and_time(NaiveTime::MIN);
    let first = match zone.from_local_datetime(&midnight) {
        chrono::LocalResult::Single(at) | chrono::LocalResult::Ambiguous(at, _) => at.to_utc(),
        chrono::LocalResult::None => first_instant_after_gap(zone, date),
    };
    Some(UnixMs(first.timestamp_millis()))
}

/// For dates without midnight: finds the instant at which the clock jumps over midnight by bisection.
fn first_instant_after_gap(zone: Zone, date: NaiveDate) -> DateTime<Utc> {
    // Offsets are between -12 h and +14 h; with an hour of margin the jump is between these instants.
    const MARGIN_S: i64 = 15 * 3600;
    let midnight_s = date.and_time(NaiveTime::MIN).and_utc().timestamp();
    let reached = |second: i64| {
        DateTime::from_timestamp(second, 0)
            .is_some_and(|at| (at.naive_utc() + zone.offset_from_utc_datetime(&at.naive_utc()).fix()).date() >= date)
    };
    let (mut before, mut after) = (midnight_s - MARGIN_S, midnight_s + MARGIN_S);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if reached(middle) { after = middle } else { before = middle }
    }
    DateTime::from_timestamp(after, 0).unwrap_or_default()
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // chrono formats years 0 to 9999 in this form; its format strings take ten times as long, hundreds of times per
        // commit.
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::any_zone;
    use proptest::prelude::*;

    fn at(text: &str) -> UnixMs {
        UnixMs(DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis())
    }

    fn span(zone: &str, text: &str) -> (String, i64, i64) {
        let span = DaySpan::containing(zone.parse().expect("zone"), at(text)).expect("in range");
        (span.day.to_string(), span.start.0, (span.end.0 - span.start.0) / 60_000)
    }

    /// Days of unusual length must neither lose nor double an hour.
    #[test]
    fn days_with_clock_changes_have_their_true_length() {
        // New York: 23 h in spring, 25 h in autumn.
        assert_eq!(span("America/New_York", "2026-03-08T12:00:00-04:00").2, 23 * 60);
        assert_eq!(span("America/New_York", "2026-11-01T12:00:00-05:00").2, 25 * 60);
        // Troll moves by two hours.
        assert_eq!(span("Antarctica/Troll", "2025-10-26T12:00:00Z").2, 26 * 60);
        assert_eq!(span("Antarctica/Troll", "2025-03-30T12:00:00Z").2, 22 * 60);
    }

    /// Cairo skips 00:00 to 01:00: the day begins at 01:00 local time, at the instant at which the previous day ends.
    #[test]
    fn a_missing_midnight_begins_the_day_at_the_jump() {
        let (day, start, minutes) = span("Africa/Cairo", "2026-04-24T12:00:00+03:00");
        assert_eq!((day.as_str(), start, minutes), ("2026-04-24", at("2026-04-24T01:00:00+03:00").0, 23 * 60));
    }

    /// Havana has 00:00 twice: the day begins at the first, and has 25 hours.
    #[test]
    fn a_doubled_midnight_begins_the_day_at_the_first() {
        let (day, start, minutes) = span("America/Havana", "2025-11-02T12:00:00-05:00");
        assert_eq!((day.as_str(), start, minutes), ("2025-11-02", at("2025-11-02T00:00:00-04:00").0, 25 * 60));
    }

    /// Santiago moves from midnight back to 23:00: the repeated hour belongs to the old day.
    #[test]
    fn an_hour_repeated_before_midnight_belongs_to_the_old_day() {
        let (day, _, minutes) = span("America/Santiago", "2026-04-04T23:30:00-04:00");
        assert_eq!((day.as_str(), minutes), ("2026-04-04", 25 * 60));
    }

    /// British Columbia and Alberta ended their clock changes in 2026: with older data a day there would begin an hour
    /// late all winter.
    #[test]
    fn rules_of_2026_are_known() {
        assert_eq!(span("America/Vancouver", "2026-11-25T12:00:00Z").1, at("2026-11-25T07:00:00Z").0);
        assert_eq!(span("America/Edmonton", "2026-11-25T12:00:00Z").1, at("2026-11-25T06:00:00Z").0);
    }

    /// Tables of clock changes end, but rules do not: summer time of 2262 must not be lost.
    #[test]
    fn rules_apply_in_every_year_of_the_calendar() {
        let midnight = at("2262-07-16T00:00:00+02:00").0;
        assert_eq!(span("Europe/Berlin", "2262-07-15T22:30:00Z"), ("2262-07-16".to_owned(), midnight, 24 * 60));
        assert_eq!(span("America/New_York", "9998-03-08T12:00:00-04:00").2, 23 * 60);
        let new_year = at("9999-01-01T00:00:00Z");
        for (zone, east_hours) in [("UTC", 0), ("Pacific/Kiritimati", 14), ("Etc/GMT+12", -12)] {
            let zone = zone.parse().expect("zone");
            let first_refused = new_year.plus(-east_hours * 3_600_000);
            let last = DaySpan::containing(zone, first_refused.plus(-1)).expect("in range");
            assert_eq!((last.day.to_string().as_str(), last.end), ("9998-12-31", first_refused));
            assert_eq!(DaySpan::containing(zone, first_refused), None);
            assert_eq!(DaySpan::for_day(zone, last.day.next().expect("a date")), None);
        }
    }

    /// St John's changed clocks at 00:01: the date returned, but the day did not.
    #[test]
    fn a_date_that_returns_does_not_take_its_day_back() {
        assert_eq!(span("America/St_Johns", "2010-11-06T23:30:00-03:30").0, "2010-11-07");
    }

    proptest! {
        /// I7: every instant is in exactly one day of a zone, and the next day begins where this one ends.
        #[test]
        fn days_tile_time(zone in any_zone(), second in 0_i64..4_102_444_800) {
            let instant = UnixMs(second * 1000);
            let day = DaySpan::containing(zone, instant).expect("in range");
            prop_assert!(day.start <= instant && instant < day.end);
            let next = DaySpan::containing(zone, day.end).expect("in range");
            prop_assert_eq!(next.start, day.end);
            prop_assert!(next.day > day.day);
            let last = DaySpan::containing(zone, day.end.plus(-1)).expect("in range");
            prop_assert_eq!(last, day);
            prop_assert_eq!(DaySpan::for_day(zone, day.day), Some(day));
            prop_assert!(day.end <= day.day.ends_everywhere().plus(3_600_000 * 4));
        }
    }
}
