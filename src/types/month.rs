//! Months in UTC, by which the log of alerts is divided.

use std::fmt;

use chrono::{Datelike as _, Months, NaiveDate, NaiveTime};

use super::UnixMs;

/// A month, written `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    /// Its first day.
    first: NaiveDate,
}

impl Month {
    /// The month that contains an instant; `None` outside the years that a date can have.
    pub fn containing(at: UnixMs) -> Option<Self> {
        at.to_utc()?.date_naive().with_day(1).map(|first| Self { first })
    }

    /// The month `n` months earlier; `None` before the first date.
    pub fn before(self, n: u32) -> Option<Self> {
        self.first.checked_sub_months(Months::new(n)).map(|first| Self { first })
    }

    /// The first instant of the next month.
    pub fn end(self) -> UnixMs {
        let next = self.first.checked_add_months(Months::new(1)).unwrap_or(self.first);
        UnixMs(next.and_time(NaiveTime::MIN).and_utc().timestamp_millis())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.first.year(), self.first.month())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_counted_across_years_and_end_at_the_next_one() {
        let february = Month::containing("2028-02-29T23:59:59Z".parse().expect("a time")).expect("a month");
        assert_eq!(february.to_string(), "2028-02");
        assert_eq!(february.end(), "2028-03-01T00:00:00Z".parse().expect("a time"));
        let before: Vec<String> = (1..4).filter_map(|n| february.before(n)).map(|month| month.to_string()).collect();
        assert_eq!(before, ["2028-01", "2027-12", "2027-11"]);
    }
}
