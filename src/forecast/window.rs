//! What is told of the limit of a window: a state, and for a limit that may be reached also when.

use std::collections::BTreeMap;

use crate::types::text_form::text_enum;
use crate::types::{Day, DaySpan, PeriodSpan, UnixMs, Window};
use crate::zones::Zone;

use super::day::{DayForecast, DayUsage, PastDays};
use super::long::{LongUsage, LongWindow};
use super::observation::weekday;
use super::profile::UsageProfile;

/// Full days that a forecast needs.
const DAYS_MIN: u16 = 3;
/// The part of a limit that must be used.
const USED_PART: f64 = 0.1;
/// Below this probability a limit will hardly be reached.
const POSSIBLE_FROM: f64 = 0.5;
/// Number of past days that count.
const PAST_DAYS: u64 = 28;
/// Times are rounded to this, ms.
const ROUNDED_TO_MS: i64 = 600_000;

text_enum! {
    /// Whether a limit will be reached in its period.
    pub enum ForecastState {
        /// Too little is known, or used; or the window has no forecasts, or the limit is 0.
        Unknown = "unknown",
        /// Less likely than not.
        Unlikely = "unlikely",
        /// More likely than not.
        Possible = "possible",
        /// Likely enough for an alert.
        Likely = "likely",
        /// It is reached.
        Reached = "reached",
    }
}

/// The forecast of a limit. It has times only if it is possible or likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowForecast {
    /// The state.
    pub state: ForecastState,
    /// Probability, from 0 to 1; `None` if unknown.
    pub probability: Option<f64>,
    /// When the limit will be reached, rounded to ten minutes. No time is later than the period's end.
    pub expected_at: Option<UnixMs>,
    /// In nine of ten cases it is reached later than this.
    pub earliest_at: Option<UnixMs>,
    /// In nine of ten cases it is reached earlier than this; `None` if that is after the period.
    pub latest_at: Option<UnixMs>,
    /// Units that are usual in the period by now; 0 if unknown.
    pub usual_by_now: u64,
}

/// The limit of a subject in a present period.
#[derive(Debug, Clone, Copy)]
pub struct LimitInPeriod<'a> {
    /// The period.
    pub span: PeriodSpan,
    /// The subject's zone.
    pub zone: Zone,
    /// Server time.
    pub now: UnixMs,
    /// Units used in the period.
    pub used: u64,
    /// Units used today.
    pub used_today: u64,
    /// The limit, units.
    pub limit: u64,
    /// Usage of earlier days, without days on which nothing was used.
    pub days: &'a BTreeMap<Day, u64>,
    /// The probability from which it is likely; that of the window if `None`.
    pub likely_from: Option<f64>,
}

/// The probability from which an alert is raised, if the plan has no other one.
pub const fn likely_from(window: Window) -> f64 {
    if matches!(window, Window::Week) { 0.94 } else { 0.9 }
}

/// Whether enough of a limit is used for a forecast, and not all of it.
pub fn may_be_foreseen(used: u64, limit: u64) -> bool {
    used < limit && used as f64 >= USED_PART * limit as f64
}

impl WindowForecast {
    const fn without_times(state: ForecastState, probability: Option<f64>) -> Self {
        Self { state, probability, expected_at: None, earliest_at: None, latest_at: None, usual_by_now: 0 }
    }

    /// The forecast for a limit, as far as the subject's profile in this metric lets it be known.
    pub fn new(profile: Option<&UsageProfile>, of: LimitInPeriod<'_>) -> Self {
        // Nothing is granted yet, so nothing is reached.
        if of.limit == 0 {
            return Self::without_times(ForecastState::Unknown, None);
        }
        if of.used >= of.limit {
            return Self::without_times(ForecastState::Reached, Some(1.0));
        }
        let known = profile.and_then(|profile| of.forecast(profile));
        let Some((forecast, today)) = known else { return Self::without_times(ForecastState::Unknown, None) };
        let DayForecast { probability, expected, earliest, latest, pace_factor: _, usual_by_now } = forecast;
        let usual_by_now = usual_by_now.round() as u64;
        let state = match probability {
            _ if probability < POSSIBLE_FROM => ForecastState::Unlikely,
            _ if probability < of.likely_from.unwrap_or(likely_from(of.span.period.window())) => {
                ForecastState::Possible
            }
            _ => ForecastState::Likely,
        };
        if state == ForecastState::Unlikely {
            return Self { usual_by_now, ..Self::without_times(state, Some(probability)) };
        }
        let at = |hour: Option<f64>| of.rounded(instant(of.zone, today, hour?)?);
        let (expected_at, earliest_at, latest_at) = (at(expected), at(earliest), at(latest));
        Self { state, probability: Some(probability), expected_at, earliest_at, latest_at, usual_by_now }
    }
}

impl LimitInPeriod<'_> {
    /// The forecast, and today.
    fn forecast(&self, profile: &UsageProfile) -> Option<(DayForecast, DaySpan)> {
        let Self { span, zone, now, used, used_today, limit, .. } = *self;
        let today = DaySpan::containing(zone, now)?;
        let day = i32::try_from(today.day.since_epoch()).ok()?;
        let mut profile = profile.clone();
        profile.close_before(day);
        if profile.days() < DAYS_MIN || !may_be_foreseen(used, limit) {
            return None;
        }
        let today_usage = DayUsage { weekday: weekday(day), hour: hour_of(&today, now), used: used_today };
        let window = match span.period.window() {
            Window::Day => {
                let past = self.past_days(today.day, u32::from(profile.days()));
                return Some((profile.forecast_day(today_usage, limit, Some(past)), today));
            }
            Window::Week => LongWindow::Week,
            Window::Month => LongWindow::Month,
            Window::Hour | Window::Quarter | Window::Year | Window::Total => return None,
        };
        let days_from = |at: UnixMs| Some(DaySpan::containing(zone, at)?.day.since_epoch());
        let (first, last) = (days_from(span.start)?, days_from(span.end.plus(-1))?);
        let usage = LongUsage {
            today: today_usage,
            days_before: u32::try_from(i64::from(day) - first).ok()?,
            days_after: u32::try_from(last - i64::from(day)).ok()?,
            used,
        };
        Some((profile.forecast_long(window, usage, limit), today))
    }

    fn past_days(&self, today: Day, known: u32) -> PastDays {
        let days = known.min(PAST_DAYS as u32);
        let Some(first) = today.before(u64::from(days)) else { return PastDays { days: 0, reached: 0 } };
        let reached = self.days.range(first..today).filter(|(_, units)| **units >= self.limit).count();
        PastDays { days, reached: u32::try_from(reached).unwrap_or(days) }
    }

    /// Rounds a time after now; `None` if no round time is left in the period.
    fn rounded(&self, at: UnixMs) -> Option<UnixMs> {
        let since = |at: UnixMs| at.0 - self.span.start.0;
        let (first, last) = (since(self.now).div_euclid(ROUNDED_TO_MS) + 1, (since(self.span.end) - 1) / ROUNDED_TO_MS);
        let nearest = (since(at) + ROUNDED_TO_MS / 2).div_euclid(ROUNDED_TO_MS);
        (first <= last).then(|| self.span.start.plus(nearest.clamp(first, last) * ROUNDED_TO_MS))
    }
}

/// The hour of a day at an instant, as part of a day of 24 hours: a day of 23 hours passes faster.
pub fn hour_of(day: &DaySpan, at: UnixMs) -> f64 {
    let (passed, length) = ((at.0 - day.start.0) as f64, (day.end.0 - day.start.0).max(1) as f64);
    (24.0 * passed / length).clamp(0.0, 24.0)
}

/// The instant of an hour that is counted from the beginning of today, 24 for each day.
fn instant(zone: Zone, today: DaySpan, hour: f64) -> Option<UnixMs> {
    let days = (hour / 24.0).floor();
    let day = Day::of_epoch(today.day.since_epoch() + days as i64)?;
    let DaySpan { start, end, .. } = DaySpan::for_day(zone, day)?;
    Some(start.plus(((end.0 - start.0) as f64 * (hour / 24.0 - days)) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::observation::DayCount;
    use crate::types::BillingDay;
    use proptest::prelude::*;

    fn ms(text: &str) -> UnixMs {
        UnixMs(chrono::DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis())
    }

    /// 100 units in each hour of the days before `today`.
    fn steady(today: i32, days: i32) -> UsageProfile {
        let mut profile = UsageProfile::beginning(today - days - 1);
        for day in today - days..today {
            for hour in 1..=24 {
                let hour = f64::from(hour);
                profile.observe(DayCount { day, since: hour - 1.0, hour, units: 100 * hour as u64 });
            }
        }
        profile
    }

    fn limit(window: Window, zone: &str, now: &str, used: u64, limit: u64) -> LimitInPeriod<'static> {
        static NO_DAYS: BTreeMap<Day, u64> = BTreeMap::new();
        let (zone, now) = (zone.parse().expect("a zone"), ms(now));
        let span = PeriodSpan::containing(window, zone, BillingDay::FIRST, now).expect("a period");
        LimitInPeriod { span, zone, now, used, used_today: used, limit, days: &NO_DAYS, likely_from: None }
    }

    fn day_of(of: &LimitInPeriod<'_>) -> i32 {
        i32::try_from(DaySpan::containing(of.zone, of.now).expect("a day").day.since_epoch()).expect("small")
    }

    #[test]
    fn a_state_follows_from_what_is_known_and_used() {
        let state = |days, used, limit_units| {
            let of = limit(Window::Day, "Europe/Paris", "2026-11-26T11:00:00Z", used, limit_units);
            WindowForecast::new(Some(&steady(day_of(&of), days)), of).state
        };
        assert_eq!(state(28, 2_400, 3_000), ForecastState::Likely);
        assert_eq!(state(28, 1_300, 2_545), ForecastState::Possible);
        assert_eq!(state(28, 1_200, 4_800), ForecastState::Unlikely);
        assert_eq!(state(28, 3_000, 3_000), ForecastState::Reached);
        assert_eq!(state(28, 0, 0), ForecastState::Unknown, "a limit of 0");
        assert_eq!(state(2, 2_400, 3_000), ForecastState::Unknown, "two days are known");
        assert_eq!(state(28, 2_400, 30_000), ForecastState::Unknown, "less than a tenth is used");
        let of = limit(Window::Day, "UTC", "2026-11-26T12:00:00Z", 2_400, 3_000);
        assert_eq!(WindowForecast::new(None, of).state, ForecastState::Unknown);
        for window in [Window::Hour, Window::Quarter, Window::Year, Window::Total] {
            let of = limit(window, "UTC", "2026-11-26T12:00:00Z", 2_400, 3_000);
            assert_eq!(WindowForecast::new(Some(&steady(day_of(&of), 28)), of).state, ForecastState::Unknown);
        }
    }

    #[test]
    fn times_are_rounded_in_the_zone_of_the_subject() {
        // It is 12:00 in Kathmandu, 5:45 ahead of UTC; 600 units are missing at 200 an hour.
        let of = limit(Window::Day, "Asia/Kathmandu", "2026-11-26T06:15:00Z", 2_400, 3_000);
        let forecast = WindowForecast::new(Some(&steady(day_of(&of), 28)), of);
        let at = forecast.expected_at.expect("it is likely");
        assert_eq!((at.0 - of.span.start.0) % ROUNDED_TO_MS, 0);
        assert!((ms("2026-11-26T09:05:00Z")..ms("2026-11-26T09:55:00Z")).contains(&at), "{forecast:?}");
        assert!(forecast.earliest_at <= forecast.expected_at && forecast.expected_at <= forecast.latest_at);
    }

    /// On the last Sunday of October and March days have 25 and 23 hours in Paris.
    #[test]
    fn days_with_another_length_end_where_they_end() {
        for (now, end) in
            [("2026-10-25T22:55:00Z", "2026-10-25T23:00:00Z"), ("2026-03-29T21:55:00Z", "2026-03-29T22:00:00Z")]
        {
            let of = limit(Window::Day, "Europe/Paris", now, 2_399, 2_400);
            assert_eq!(of.span.end, ms(end));
            let forecast = WindowForecast::new(Some(&steady(day_of(&of), 28)), of);
            assert_eq!((forecast.state, forecast.expected_at), (ForecastState::Likely, None), "no round time is left");
        }
        let day = |text: &str| DaySpan::containing("Europe/Paris".parse().expect("a zone"), ms(text)).expect("a day");
        let short = day("2026-03-29T12:00:00Z");
        assert_eq!((hour_of(&short, short.start), hour_of(&short, short.end)), (0.0, 24.0));
    }

    /// A subject that moves between zones may have a profile of tomorrow, or of the day before yesterday.
    #[test]
    fn a_profile_of_another_day_is_usable() {
        let of = limit(Window::Day, "UTC", "2026-11-26T12:00:00Z", 2_400, 3_000);
        for off in [-20, -1, 0, 1] {
            let profile = steady(day_of(&of) + off, 28);
            let state = WindowForecast::new(Some(&profile), of).state;
            assert!(state != ForecastState::Unknown, "{off}");
        }
    }

    proptest! {
        /// No time is beyond the period's end or before now, and a state has exactly what it should have.
        #[test]
        fn no_time_is_outside_of_the_period(
            at in 1_500_000_000_000_i64..2_000_000_000_000, zone in crate::zones::any_zone(), days in 0_i32..40,
            used in 0_u64..20_000, limit in 1_u64..20_000, window in 0_usize..Window::ALL.len()
        ) {
            let (now, window) = (UnixMs(at), Window::ALL[window]);
            let span = PeriodSpan::containing(window, zone, BillingDay::FIRST, now).expect("a period");
            let (none, today) = (BTreeMap::new(), DaySpan::containing(zone, now).expect("a day"));
            let used_today = used.min(3_000);
            let of = LimitInPeriod { span, zone, now, used, used_today, limit, days: &none, likely_from: None };
            let profile = steady(i32::try_from(today.day.since_epoch()).expect("small"), days);
            let forecast = WindowForecast::new(Some(&profile), of);
            let times = [forecast.expected_at, forecast.earliest_at, forecast.latest_at];
            for time in times.into_iter().flatten() {
                prop_assert!(now < time && time < span.end, "{:?} {:?}", forecast, of);
            }
            let has_times = matches!(forecast.state, ForecastState::Possible | ForecastState::Likely);
            prop_assert!(has_times || times == [None; 3]);
            prop_assert_eq!(forecast.probability.is_none(), forecast.state == ForecastState::Unknown);
            prop_assert!(window.has_forecast() || !has_times);
        }
    }
}
