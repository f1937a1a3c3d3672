//! Periods: one window in time, and the instants that bound it.
//!
//! Hours are in UTC. Longer periods are in the subject's zone, and each begins at the first instant of its first date
//! (see [`super::day`]), so periods have no gaps and no overlaps.

use std::borrow::Cow;
use std::fmt;

use chrono::{Datelike, Days, Months, NaiveDate, NaiveTime, Timelike, Weekday};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::zones::Zone;

use super::day::{self, DaySpan, has_four_digits};
use super::text_form::parsed_text;
use super::timestamp::Rfc3339;
use super::{BillingDay, BillingStart, Day, UnixMs, Window};

const HOUR_MS: i64 = 3_600_000;

/// The first instant of the only period of a total: 0001-01-01 in UTC.
const TOTAL_START: UnixMs = UnixMs(-62_135_596_800_000);
/// Its end, 9999-01-01 in UTC: no other period begins later.
const TOTAL_END: UnixMs = UnixMs(253_370_764_800_000);

/// One window in time, ordered by window and then by time.
///
/// | window | text |
/// |---|---|
/// | hour | `2026-11-21T14Z` |
/// | day | `2026-11-21` |
/// | week | `2026-W47` |
/// | month | `2026-11`; if it begins on another day than the first, its start date: `2026-11-15M` |
/// | quarter | `2026-Q4`; if it is no quarter of the calendar, its start date: `2026-11-15Q` |
/// | year | `2026`; if it begins on another day than 1 January, its start date: `2026-03-15Y` |
/// | total | `all` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period {
    window: Window,
    /// The start date of the period.
    first: NaiveDate,
    /// The hour on that date, in UTC; 0 for other windows.
    hour: u8,
}

parsed_text!(Period, PeriodError);

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9]{4}(-([0-9]{2}-[0-9]{2}(T[0-9]{2}Z|[MQY])?|W[0-9]{2}|Q[1-4]|[0-9]{2}))?|all)$",
            "description": "One window in time: `2026-11-21T14Z`, `2026-11-21`, `2026-W47`, `2026-11`, `2026-Q4`, `2026`, or \
                `all`. A month, quarter or year that begins at another date than in the calendar is `2026-11-15M`, \
                `2026-11-15Q` or `2026-03-15Y`.",
        })
    }
}

/// The text is not a period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a period: write 2026-11-21T14Z (hour), 2026-11-21 (day), 2026-W47 (week), 2026-11 or 2026-11-15M \
     (month), 2026-Q4 or 2026-11-15Q (quarter), 2026 or 2026-03-15Y (year), all (total)"
)]
pub struct PeriodError(String);

/// A period of one zone and billing start, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodSpan {
    /// The period.
    pub period: Period,
    /// Its first instant.
    pub start: UnixMs,
    /// The first instant of the next period. For a total, the end of the calendar.
    pub end: UnixMs,
}

impl PeriodSpan {
    /// The period that contains the instant `at`. `zone` and `billing` matter only if the window depends on them.
    ///
    /// `None` if the period does not begin in the years 0001 to 9998, in which dates have four digits.
    pub fn containing(window: Window, zone: Zone, billing: impl Into<BillingStart>, at: UnixMs) -> Option<Self> {
        match window {
            Window::Hour => return Self::hour_containing(at),
            Window::Total => {
                return Some(Self { period: Period::ALL_TIME, start: TOTAL_START, end: TOTAL_END });
            }
            _ => {}
        }
        let day = DaySpan::containing(zone, at)?;
        let Day(date) = day.day;
        let (first, after) = match window {
            Window::Hour | Window::Day | Window::Total => return Some(day.into()),
            Window::Week => {
                let monday = date.week(Weekday::Mon).checked_first_day()?;
                (monday, monday.checked_add_days(Days::new(7))?)
            }
            Window::Month | Window::Quarter | Window::Year => {
                let (months, billing) = (months_of(window), billing.into());
                // Number of months from the latest month in which a period begins to the month of `date`.
                let since = (date.month() + 12 - u32::from(billing.month.get())) % months;
                let latest = date.with_day(1)?.checked_sub_months(Months::new(since))?;
                let first = match billing_date(latest, billing.day)? {
                    first if first > date => {
                        billing_date(latest.checked_sub_months(Months::new(months))?, billing.day)?
                    }
                    first => first,
                };
                (first, billing_date(first.with_day(1)?.checked_add_months(Months::new(months))?, billing.day)?)
            }
        };
        let period = Period { window, first, hour: 0 };
        let (start, end) = (day::start_of(zone, first)?, day::start_of(zone, after)?);
        has_four_digits(first).then_some(Self { period, start, end })
    }

    fn hour_containing(at: UnixMs) -> Option<Self> {
        let start = UnixMs(at.0.div_euclid(HOUR_MS).checked_mul(HOUR_MS)?);
        let begins = start.to_utc()?;
        let period =
            Period { window: Window::Hour, first: begins.date_naive(), hour: u8::try_from(begins.hour()).ok()? };
        has_four_digits(period.first).then_some(Self { period, start, end: start.plus(HOUR_MS) })
    }

    /// When the count starts over; `None` for a total.
    pub fn resets_at(&self) -> Option<Rfc3339> {
        self.period.has_end().then_some(Rfc3339(self.end))
    }

    /// Whether the instant is in this period.
    pub fn contains(&self, at: UnixMs) -> bool {
        self.start <= at && at < self.end
    }
}

impl Period {
    /// The only period of a total.
    pub const ALL_TIME: Self = Self { window: Window::Total, first: NaiveDate::MIN, hour: 0 };

    /// Whether the count of the period starts over: false for a total.
    pub fn has_end(self) -> bool {
        self.window != Window::Total
    }

    /// Parses the text that `Display` writes. The text implies the window.
    ///
    /// # Errors
    ///
    /// [`PeriodError`] for any other text, and for dates, hours and weeks that do not exist.
    pub fn parse(text: &str) -> Result<Self, PeriodError> {
        let parsed = if text.is_ascii() { Self::from_ascii(text) } else { None };
        parsed.ok_or_else(|| PeriodError(text.to_owned()))
    }

    fn from_ascii(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self::ALL_TIME);
        }
        let date = |text: &str| Day::parse(text).ok().map(|day| day.0);
        let (window, first, hour) = match text.len() {
            14 => {
                let (day, hour) = text.strip_suffix('Z')?.split_once('T')?;
                (Window::Hour, date(day)?, digits(hour).filter(|hour| *hour < 24)?)
            }
            4 => (Window::Year, date(&format!("{text}-01-01"))?, 0),
            10 => (Window::Day, date(text)?, 0),
            8 => {
                let (year, week) = text.split_once("-W")?;
                (Window::Week, NaiveDate::from_isoywd_opt(digits(year)?.into(), digits(week)?.into(), Weekday::Mon)?, 0)
            }
            7 => match text.split_once("-Q") {
                Some((year, quarter)) => {
                    let month = quarter.parse::<u8>().ok().filter(|quarter| (1..=4).contains(quarter))? * 3 - 2;
                    (Window::Quarter, date(&format!("{year}-{month:02}-01"))?, 0)
                }
                None => (Window::Month, date(&format!("{text}-01"))?, 0),
            },
            11 => {
                let window = match text.as_bytes()[10] {
                    b'M' => Window::Month,
                    b'Q' => Window::Quarter,
                    b'Y' => Window::Year,
                    _ => return None,
                };
                // A period of the calendar has only the shorter text: no period has two texts.
                (window, date(&text[..10]).filter(|first| !begins_with_calendar(window, *first))?, 0)
            }
            _ => return None,
        };
        has_four_digits(first).then_some(Self { window, first, hour: u8::try_from(hour).ok()? })
    }

    /// The window of the period.
    pub const fn window(self) -> Window {
        self.window
    }

    /// The day, if the period is a day.
    pub fn day(self) -> Option<Day> {
        (self.window == Window::Day).then_some(Day(self.first))
    }

    /// The first instant of the period in this zone; `None` for a total, and at the end of the calendar.
    pub fn starts_in(self, zone: Zone) -> Option<UnixMs> {
        match self.window {
            Window::Total => None,
            Window::Hour => Some(UnixMs(utc_ms(self.first) + i64::from(self.hour) * HOUR_MS)),
            Window::Day | Window::Week | Window::Month | Window::Quarter | Window::Year => {
                day::start_of(zone, self.first)
            }
        }
    }

    /// Every period that overlaps the dates from `first` to `last`, for every billing start. Hours are those of these
    /// dates in UTC.
    pub fn touching(first: Day, last: Day) -> Vec<Self> {
        let dates = |back: u64| {
            let Day(begin) = first.before(back).unwrap_or(first);
            begin.iter_days().take_while(move |date| *date <= last.0).filter(|date| has_four_digits(*date))
        };
        let of = |window, first| Self { window, first, hour: 0 };
        let hours = dates(0).flat_map(|first| (0..24).map(move |hour| Self { window: Window::Hour, first, hour }));
        let days = dates(0).map(|first| of(Window::Day, first));
        let weeks = dates(6).filter(|first| first.weekday() == Weekday::Mon).map(|first| of(Window::Week, first));
        // The longest period contains dates until its length minus one day after its first date.
        let billed = [Window::Month, Window::Quarter, Window::Year].into_iter().flat_map(|window| {
            dates(window.longest_s().map_or(0, |longest_s| longest_s / 86_400 - 1)).map(move |first| of(window, first))
        });
        hours.chain(days).chain(weeks).chain(billed).chain([Self::ALL_TIME]).collect()
    }

    /// The first instant at which this period has ended in every zone and for every billing start.
    pub fn ends_everywhere(self) -> UnixMs {
        let last = match self.window {
            Window::Total => return TOTAL_END,
            Window::Hour => return UnixMs(utc_ms(self.first) + (i64::from(self.hour) + 1) * HOUR_MS),
            Window::Day => Some(self.first),
            Window::Week => self.first.checked_add_days(Days::new(6)),
            Window::Month | Window::Quarter | Window::Year => last_of_longest(self.first, months_of(self.window)),
        };
        // A period begins within four-digit years, far from the end of chrono's calendar.
        Day(last.unwrap_or(self.first)).ends_everywhere()
    }
}

/// The number of months in a period; 0 for windows that are not made of months.
const fn months_of(window: Window) -> u32 {
    match window {
        Window::Hour | Window::Day | Window::Week | Window::Total => 0,
        Window::Month => 1,
        Window::Quarter => 3,
        Window::Year => 12,
    }
}

/// Whether a month, quarter or year that begins on this date is one of the calendar.
fn begins_with_calendar(window: Window, first: NaiveDate) -> bool {
    first.day() == 1 && first.month0().is_multiple_of(months_of(window).max(1))
}

/// The last date of the longest period of this many months that begins on `first`: one that begins on the last day of a
/// calendar month may belong to a billing day that the calendar month lacks.
fn last_of_longest(first: NaiveDate, months: u32) -> Option<NaiveDate> {
    let billing_day = if first.succ_opt()?.day() == 1 { 31 } else { u8::try_from(first.day()).ok()? };
    let next = first.with_day(1)?.checked_add_months(Months::new(months))?;
    billing_date(next, BillingDay::new(billing_day)?)?.pred_opt()
}

/// The billing day in the month of `date`, or the last day if the month has no such day.
fn billing_date(date: NaiveDate, billing_day: BillingDay) -> Option<NaiveDate> {
    let last = date.with_day(1)?.checked_add_months(Months::new(1))?.pred_opt()?;
    date.with_day(last.day().min(billing_day.get().into()))
}

/// Midnight in UTC.
fn utc_ms(date: NaiveDate) -> i64 {
    date.and_time(NaiveTime::MIN).and_utc().timestamp_millis()
}

/// Parses two or four digits.
fn digits(text: &str) -> Option<u16> {
    let legal = matches!(text.len(), 2 | 4) && text.bytes().all(|byte| byte.is_ascii_digit());
    if legal { text.parse().ok() } else { None }
}

impl From<DaySpan> for PeriodSpan {
    fn from(day: DaySpan) -> Self {
        Self { period: day.day.into(), start: day.start, end: day.end }
    }
}

impl From<Day> for Period {
    fn from(day: Day) -> Self {
        Self { window: Window::Day, first: day.0, hour: 0 }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not with format strings of chrono: they take ten times as long, hundreds of times per commit.
        let first = self.first;
        match self.window {
            Window::Total => f.write_str("all"),
            Window::Hour => write!(f, "{first}T{:02}Z", self.hour),
            Window::Day => fmt::Display::fmt(&first, f),
            Window::Week => write!(f, "{:04}-W{:02}", first.iso_week().year(), first.iso_week().week()),
            window if begins_with_calendar(window, first) => match window {
                Window::Quarter => write!(f, "{:04}-Q{}", first.year(), first.month0() / 3 + 1),
                Window::Year => write!(f, "{:04}", first.year()),
                _ => write!(f, "{:04}-{:02}", first.year(), first.month()),
            },
            Window::Quarter => write!(f, "{first}Q"),
            Window::Year => write!(f, "{first}Y"),
            Window::Month => write!(f, "{first}M"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::any_zone;
    use chrono::DateTime;
    use proptest::prelude::*;

    fn at(text: &str) -> UnixMs {
        UnixMs(DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis())
    }

    fn billing(month: u8, day: u8) -> BillingStart {
        let month = super::super::BillingMonth::new(month).expect("in range");
        BillingStart { month, day: BillingDay::new(day).expect("in range") }
    }

    fn span(window: Window, zone: &str, billing_day: u8, text: &str) -> PeriodSpan {
        let billing = billing(1, billing_day);
        PeriodSpan::containing(window, zone.parse().expect("zone"), billing, at(text)).expect("in range")
    }

    fn billed(window: Window, (month, day): (u8, u8), text: &str) -> (String, UnixMs) {
        let span = PeriodSpan::containing(window, Zone::UTC, billing(month, day), at(text)).expect("in range");
        (span.period.to_string(), span.end)
    }

    fn month(billing_day: u8, text: &str) -> (String, UnixMs) {
        let span = span(Window::Month, "UTC", billing_day, text);
        (span.period.to_string(), span.end)
    }

    /// These texts are parts of keys, alert ids and receivers' databases.
    #[test]
    fn each_window_writes_its_periods_in_its_own_form() {
        let at = "2026-11-21T23:30:00+09:00";
        let texts = Window::ALL.map(|window| span(window, "Asia/Tokyo", 1, at).period.to_string());
        assert_eq!(texts, ["2026-11-21T14Z", "2026-11-21", "2026-W47", "2026-11", "2026-Q4", "2026", "all"]);
        assert_eq!(span(Window::Quarter, "Asia/Tokyo", 15, at).period.to_string(), "2026-10-15Q");
        assert_eq!(span(Window::Year, "Asia/Tokyo", 22, at).period.to_string(), "2026-01-22Y");
        assert_eq!(span(Window::Month, "Asia/Tokyo", 15, at).period.to_string(), "2026-11-15M");
        assert_eq!(span(Window::Month, "Asia/Tokyo", 22, at).period.to_string(), "2026-10-22M");
    }

    /// A billing day that a month lacks must neither skip that month nor move its start into the next month.
    #[test]
    fn a_month_without_its_billing_day_begins_on_its_last_one() {
        assert_eq!(month(31, "2026-02-27T23:59:59Z"), ("2026-01-31M".to_owned(), at("2026-02-28T00:00:00Z")));
        assert_eq!(month(31, "2026-02-28T00:00:00Z"), ("2026-02-28M".to_owned(), at("2026-03-31T00:00:00Z")));
        assert_eq!(month(30, "2028-02-29T00:00:00Z"), ("2028-02-29M".to_owned(), at("2028-03-30T00:00:00Z")));
        assert_eq!(month(31, "2026-04-30T00:00:00Z"), ("2026-04-30M".to_owned(), at("2026-05-31T00:00:00Z")));
        // Billing days 28 to 31 share this text: it ends with the longest of them.
        let ends = Period::parse("2026-02-28M").expect("a month").ends_everywhere();
        assert_eq!(ends, at("2026-03-31T00:00:00-12:00"));
        assert_eq!(month(15, "2027-01-14T23:59:59Z"), ("2026-12-15M".to_owned(), at("2027-01-15T00:00:00Z")));
    }

    /// A quarter or year of another billing month must begin and end with that month, also across New Year.
    #[test]
    fn quarters_and_years_begin_in_their_billing_month() {
        let told = |text: &str, end: &str| (text.to_owned(), at(end));
        let quarter = |billing, text| billed(Window::Quarter, billing, text);
        assert_eq!(quarter((1, 1), "2026-12-31T23:59:59Z"), told("2026-Q4", "2027-01-01T00:00:00Z"));
        // The quarters of a fiscal year from July are those of the calendar.
        assert_eq!(quarter((7, 1), "2026-11-21T00:00:00Z"), told("2026-Q4", "2027-01-01T00:00:00Z"));
        assert_eq!(quarter((2, 1), "2026-01-31T00:00:00Z"), told("2025-11-01Q", "2026-02-01T00:00:00Z"));
        assert_eq!(quarter((11, 15), "2026-11-14T23:59:59Z"), told("2026-08-15Q", "2026-11-15T00:00:00Z"));
        assert_eq!(quarter((11, 15), "2026-11-15T00:00:00Z"), told("2026-11-15Q", "2027-02-15T00:00:00Z"));
        // Days 29 to 31 of the billing month begin on the last day of February.
        assert_eq!(quarter((11, 30), "2027-03-01T00:00:00Z"), told("2027-02-28Q", "2027-05-30T00:00:00Z"));
        let year = |billing, text| billed(Window::Year, billing, text);
        assert_eq!(year((1, 1), "2026-01-01T00:00:00Z"), told("2026", "2027-01-01T00:00:00Z"));
        assert_eq!(year((3, 15), "2026-03-14T23:59:59Z"), told("2025-03-15Y", "2026-03-15T00:00:00Z"));
        assert_eq!(year((2, 29), "2028-02-28T23:59:59Z"), told("2027-02-28Y", "2028-02-29T00:00:00Z"));
        let ends = |text: &str| Period::parse(text).expect("a period").ends_everywhere();
        assert_eq!(ends("2027-02-28Y"), at("2028-02-29T00:00:00-12:00"));
        assert_eq!(ends("2026-Q4"), at("2027-01-01T00:00:00-12:00"));
    }

    /// The ISO year of a week differs from the calendar year around New Year: the wrong year would join two weeks a
    /// year apart.
    #[test]
    fn a_week_is_named_by_its_iso_year() {
        assert_eq!(span(Window::Week, "UTC", 1, "2027-01-03T23:00:00Z").period.to_string(), "2026-W53");
        assert_eq!(span(Window::Week, "UTC", 1, "2024-12-30T00:00:00Z").period.to_string(), "2025-W01");
    }

    /// Half-hour zones must not shift hours: each hour is an hour of UTC for every subject.
    #[test]
    fn hours_are_those_of_utc() {
        let hour = span(Window::Hour, "Asia/Kolkata", 9, "2026-11-21T14:29:59Z");
        assert_eq!((hour.start, hour.end), (at("2026-11-21T14:00:00Z"), at("2026-11-21T15:00:00Z")));
        assert_eq!(hour.period.ends_everywhere(), hour.end);
    }

    /// If the first midnight of a month is missing or doubled, the month begins where its first day begins.
    #[test]
    fn a_month_begins_with_its_first_day() {
        // Asuncion jumped over the midnight of 1 October 2023.
        let month = span(Window::Month, "America/Asuncion", 1, "2023-10-20T12:00:00Z");
        assert_eq!(month.start, at("2023-10-01T01:00:00-03:00"));
        // Havana fell back over the midnight of Sunday, 1 November 2020.
        let month = span(Window::Month, "America/Havana", 1, "2020-11-20T12:00:00Z");
        assert_eq!(month.start, at("2020-11-01T00:00:00-04:00"));
        // Samoa had no 30 December 2011.
        let month = span(Window::Month, "Pacific/Apia", 30, "2012-01-20T12:00:00Z");
        assert_eq!((month.period.to_string().as_str(), month.start), ("2011-12-30M", at("2011-12-31T00:00:00+14:00")));
    }

    /// Two texts of one period would be two counters; a text of another window would be counted in the wrong place.
    #[test]
    fn what_is_not_exactly_a_period_is_refused() {
        let bad = "|202|ALL|all |2026-11-21T24Z|2026-11-21T14|2026-11-21t14Z|2026-11-21T4ZZ|2026-11-21T+4Z|2026-02-30|2026-11-21 |\
                   +2026-1-21|20026-1-21|2026-W54|2025-W53|2026-W00|2026-W7|2026-w47|026-W047|2026-13|2026-00|2026-1|\
                   0000-12|2026-11-01M|2026-02-29M|2026-11-15m|9999-01|2026-11-٣|2026-Q0|2026-Q5|2026-q1|2026-Q+|2026-10-01Q|\
                   2026-01-01Y|2026-02-30Y|2026-03-15y|2026-11-15D|0000|9999|+202";
        for bad in bad.split('|') {
            assert!(Period::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// A total must hold every event, and no rule may take its end for the end of a period.
    #[test]
    fn a_total_has_one_period_without_an_end() {
        let [early, late] = ["1970-01-01T00:00:00Z", "9998-12-31T23:59:59Z"]
            .map(|text| PeriodSpan::containing(Window::Total, Zone::UTC, BillingStart::default(), at(text)));
        assert_eq!(early, late);
        let total = early.expect("every instant is in it");
        assert!(total.contains(at("1970-01-01T00:00:00Z")) && total.contains(at("9998-12-31T23:59:59Z")));
        assert_eq!((total.resets_at(), total.period.starts_in(Zone::UTC)), (None, None));
        let today = Day::parse("2026-11-21").expect("a date");
        assert!(Period::touching(today, today).contains(&Period::ALL_TIME));
        assert_eq!([TOTAL_START, TOTAL_END], [at("0001-01-01T00:00:00Z"), at("9999-01-01T00:00:00Z")]);
    }

    /// The worker holds millions of rows, each with its period.
    #[test]
    fn a_period_is_small() {
        assert_eq!(size_of::<Option<Period>>(), 8);
    }

    proptest! {
        /// Every instant is in exactly one period of a window, and the next period begins where this one ends.
        #[test]
        fn periods_tile_time(zone in any_zone(), window in 0..Window::Total as usize, month in 1..=12_u8, day in 1..=31_u8,
                             ms in 0_i64..4_102_444_800_000) {
            let window = Window::ALL[window];
            let containing = |at| PeriodSpan::containing(window, zone, billing(month, day), at).expect("in range");
            let (instant, span) = (UnixMs(ms), containing(UnixMs(ms)));
            prop_assert!(span.contains(instant));
            prop_assert_eq!(span, containing(span.start));
            prop_assert_eq!(span, containing(span.end.plus(-1)));
            let next = containing(span.end);
            prop_assert_eq!(next.start, span.end);
            prop_assert!(next.period > span.period);
            // Four zones were once further west than any zone today.
            prop_assert!(span.end <= span.period.ends_everywhere().plus(HOUR_MS * 4));
            prop_assert_eq!(span.period.starts_in(zone), Some(span.start));
            // A zone's date is at most one day from that of UTC.
            let utc = Day::in_utc(instant).expect("in range");
            let near = Period::touching(utc.before(1).expect("in range"), utc.next().expect("in range"));
            prop_assert!(near.contains(&span.period), "{:?}", span);
            let longest_ms = i64::try_from(window.flag_ttl_s().expect("an end")).expect("small") * 1000;
            prop_assert!(span.end.0 - span.start.0 < longest_ms, "{:?}", span);
        }

        /// The text alone determines the period and its window; the text of a day is its date.
        #[test]
        fn texts_read_back(window in 0..Window::ALL.len(), month in 1..=12_u8, day in 1..=31_u8,
                           ms in -62_000_000_000_000_i64..253_000_000_000_000) {
            let (window, billing) = (Window::ALL[window], billing(month, day));
            let period = PeriodSpan::containing(window, Zone::UTC, billing, UnixMs(ms)).expect("in range").period;
            let text = period.to_string();
            prop_assert_eq!(Period::parse(&text), Ok(period));
            prop_assert_eq!(period.window(), window);
            let day = Day::in_utc(UnixMs(ms)).expect("in range");
            prop_assert_eq!(period.day(), (window == Window::Day).then_some(day));
            if window == Window::Day {
                prop_assert_eq!((text, period), (day.to_string(), day.into()));
            }
        }

        /// A day or a longer period begins together with a day; another bound would split that day's count.
        #[test]
        fn longer_periods_are_made_of_days(zone in any_zone(), window in 1..Window::Total as usize, month in 1..=12_u8,
                                           day in 1..=31_u8, ms in 0_i64..4_102_444_800_000) {
            let billing = billing(month, day);
            let span = PeriodSpan::containing(Window::ALL[window], zone, billing, UnixMs(ms)).expect("in range");
            prop_assert_eq!(DaySpan::containing(zone, span.start).map(|day| day.start), Some(span.start));
            prop_assert_eq!(DaySpan::containing(zone, span.end).map(|day| day.start), Some(span.end));
        }

        /// No value read from Redis may cause a panic, and only a period's own text is accepted.
        #[test]
        fn only_periods_are_read(text in "(00|19|20|99)[0-9][0-9](-(W[0-9]{2}|Q[0-5]|[01][0-9](-[0-3][0-9](T[0-2][0-9]Z|[MQY])?)?))?") {
            if let Ok(period) = Period::parse(&text) {
                prop_assert_eq!(period.to_string(), text);
            }
        }
    }
}
