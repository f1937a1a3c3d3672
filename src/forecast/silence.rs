//! The rule for a subject that used something on most days, and then nothing. Pure.

use std::collections::BTreeMap;

use super::profile::UsageProfile;
use crate::types::{Day, DaySpan, UnixMs};

/// Number of days before a silence that decide whether usage was regular.
pub const DAYS_BEFORE: u64 = 14;
/// On so many of them something must have been used.
const USED_DAYS_MIN: usize = 12;
const HOURS_OF_A_DAY: i64 = 24;

/// Whether a subject used something on most days until this one.
pub fn is_regular(days: &BTreeMap<Day, u64>, last: Day) -> bool {
    let used = |day: Day| days.get(&day).is_some_and(|units| *units > 0);
    (0..DAYS_BEFORE).filter_map(|back| last.before(back)).filter(|day| used(*day)).count() >= USED_DAYS_MIN
}

/// The end of the last hour with usage, given the last day with usage in the subject's zone; the beginning of the day
/// if its hours are unknown.
pub fn silent_since(profile: &UsageProfile, last: &DaySpan) -> UnixMs {
    let hours = profile.today.units();
    let used = hours.iter().rposition(|units| *units > 0.0).map_or(0, |hour| hour as i64 + 1);
    last.start.plus((last.end.0 - last.start.0) * used / HOURS_OF_A_DAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::Zone;

    fn day(text: &str) -> Day {
        Day::parse(text).expect("a date")
    }

    #[test]
    fn twelve_of_fourteen_days_are_regular() {
        let last = day("2026-11-20");
        let mut days: BTreeMap<Day, u64> = (0..DAYS_BEFORE)
            .map(|back| (last.before(back).expect("a day"), u64::from(back != 3 && back != 9)))
            .collect();
        assert!(is_regular(&days, last));
        assert!(!is_regular(&days, day("2026-11-21")), "the day itself and one more without usage");
        days.remove(&day("2026-11-07"));
        assert!(!is_regular(&days, last), "eleven days");
    }

    #[test]
    fn a_silence_begins_after_the_last_hour_with_usage() {
        let span = DaySpan::for_day(Zone::UTC, day("2026-11-20")).expect("a day");
        let mut profile = UsageProfile::beginning(0);
        assert_eq!(silent_since(&profile, &span), span.start, "its hours are unknown");
        profile.today.set(0, 5);
        profile.today.set(17, 1);
        assert_eq!(silent_since(&profile, &span), span.start.plus(18 * 3_600_000));
        profile.today.set(23, 1);
        assert_eq!(silent_since(&profile, &span), span.end);
    }
}
