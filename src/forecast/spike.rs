//! The rule for usage far above the usual.

use chrono::Weekday;

use super::day::DayUsage;
use super::profile::UsageProfile;

/// Below this number of units nothing is unusual.
const UNITS_MIN: f64 = 20.0;
/// The part of a usual day that both sides of the comparison get.
const ADDED_PART: f64 = 0.1;
/// The part of a usual day by which the usage must be above the usual.
const ABOVE_PART: f64 = 0.5;
/// How much more a subject with unreliable forecasts must use.
const RELIABILITY_EXPONENT: f64 = 1.5;

/// Whether a subject uses at least `times` as much as usual by this hour. Subjects whose days differ much must use more
/// than that.
pub fn is_spike(profile: &UsageProfile, day: DayUsage, times: f64) -> bool {
    let DayUsage { weekday, hour, used } = day;
    let (used, usual_day) = (used as f64, usual_day(profile, weekday));
    let (added, by_now) = (ADDED_PART * usual_day, profile.usual_by(weekday, hour));
    let least = times.max((RELIABILITY_EXPONENT * profile.reliability()).exp());
    profile.days() > 0
        && used >= UNITS_MIN
        && used >= by_now + ABOVE_PART * usual_day
        && used + added >= least * (by_now + added)
}

fn usual_day(profile: &UsageProfile, weekday: Weekday) -> f64 {
    profile.usual_day(weekday).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::profile::{DayHours, HOURS};

    #[test]
    fn a_surge_is_a_spike_and_a_busy_day_is_none() {
        let mut profile = UsageProfile::new(&[1.0 / 24.0; HOURS]);
        let noon = |used| DayUsage { weekday: Weekday::Fri, hour: 12.0, used };
        assert!(!is_spike(&profile, noon(1_000_000), 2.0), "nothing is usual yet");
        for day in 0..28 {
            let mut hours = DayHours::new(day);
            (0..HOURS).for_each(|hour| hours.set(hour, 100));
            profile.learn(Weekday::Fri, &hours);
        }
        assert!(!is_spike(&profile, noon(1_300), 2.0));
        assert!(is_spike(&profile, noon(6_000), 2.0));
        assert!(!is_spike(&profile, noon(6_000), 10.0));
    }
}
