//! The window of a limit: from an hour to a year, or all time.

use super::text_form::{parsed_text_enum, text_enum};

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// How much longer a flag lives than its window. A day lasts up to 26 h at a clock change, and after an outage an alert
/// is raised some hours late.
const FLAG_MARGIN_S: u64 = 6 * HOUR_S;

text_enum! {
    /// The window of a limit. Hours are in UTC, all others in the subject's time zone.
    pub enum Window {
        /// 60 minutes, in UTC.
        Hour = "hour",
        /// A calendar day in the subject's zone.
        Day = "day",
        /// An ISO week in the subject's zone, from Monday.
        Week = "week",
        /// A month in the subject's zone, from its billing day.
        Month = "month",
        /// Three months in the subject's zone, from its billing day and counted from its billing month.
        Quarter = "quarter",
        /// A year in the subject's zone, from the billing day of its billing month.
        Year = "year",
        /// All time: the count never starts over.
        Total = "total",
    }
}

parsed_text_enum!(Window, "a window");

impl Window {
    /// Length of the longest period without clock changes, seconds; `None` for a total.
    pub const fn longest_s(self) -> Option<u64> {
        Some(match self {
            Self::Hour => HOUR_S,
            Self::Day => DAY_S,
            Self::Week => 7 * DAY_S,
            Self::Month => 31 * DAY_S,
            Self::Quarter => 92 * DAY_S,
            Self::Year => 366 * DAY_S,
            Self::Total => return None,
        })
    }

    /// Whether limits of this window have forecasts.
    pub const fn has_forecast(self) -> bool {
        matches!(self, Self::Day | Self::Week | Self::Month)
    }

    /// Lifetime of an alert's flag, seconds: the longest length of the window and 6 h; 30 h for a day. `None` for a
    /// total: its flags live as long as the counter.
    pub fn flag_ttl_s(self) -> Option<u64> {
        self.longest_s().map(|longest_s| longest_s + FLAG_MARGIN_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misread window would make a limit of another length.
    #[test]
    fn only_the_names_of_windows_are_windows() {
        for window in Window::ALL {
            assert_eq!(window.as_str().parse(), Ok(window));
        }
        for bad in ["", "Hour", "hours", "h", "1h", " day", "daily", "yearly", "all", "minute"] {
            let error = bad.parse::<Window>().expect_err(bad).to_string();
            assert!(error.ends_with("use hour, day, week, month, quarter, year or total"), "{error}");
        }
    }

    /// A flag that expires before its period ends would let an alert be raised twice.
    #[test]
    fn flags_outlive_their_window_by_six_hours() {
        let hours = Window::ALL.map(|window| window.flag_ttl_s().map(|ttl_s| ttl_s / 3600));
        let bounded = [7, 30, 7 * 24 + 6, 31 * 24 + 6, 92 * 24 + 6, 366 * 24 + 6].map(Some);
        assert_eq!((&hours[..6], hours[6]), (&bounded[..], None));
        assert!(Window::ALL.is_sorted());
    }
}
