//! Over what a limit counts: an hour, a day, a week or a month.

use super::text_form::{parsed_text_enum, text_enum};

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// How much longer a flag lives than its window. A day lasts up to 26 h where the clock changes, and an alert is raised
/// up to some hours late after an outage.
const FLAG_MARGIN_S: u64 = 6 * HOUR_S;

text_enum! {
    /// Over what a limit counts. Hours are of UTC; days, weeks and months of the subject's time zone.
    pub enum Window {
        /// 60 minutes, of UTC.
        Hour = "hour",
        /// A calendar day of the subject's zone.
        Day = "day",
        /// An ISO week of the subject's zone, which begins on Monday.
        Week = "week",
        /// A month of the subject's zone, which begins on its billing day.
        Month = "month",
    }
}

parsed_text_enum!(Window, "a window");

impl Window {
    /// How long the longest period lasts that no change of a clock makes longer, in seconds.
    pub const fn longest_s(self) -> u64 {
        match self {
            Self::Hour => HOUR_S,
            Self::Day => DAY_S,
            Self::Week => 7 * DAY_S,
            Self::Month => 31 * DAY_S,
        }
    }

    /// How long the flag of an alert of this window lives, in seconds: the window's longest length and 6 h. 30 h for a
    /// day.
    pub const fn flag_ttl_s(self) -> u64 {
        self.longest_s() + FLAG_MARGIN_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window that is written in another way would make a limit of another length than was meant.
    #[test]
    fn only_the_four_names_are_windows() {
        for window in Window::ALL {
            assert_eq!(window.as_str().parse(), Ok(window));
        }
        for bad in ["", "Hour", "hours", "h", "1h", " day", "daily", "year", "minute"] {
            let error = bad.parse::<Window>().expect_err(bad).to_string();
            assert!(error.ends_with("use hour, day, week or month"), "{error}");
        }
    }

    /// A flag that ends before its period would let an alert be raised twice in it.
    #[test]
    fn flags_outlive_their_window_by_six_hours() {
        let hours = Window::ALL.map(|window| window.flag_ttl_s() / 3600);
        assert_eq!(hours, [7, 30, 7 * 24 + 6, 31 * 24 + 6]);
        assert!(Window::ALL.is_sorted());
    }
}
