//! What is known of the usage of a subject: its usual day, by weekday and hour, and how far off its forecasts were.

use chrono::Weekday;

/// Hours of a day.
pub const HOURS: usize = 24;

/// The hours after which a day that is over is compared with its forecasts.
const CHECKED_AFTER: [usize; 5] = [4, 8, 12, 16, 20];
/// How much a new day counts at least in the level, the shares of the hours, the factors of weekdays, and the error.
const LEVEL_RATE: f64 = 0.10;
const SHARE_RATE: f64 = 0.06;
const WEEKDAY_RATE: f64 = 0.10;
const MISS_RATE: f64 = 0.10;
/// The part of a usual day that stands for the usual pace, in the comparison with today's.
const PACE_PART: f64 = 0.10;
/// The part of a usual day that is added to expected and to needed units, so that the logarithm of nothing exists.
pub(super) const SMALL_PART: f64 = 0.03;
/// Days of a kind after which its shares count alone.
const SEEN_ENOUGH: u8 = 4;
/// 1 in the fixed-point form of weekday factors.
pub(super) const FACTOR_ONE: f64 = 4096.0;
/// The least factor of a weekday: 2 %.
const FACTOR_MIN: f64 = 82.0;
/// 1 in the fixed-point form of the error.
const MISS_ONE: f64 = 256.0;
/// The error of a subject of which nothing is known.
const MISS_FIRST: u16 = 183;
/// The sum of the shares of a day.
const SHARES: f64 = 65_535.0;

/// Spread of ln(actual / expected units to come) over all subjects, by tenth of the usual day that is over.
const SPREAD: [f64; 10] = [1.11, 0.78, 0.70, 0.67, 0.67, 0.62, 0.62, 0.63, 0.60, 0.43];
/// The same if nothing but the usual day of the metric is known.
const SPREAD_NEW: [f64; 10] = [1.56, 0.96, 0.83, 0.78, 0.79, 0.72, 0.75, 0.77, 0.80, 0.56];

/// The parts of a day's usage by hour. Their sum is about 1.
pub type HourShares = [f64; HOURS];

/// The usual usage of a subject in a metric, learned from full days.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageProfile {
    /// Units of a usual day, if all weekdays were alike.
    pub(super) level: f32,
    /// Usage of the weekdays, from Monday; 4096 is the usual day.
    pub(super) week: [u16; 7],
    /// Shares of the hours, of 65535: from Monday to Friday, and on Saturday and Sunday.
    pub(super) shares: [[u16; HOURS]; 2],
    /// Number of days with usage that each set of shares was learned from.
    pub(super) seen: [u8; 2],
    /// How far off forecasts have been, in usual spreads; 256 is one spread.
    pub(super) miss: u16,
    /// Number of days that the profile was learned from.
    pub(super) days: u16,
    /// The hours of the day that runs.
    pub(super) today: DayHours,
    /// The units of that day, when its counter was read last.
    pub(super) counted: u64,
    /// Whether a part of that day was not observed, so that it teaches nothing.
    pub(super) is_partial: bool,
}

/// The units of the hours of a day, with 8 significant bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DayHours {
    /// Days since 1970-01-01 in the subject's zone.
    pub day: i32,
    /// The upper halves of numbers of 32 bits (bfloat16).
    pub(super) hours: [u16; HOURS],
}

/// How today compares with the usual, and what is to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Units of the usual day, at least 1.
    pub(super) usual_day: f64,
    /// Usage so far, as a multiple of the usual by now, after a part of a usual day was added to both.
    pub(super) factor: f64,
    /// Units that are expected until the day ends.
    pub(super) to_come: f64,
    /// Spread of the logarithm of what will come, relative to `to_come`.
    pub(super) spread: f64,
}

impl UsageProfile {
    /// The profile of a subject of which nothing is known but the usual `shares` of its metric.
    pub fn new(shares: &HourShares) -> Self {
        let shares = shares.map(|share| fixed(SHARES * share));
        Self {
            level: 0.0,
            week: [fixed(FACTOR_ONE); 7],
            shares: [shares, shares],
            seen: [0, 0],
            miss: MISS_FIRST,
            days: 0,
            today: DayHours::default(),
            counted: 0,
            is_partial: true,
        }
    }

    /// Number of full days that the profile was learned from.
    pub const fn days(&self) -> u16 {
        self.days
    }

    /// Units of a usual day of this weekday.
    pub fn usual_day(&self, weekday: Weekday) -> f64 {
        (f64::from(self.level) * self.factor(weekday)).max(1e-9)
    }

    /// Units of a usual week.
    pub fn usual_of_a_week(&self) -> f64 {
        f64::from(self.level) * self.week.iter().map(|factor| f64::from(*factor)).sum::<f64>() / FACTOR_ONE
    }

    /// How far off forecasts have been: 1 is the spread that most subjects have.
    pub fn reliability(&self) -> f64 {
        if self.days == 0 { 1.0 } else { 1.4 * f64::from(self.miss) / MISS_ONE }
    }

    /// Usual shares of the hours. Until enough days of a kind were seen, they lean on the other kind.
    pub(super) fn shares(&self, weekday: Weekday) -> HourShares {
        let kind = kind_of(weekday);
        let (own, other, seen) = (&self.shares[kind], &self.shares[1 - kind], self.seen[kind]);
        if self.days == 0 || seen >= SEEN_ENOUGH || self.seen[1 - kind] == 0 {
            return own.map(|share| f64::from(share) / SHARES);
        }
        let (seen, unseen) = (f64::from(seen), f64::from(SEEN_ENOUGH - seen));
        let blended = |hour: usize| seen * f64::from(own[hour]) + unseen * f64::from(other[hour]);
        std::array::from_fn(|hour| blended(hour) / (f64::from(SEEN_ENOUGH) * SHARES))
    }

    /// Compares `used` units with what is usual after the share `over` of a day, while the share `left` is to come.
    pub(super) fn pace(&self, weekday: Weekday, over: f64, left: f64, used: f64) -> Pace {
        let tenth = tenth(over, left);
        if self.days == 0 {
            let to_come = if over > 0.0 { used * left / over } else { 0.0 };
            let usual_day = (used + to_come).max(1.0);
            return Pace { usual_day, factor: 1.0, to_come, spread: SPREAD_NEW[tenth] };
        }
        let (usual, days) = (self.usual_day(weekday), f64::from(self.days));
        let usual_day = usual.max(1.0);
        let added = PACE_PART * usual_day * days / (days + 1.0);
        let factor = (used + added) / (over * usual + added);
        let few_days = if self.days < 14 { 1.0 + 0.5 / days } else { 1.0 };
        let spread = (SPREAD[tenth] * few_days * self.reliability()).max(0.02);
        Pace { usual_day, factor, to_come: factor * left * usual, spread }
    }

    /// Learns from a full day.
    pub fn learn(&mut self, weekday: Weekday, day: &DayHours) {
        let hours = day.units();
        let total: f64 = hours.iter().sum();
        let usual = if self.days == 0 { total.max(1e-9) } else { self.usual_day(weekday) };
        self.learn_miss(weekday, &hours, total);
        self.learn_shares(weekday, &hours, total, usual);
        self.learn_level(weekday, total);
        self.days = self.days.saturating_add(1);
    }

    /// How far off the forecasts of this day were.
    fn learn_miss(&mut self, weekday: Weekday, hours: &HourShares, total: f64) {
        if self.days == 0 {
            return;
        }
        let (shares, usual, days) = (self.shares(weekday), self.usual_day(weekday), f64::from(self.days));
        let added = PACE_PART * usual * days / (days + 1.0);
        let small = SMALL_PART * usual.max(1.0);
        let mut miss = 0.0;
        for hour in CHECKED_AFTER {
            let (over, left) = (shares[..hour].iter().sum::<f64>(), shares[hour..].iter().sum::<f64>());
            let used: f64 = hours[..hour].iter().sum();
            let to_come = (used + added) / (over * usual + added) * left * usual;
            let off = ((total - used + small) / (to_come + small)).ln();
            miss += off.abs().min(2.5) / SPREAD[tenth(over, left)] / CHECKED_AFTER.len() as f64;
        }
        let rate = MISS_RATE.max(1.0 / (days + 2.0));
        let change = rate * (MISS_ONE * miss.min(4.0) - f64::from(self.miss));
        self.miss = fixed(f64::from(self.miss) + change.round_ties_even());
    }

    fn learn_shares(&mut self, weekday: Weekday, hours: &HourShares, total: f64, usual: f64) {
        if total <= 0.0 {
            return;
        }
        let (shares, seen) = (&mut self.shares[kind_of(weekday)], &mut self.seen[kind_of(weekday)]);
        // A day with much usage says more of its hours than one with little.
        let rate = SHARE_RATE.max(1.0 / (f64::from(*seen) + 4.0)) * (total / usual).min(2.0);
        let rate = rate.min(0.5);
        let mixed = |hour: usize| {
            let before = f64::from(shares[hour]);
            before + rate * (SHARES * hours[hour] / total - before)
        };
        let mixed: HourShares = std::array::from_fn(mixed);
        let sum: f64 = mixed.iter().sum();
        *shares = mixed.map(|share| fixed(SHARES * share / sum));
        *seen = seen.saturating_add(1);
    }

    fn learn_level(&mut self, weekday: Weekday, total: f64) {
        let (level, days) = (f64::from(self.level), f64::from(self.days));
        let factor = self.factor(weekday);
        let rate = LEVEL_RATE.max(1.0 / (days + 1.0));
        self.level = (level + rate * (total / factor.max(0.05) - level)) as f32;
        if self.days == 0 {
            return;
        }
        let rate = WEEKDAY_RATE.max(1.0 / (f64::from(self.days / 7) + 3.0));
        let factor = factor + rate * ((total / level.max(1e-9)).min(4.0) - factor);
        self.week[at(weekday)] = fixed((FACTOR_ONE * factor).round_ties_even().max(FACTOR_MIN));
        if self.days >= 7 {
            let sum: f64 = self.week.iter().map(|factor| f64::from(*factor)).sum();
            self.week = self.week.map(|factor| fixed(7.0 * FACTOR_ONE * f64::from(factor) / sum).max(1));
        }
    }

    fn factor(&self, weekday: Weekday) -> f64 {
        f64::from(self.week[at(weekday)]) / FACTOR_ONE
    }
}

impl DayHours {
    /// A day on which nothing is used yet.
    pub const fn new(day: i32) -> Self {
        Self { day, hours: [0; HOURS] }
    }

    /// Sets the units of an hour.
    pub fn set(&mut self, hour: usize, units: u64) {
        self.set_units(hour, units as f64);
    }

    pub(super) fn set_units(&mut self, hour: usize, units: f64) {
        let bits = (units as f32).to_bits();
        self.hours[hour] = u16::try_from((bits + 0x8000) >> 16).expect("half of 32 bits");
    }

    /// The units of each hour.
    pub fn units(&self) -> HourShares {
        self.hours.map(|half| f64::from(f32::from_bits(u32::from(half) << 16)))
    }
}

/// Rounds to a number of 16 bits.
fn fixed(number: f64) -> u16 {
    number.round_ties_even() as u16
}

fn at(weekday: Weekday) -> usize {
    weekday.num_days_from_monday() as usize
}

/// 0 from Monday to Friday, 1 on Saturday and Sunday.
fn kind_of(weekday: Weekday) -> usize {
    usize::from(at(weekday) >= 5)
}

fn tenth(over: f64, left: f64) -> usize {
    ((over / (over + left).max(1e-9) * 10.0) as usize).min(9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two weeks of an office: 100 units in each hour from 8 to 18, nothing else, and nothing at the weekend.
    fn office() -> UsageProfile {
        let mut profile = UsageProfile::new(&[1.0 / 24.0; HOURS]);
        for day in 0..14 {
            let mut hours = DayHours::new(day);
            let weekday = Weekday::try_from(u8::try_from(day % 7).expect("below 7")).expect("a weekday");
            (8..18).filter(|_| day % 7 < 5).for_each(|hour| hours.set(hour, 100));
            profile.learn(weekday, &hours);
        }
        profile
    }

    #[test]
    fn a_profile_learns_weekdays_and_hours() {
        let profile = office();
        let (monday, sunday) = (profile.usual_day(Weekday::Mon), profile.usual_day(Weekday::Sun));
        assert!((800.0..1200.0).contains(&monday), "{monday}");
        assert!(sunday < 0.75 * monday, "{sunday}");
        let shares = profile.shares(Weekday::Tue);
        assert!(shares[10] > 0.07 && shares[3] < 0.02, "{shares:?}");
    }

    /// A million profiles would take more than 200 MB of Redis.
    #[test]
    fn the_stored_form_is_short_and_read_back() {
        let mut profile = office();
        profile.today = DayHours::new(20_785);
        (8..18).for_each(|hour| profile.today.set(hour, 95 + hour as u64));
        (profile.counted, profile.is_partial) = (1_234, false);
        let stored = profile.to_stored();
        assert!(stored.len() <= 82, "{} bytes", stored.len());
        let read = UsageProfile::from_stored(&stored).expect("it was just stored");
        assert_eq!(UsageProfile { shares: profile.shares, ..read }, profile);
    }

    #[test]
    fn hours_keep_eight_bits() {
        let mut hours = DayHours::new(0);
        hours.set(0, 255);
        hours.set(1, 257);
        hours.set(2, u64::MAX);
        let units = hours.units();
        assert_eq!((units[0], units[1]), (255.0, 258.0));
        assert!((units[2] / u64::MAX as f64 - 1.0).abs() < 0.01);
    }

    /// Days without usage, and days far above the usual, leave numbers that can be computed with.
    #[test]
    fn extreme_days_leave_a_usable_profile() {
        let mut profile = UsageProfile::new(&[1.0 / 24.0; HOURS]);
        for units in [0, 0, u64::MAX, 0, 1, 0, 0, 0, 9_007_199_254_740_991, 0] {
            let mut hours = DayHours::new(0);
            hours.set(5, units);
            profile.learn(Weekday::Wed, &hours);
            let usual = profile.usual_day(Weekday::Wed);
            assert!(usual.is_finite() && usual > 0.0, "{profile:?}");
            assert!(UsageProfile::from_stored(&profile.to_stored()).is_some());
        }
    }
}
