//! The forecast of the limit of a week or a month, by the usual usage of each weekday.

use chrono::Weekday;

use super::day::{DayForecast, DayUsage, ShareWalk, probability_of, spread_factor};
use super::profile::{SMALL_PART, UsageProfile};

/// The part of a usual week that stands for the usual pace.
const PACE_PART: f64 = 0.3;
/// Spread of ln(actual / expected units to come) by seventh of the week that is over, for a subject whose days have the
/// spread that most subjects have.
const WEEK_SPREAD: [f64; 7] = [0.69, 0.48, 0.45, 0.46, 0.49, 0.49, 0.48];
/// The same for months. Whether a subject's days were forecast well says nothing of its months.
const MONTH_SPREAD: f64 = 0.14;

/// A period of several days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongWindow {
    /// Its pace decides with the weekdays.
    Week,
    /// The weekdays decide.
    Month,
}

/// How much of a week or month is used, and when.
#[derive(Debug, Clone, Copy)]
pub struct LongUsage {
    /// Today.
    pub today: DayUsage,
    /// Full days of the period before today.
    pub days_before: u32,
    /// Days of the period after today.
    pub days_after: u32,
    /// Units that are used in the period, with those of today.
    pub used: u64,
}

impl UsageProfile {
    /// The forecast for a limit of a week or a month. Its hours count from the beginning of today, 24 for each day.
    pub fn forecast_long(&self, window: LongWindow, usage: LongUsage, limit: u64) -> DayForecast {
        let LongUsage { today: DayUsage { weekday, hour, used: used_today }, days_before, days_after, used } = usage;
        let walk = ShareWalk::new(self.shares(weekday), hour);
        let after = || (0..days_after).scan(weekday, |day, _| next(day));
        let usual = |days: &mut dyn Iterator<Item = Weekday>| days.map(|day| self.usual_day(day)).sum::<f64>();
        let before = usual(&mut (0..days_before).scan(weekday, |day, _| previous(day)));
        let (usual_today, usual_after) = (self.usual_day(weekday), usual(&mut after()));
        let usual_by_now = before + walk.over * usual_today;
        let usual_period = (before + usual_today + usual_after).max(1.0);
        let added = PACE_PART * usual_period;
        let pace_factor = (used as f64 + added) / (usual_by_now + added);
        let (today_to_come, factor, spread) = match window {
            LongWindow::Week => {
                let pace = self.pace(weekday, walk.over, walk.left, used_today as f64);
                let passed = (f64::from(days_before) + hour / 24.0) / f64::from(days_before + 1 + days_after);
                let seventh = ((passed * 7.0) as usize).min(6);
                (pace.to_come, pace_factor, (WEEK_SPREAD[seventh] * self.reliability()).max(0.02))
            }
            LongWindow::Month => (walk.left * usual_today, 1.0, MONTH_SPREAD),
        };
        let to_come = today_to_come + factor * usual_after;
        if used >= limit {
            let now = Some(hour);
            let (expected, earliest, latest) = (now, now, now);
            return DayForecast { probability: 1.0, expected, earliest, latest, pace_factor, usual_by_now };
        }
        let (needed, small) = ((limit - used) as f64, SMALL_PART * usual_period);
        let distance = ((to_come + small) / (needed + small)).ln() / spread;
        let when = |expected: f64| {
            // Everything that is to come is scaled alike.
            let scale = expected / to_come.max(1e-9);
            let mut needed = needed;
            if today_to_come * scale >= needed {
                return walk.when(needed, today_to_come * scale);
            }
            needed -= today_to_come * scale;
            for (day, midnight) in after().zip((1..).map(|day| f64::from(day) * 24.0)) {
                let of_day = self.usual_day(day) * factor * scale;
                if of_day >= needed {
                    return Some(midnight + ShareWalk::new(self.shares(day), 0.0).when(needed, of_day)?);
                }
                needed -= of_day;
            }
            None
        };
        let factor = spread_factor(spread);
        DayForecast {
            probability: probability_of(distance),
            expected: when(to_come),
            earliest: when((to_come + small) * factor - small),
            latest: when((to_come + small) / factor - small),
            pace_factor,
            usual_by_now,
        }
    }
}

fn next(day: &mut Weekday) -> Option<Weekday> {
    *day = day.succ();
    Some(*day)
}

fn previous(day: &mut Weekday) -> Option<Weekday> {
    *day = day.pred();
    Some(*day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::profile::{DayHours, HOURS};

    /// 100 units in each hour of every day.
    fn steady() -> UsageProfile {
        let mut profile = UsageProfile::new(&[1.0 / 24.0; HOURS]);
        for day in 0..28 {
            let mut hours = DayHours::new(day);
            (0..HOURS).for_each(|hour| hours.set(hour, 100));
            profile.learn(crate::forecast::observation::weekday(day), &hours);
        }
        profile
    }

    fn usage(days_before: u32, days_after: u32, used: u64) -> LongUsage {
        let today = DayUsage { weekday: Weekday::Thu, hour: 12.0, used: 1_200 };
        LongUsage { today, days_before, days_after, used }
    }

    /// 3.5 usual days are used by Thursday noon, and the limit is 5 days.
    #[test]
    fn a_limit_is_reached_as_usual_on_the_day_that_the_weekdays_say() {
        for (window, of) in [(LongWindow::Week, usage(3, 3, 8_400)), (LongWindow::Month, usage(3, 26, 8_400))] {
            let forecast = steady().forecast_long(window, of, 12_000);
            assert!(forecast.probability > 0.95, "{window:?} {forecast:?}");
            let (earliest, expected) = (forecast.earliest.expect("reached"), forecast.expected.expect("reached"));
            assert!((46.0..50.0).contains(&expected) && earliest <= expected, "{window:?} {forecast:?}");
            assert!((0.95..1.05).contains(&forecast.pace_factor), "{window:?} {forecast:?}");
            assert!((8_390.0..8_410.0).contains(&forecast.usual_by_now), "{window:?} {forecast:?}");
        }
    }

    #[test]
    fn a_usual_week_stays_below_a_high_limit() {
        for (window, of) in [(LongWindow::Week, usage(3, 3, 8_400)), (LongWindow::Month, usage(3, 26, 8_400))] {
            let forecast = steady().forecast_long(window, of, 200_000);
            assert!(forecast.probability < 0.05 && forecast.expected.is_none(), "{window:?} {forecast:?}");
        }
    }

    /// No time is before now or beyond the period, also with numbers at their bounds.
    #[test]
    fn times_are_within_the_period() {
        for profile in [steady(), UsageProfile::new(&[0.0; HOURS])] {
            for window in [LongWindow::Week, LongWindow::Month] {
                for (used, limit) in [(1_200, 1_201), (1_200, u64::MAX), (u64::MAX - 1, u64::MAX), (8_400, 16_800)] {
                    let forecast = profile.forecast_long(window, usage(3, 3, used), limit);
                    assert!((0.0..=1.0).contains(&forecast.probability), "{used} {limit} {forecast:?}");
                    for time in [forecast.expected, forecast.earliest, forecast.latest].into_iter().flatten() {
                        assert!((12.0..=96.0).contains(&time), "{used} {limit} {forecast:?}");
                    }
                }
            }
        }
    }
}
