//! The forecast of a day's limit: whether and when it will be reached.

use chrono::Weekday;

use super::profile::{HOURS, HourShares, Pace, SMALL_PART, UsageProfile};

/// Slope of the logistic function that stands for the normal distribution.
const SLOPE: f64 = 1.9;
/// How much the days before count.
const PAST_FACTOR: f64 = 0.5;

/// How much of a day is used, and when.
#[derive(Debug, Clone, Copy)]
pub struct DayUsage {
    /// The weekday in the subject's zone.
    pub weekday: Weekday,
    /// Time since midnight in hours, as part of a day of 24 hours: from 0 to 24.
    pub hour: f64,
    /// Units that are used.
    pub used: u64,
}

/// What is known of the days before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastDays {
    /// Number of days, at most 28.
    pub days: u32,
    /// Number of days on which the limit was reached.
    pub reached: u32,
}

/// Whether a limit will be reached before its period ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DayForecast {
    /// Probability, from 0 to 1.
    pub probability: f64,
    /// The hour, counted from the beginning of today, at which the limit will be reached; `None` if the expected usage
    /// does not reach it.
    pub expected: Option<f64>,
    /// In nine of ten cases it is reached later than this.
    pub earliest: Option<f64>,
    /// In nine of ten cases it is reached earlier than this.
    pub latest: Option<f64>,
    /// Usage so far, as a multiple of the usual by now, after a part of a usual period was added to both: what the
    /// method expects of the rest.
    pub pace_factor: f64,
    /// Units that are usual in the period by now.
    pub usual_by_now: f64,
}

impl UsageProfile {
    /// The forecast for a limit of the day.
    pub fn forecast_day(&self, day: DayUsage, limit: u64, past: Option<PastDays>) -> DayForecast {
        let DayUsage { weekday, hour, used } = day;
        let walk = ShareWalk::new(self.shares(weekday), hour);
        let used_units = used as f64;
        let pace = self.pace(weekday, walk.over, walk.left, used_units);
        let Pace { usual_day, factor: pace_factor, to_come, spread } = pace;
        let usual_by_now = walk.over * self.usual_day(weekday);
        if used >= limit {
            let now = Some(hour);
            let (expected, earliest, latest) = (now, now, now);
            return DayForecast { probability: 1.0, expected, earliest, latest, pace_factor, usual_by_now };
        }
        let needed = limit as f64 - used_units;
        let small = SMALL_PART * usual_day;
        let mut distance = ((to_come + small) / ((needed - 0.5).max(0.0) + small)).ln() / spread;
        if let Some(PastDays { days, reached }) = past {
            let (reached, not_reached) = (f64::from(reached) + 0.5, f64::from(days.saturating_sub(reached)) + 0.5);
            distance += PAST_FACTOR / SLOPE * (reached / not_reached).ln();
        }
        let factor = spread_factor(spread);
        DayForecast {
            probability: probability_of(distance),
            expected: walk.when(needed, to_come),
            earliest: walk.when(needed, (to_come + small) * factor - small),
            latest: walk.when(needed, (to_come + small) / factor - small),
            pace_factor,
            usual_by_now,
        }
    }

    /// Units that are usual by this hour of the day.
    pub fn usual_by(&self, weekday: Weekday, hour: f64) -> f64 {
        ShareWalk::new(self.shares(weekday), hour).over * self.usual_day(weekday)
    }
}

/// The probability of a limit that is this number of spreads below what is expected.
pub(super) fn probability_of(distance: f64) -> f64 {
    1.0 / (1.0 + (-SLOPE * distance).clamp(-50.0, 50.0).exp())
}

/// Nine of ten cases are below this multiple of what is expected.
pub(super) fn spread_factor(spread: f64) -> f64 {
    (9.0_f64.ln() / SLOPE * spread).exp()
}

/// The usual day around an hour of it.
pub(super) struct ShareWalk {
    shares: HourShares,
    /// Full hours that are over.
    hour: usize,
    /// The part of the next hour that is over.
    part: f64,
    /// The share of the day that is over.
    pub(super) over: f64,
    /// The share of the day to come.
    pub(super) left: f64,
}

impl ShareWalk {
    pub(super) fn new(shares: HourShares, hour: f64) -> Self {
        let full = (hour.max(0.0) as usize).min(HOURS);
        let part = if full < HOURS { (hour - full as f64).max(0.0) } else { 0.0 };
        let of_hour = shares.get(full).copied().unwrap_or(0.0);
        let over = if full < HOURS { shares[..full].iter().sum::<f64>() + part * of_hour } else { 1.0 };
        let left = (shares[full..].iter().sum::<f64>() - part * of_hour).max(0.0);
        Self { shares, hour: full, part, over, left }
    }

    /// The hour at which `needed` units are used, if `to_come` units come as usual until midnight.
    pub(super) fn when(&self, needed: f64, to_come: f64) -> Option<f64> {
        if to_come < needed || self.left <= 0.0 {
            return None;
        }
        let mut share = needed * self.left / to_come;
        let mut from = self.part;
        for hour in self.hour..HOURS {
            let of_hour = self.shares[hour] * (1.0 - from);
            if share <= of_hour {
                let passed = if of_hour > 0.0 { share / of_hour * (1.0 - from) } else { 0.0 };
                return Some(hour as f64 + from + passed);
            }
            share -= of_hour;
            from = 0.0;
        }
        Some(HOURS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::profile::DayHours;

    fn steady() -> UsageProfile {
        let mut profile = UsageProfile::new(&[1.0 / 24.0; HOURS]);
        for day in 0..28 {
            let mut hours = DayHours::new(day);
            (0..HOURS).for_each(|hour| hours.set(hour, 100));
            let weekday = Weekday::try_from(u8::try_from(day % 7).expect("below 7")).expect("a weekday");
            profile.learn(weekday, &hours);
        }
        profile
    }

    fn at(hour: f64, used: u64) -> DayUsage {
        DayUsage { weekday: Weekday::Mon, hour, used }
    }

    /// Half of the day is over, and twice the usual is used: so the limit of one and a half days will be reached.
    #[test]
    fn a_fast_day_reaches_its_limit() {
        let forecast = steady().forecast_day(at(12.0, 2_400), 3_600, None);
        assert!(forecast.probability > 0.95, "{forecast:?}");
        assert!((1.7..2.0).contains(&forecast.pace_factor), "{forecast:?}");
        assert!((1_190.0..1_210.0).contains(&forecast.usual_by_now), "{forecast:?}");
        let (earliest, expected) = (forecast.earliest.expect("reached"), forecast.expected.expect("reached"));
        assert!((17.5..19.5).contains(&expected) && earliest <= expected, "{forecast:?}");
        assert!(forecast.latest.is_none_or(|latest| latest >= expected), "{forecast:?}");
    }

    #[test]
    fn a_usual_day_stays_below_a_high_limit() {
        let forecast = steady().forecast_day(at(12.0, 1_200), 9_600, Some(PastDays { days: 28, reached: 0 }));
        assert!(forecast.probability < 0.01 && forecast.expected.is_none(), "{forecast:?}");
    }

    #[test]
    fn a_limit_that_is_reached_is_certain() {
        let forecast = steady().forecast_day(at(7.25, 900), 900, None);
        assert_eq!((forecast.probability, forecast.expected), (1.0, Some(7.25)));
    }

    #[test]
    fn earlier_days_count() {
        let usage = at(12.0, 1_200);
        let probability =
            |reached| steady().forecast_day(usage, 2_400, Some(PastDays { days: 28, reached })).probability;
        assert!(probability(0) < probability(14) && probability(14) < probability(28));
    }

    /// No time is beyond the end of the day, also at its end and with numbers at their bounds.
    #[test]
    fn times_are_within_the_day() {
        let new = UsageProfile::new(&[0.0; HOURS]);
        for profile in [steady(), new] {
            for hour in [0.0, 0.5, 12.0, 23.99, 24.0] {
                for (used, limit) in [(0, 1), (1, u64::MAX), (u64::MAX - 1, u64::MAX), (2_399, 2_400)] {
                    let forecast = profile.forecast_day(at(hour, used), limit, None);
                    assert!((0.0..=1.0).contains(&forecast.probability), "{hour} {used} {limit} {forecast:?}");
                    for time in [forecast.expected, forecast.earliest, forecast.latest].into_iter().flatten() {
                        assert!((hour..=24.0).contains(&time), "{hour} {used} {limit} {forecast:?}");
                    }
                }
            }
        }
    }
}
