//! How a profile follows the counters of its subject from hour to hour, and learns from each day once.
//!
//! The profile stores the count that it has seen, and not only what was added: if the same counter is read again, or an
//! older profile is written again after a crash, nothing is counted twice.

use chrono::Weekday;

use super::profile::{DayHours, HOURS, UsageProfile};

/// A subject that used nothing for more days than this begins anew.
pub const IDLE_DAYS_MAX: i32 = 35;

/// The counter of a day at some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DayCount {
    /// Days since 1970-01-01 in the subject's zone.
    pub day: i32,
    /// The hour of the day at which counters were read before this time; 0 if that was before the day.
    pub since: f64,
    /// The hour at which the counter was read: 24 after the day, as in [`super::DayUsage`].
    pub hour: f64,
    /// The count.
    pub units: u64,
}

impl UsageProfile {
    /// The profile of a subject that is observed for the first time on this day. The day teaches nothing, because it
    /// may have begun before.
    pub fn beginning(day: i32) -> Self {
        let mut profile = Self::new(&[1.0 / HOURS as f64; HOURS]);
        profile.today = DayHours::new(day);
        profile
    }

    /// The day whose hours it stores.
    pub const fn today(&self) -> i32 {
        self.today.day
    }

    /// Whether a count tells nothing new.
    pub fn knows(&self, day: i32, units: u64) -> bool {
        day == self.today.day - 1 || day == self.today.day && units == self.counted
    }

    /// Takes a count: spreads what is new over the hours since the last time. If a day is over, learns from it first.
    /// Repeatable.
    pub fn observe(&mut self, count: DayCount) {
        if self.knows(count.day, count.units) {
            // The day before was learned: its late events, or those of a zone that was changed, come too late.
            return;
        }
        if count.day < self.today.day {
            // The server's clock showed a later day and was set back.
            self.begin(count.day, true);
        }
        self.close_before(count.day);
        let DayCount { since, hour, units, .. } = count;
        let from = since.clamp(0.0, hour);
        let change = units as f64 - self.counted as f64;
        let mut hours = self.today.units();
        if change > 0.0 && hour > from {
            for (at, of_hour) in hours.iter_mut().enumerate() {
                let begins = at as f64;
                let overlap = (hour.min(begins + 1.0) - from.max(begins)).max(0.0);
                *of_hour += change * overlap / (hour - from);
            }
        } else if change > 0.0 {
            hours[(hour as usize).min(HOURS - 1)] += change;
        } else {
            take_back(&mut hours, -change);
        }
        hours.iter().enumerate().for_each(|(at, of_hour)| self.today.set_units(at, *of_hour));
        self.counted = units;
    }

    /// Learns from the days before this one that are not learned yet. A day without a count is one without usage.
    pub fn close_before(&mut self, day: i32) {
        let today = self.today.day;
        if day <= today {
            return;
        }
        if day.saturating_sub(today) > IDLE_DAYS_MAX {
            *self = Self::beginning(day);
            return;
        }
        if !self.is_partial {
            let hours = self.today;
            self.learn(weekday(today), &hours);
        }
        for idle in today + 1..day {
            if self.days() > 0 {
                self.learn(weekday(idle), &DayHours::new(idle));
            }
        }
        self.begin(day, false);
    }

    fn begin(&mut self, day: i32, is_partial: bool) {
        (self.today, self.counted, self.is_partial) = (DayHours::new(day), 0, is_partial);
    }
}

/// Takes units that were given back from the newest hours.
fn take_back(hours: &mut [f64; HOURS], mut units: f64) {
    for of_hour in hours.iter_mut().rev() {
        let taken = units.min(*of_hour);
        *of_hour -= taken;
        units -= taken;
    }
}

/// The weekday of a day, as days since 1970-01-01.
pub fn weekday(day: i32) -> Weekday {
    // 1970-01-01 was a Thursday.
    let from_monday = (i64::from(day) + 3).rem_euclid(7);
    Weekday::try_from(u8::try_from(from_monday).unwrap_or_default()).unwrap_or(Weekday::Mon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: i32 = 20_785;

    fn count(day: i32, hour: u32, units: u64) -> DayCount {
        let hour = f64::from(hour);
        DayCount { day, since: hour - 1.0, hour, units }
    }

    /// A profile after some days of these counts at full hours.
    fn observed(days: &[Vec<u64>]) -> UsageProfile {
        let mut profile = UsageProfile::beginning(DAY);
        for (day, counts) in (DAY + 1..).zip(days) {
            for (hour, units) in (1..).zip(counts) {
                profile.observe(count(day, hour, *units));
            }
        }
        profile
    }

    #[test]
    fn a_weekday_is_that_of_the_calendar() {
        // 2026-11-28 is a Saturday.
        assert_eq!((weekday(0), weekday(20_785), weekday(-1)), (Weekday::Thu, Weekday::Sat, Weekday::Wed));
    }

    #[test]
    fn hours_are_those_in_which_the_units_were_used() {
        let mut profile = UsageProfile::beginning(DAY);
        profile.observe(count(DAY, 9, 10));
        profile.observe(count(DAY, 10, 34));
        // The daemon was away from 10:00 until 14:30.
        profile.observe(DayCount { day: DAY, since: 10.0, hour: 14.5, units: 79 });
        // Late events arrive after the day.
        profile.observe(DayCount { day: DAY, since: 24.0, hour: 24.0, units: 80 });
        let hours = profile.today.units();
        assert_eq!((hours[8], hours[9], hours[10], hours[13], hours[14]), (10.0, 24.0, 10.0, 10.0, 5.0));
        assert_eq!((hours[23], hours.iter().sum::<f64>()), (1.0, 80.0));
        // A credit.
        profile.observe(count(DAY, 15, 40));
        assert_eq!(profile.today.units().iter().sum::<f64>(), 40.0);
    }

    /// After a crash the same counters are read again, and an old count may come once more from another daemon.
    #[test]
    fn a_day_is_learned_once() {
        let mut profile = observed(&[vec![5; 24], vec![5; 24]]);
        assert_eq!(profile.days(), 1);
        let before = profile.clone();
        profile.observe(count(DAY + 2, 24, 5));
        profile.observe(count(DAY + 1, 24, 9));
        assert_eq!(profile, before, "yesterday is learned already");
        profile.observe(count(DAY + 3, 1, 1));
        assert_eq!((profile.days(), profile.today()), (2, DAY + 3));
    }

    #[test]
    fn days_without_usage_count_and_the_first_day_does_not() {
        let mut profile = UsageProfile::beginning(DAY);
        profile.observe(count(DAY, 20, 100));
        profile.observe(count(DAY + 1, 1, 100));
        assert_eq!(profile.days(), 0, "the first day may have begun before");
        profile.observe(count(DAY + 4, 1, 100));
        assert_eq!(profile.days(), 3);
        profile.observe(count(DAY + 5 + IDLE_DAYS_MAX, 1, 7));
        assert_eq!((profile.days(), profile.counted), (0, 7), "nothing is known after a long time");
    }

    /// After a clock jumps ahead and back, the profile must not learn from one day twice.
    #[test]
    fn a_clock_that_was_set_back_begins_a_day_that_teaches_nothing() {
        let mut profile = observed(&[vec![5; 24], vec![5; 24], vec![5; 24]]);
        profile.observe(count(DAY + 9, 3, 5));
        let days = profile.days();
        profile.observe(count(DAY + 4, 12, 5));
        assert_eq!((profile.today(), profile.days()), (DAY + 4, days));
        profile.observe(count(DAY + 5, 12, 5));
        assert_eq!(profile.days(), days);
    }

    proptest! {
        /// Whatever comes in, in any order: numbers stay finite, the profile can be stored, and a repeated count
        /// changes nothing.
        #[test]
        fn any_counts_leave_a_usable_profile(
            counts in proptest::collection::vec((-3_i32..60, 0_f64..24.0, 0_f64..24.0, any::<u64>()), 0..60)
        ) {
            let mut profile = UsageProfile::beginning(DAY);
            for (day, since, hour, units) in counts {
                let count = DayCount { day: DAY + day, since, hour, units };
                profile.observe(count);
                prop_assert!(UsageProfile::from_stored(&profile.to_stored()).is_some());
                let before = profile.clone();
                profile.observe(count);
                prop_assert_eq!(&profile, &before);
            }
        }

        /// The hours of a day add up to its counter.
        #[test]
        fn the_hours_of_a_day_are_its_count(added in proptest::collection::vec(0_u64..1_000, 24)) {
            let counts = added.iter().scan(0, |sum, units| { *sum += units; Some(*sum) }).collect();
            let profile = observed(&[counts]);
            let (sum, total): (f64, u64) = (profile.today.units().iter().sum(), added.iter().sum());
            prop_assert!((sum - total as f64).abs() <= 0.01 * total as f64, "{} {}", sum, total);
        }
    }
}
