//! Asks for the forecast of each test day at each full hour, as the daemon would, and compares it with what happened.

use quotabell::forecast::{DayForecast, DayUsage, PastDays, UsageProfile, is_spike};

use super::series::{Day, Series, learn, shares_of_metric, split};

/// Quantiles of the daily totals that serve as limits.
const LIMITS: [f64; 3] = [0.88, 0.70, 0.45];
/// Of sources with many series, each fourth is measured, as in the reference.
const MANY: usize = 25;
const STEP: usize = 4;
/// The probability at which an alert is raised.
const PROBABILITY: f64 = 0.9;
/// Full days that a forecast needs.
const DAYS_MIN: u16 = 3;

/// A rule that may raise one alert a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The forecast reaches its probability.
    Forecast,
    /// The usage so far, at the same pace until midnight, reaches the limit.
    Linear,
    /// 80 % of the limit is used.
    Eighty,
}

/// What a rule says in advance, over all days and limits of a source.
#[derive(Debug, Default)]
pub struct Figures {
    pub cases: usize,
    /// Mean squared error of the probabilities; only forecasts have them.
    pub brier: f64,
    pub precision: f64,
    pub recall: f64,
    /// Recall of alerts that are at least two hours ahead.
    pub recall_2h: f64,
    /// Median of the hours from the alert to the limit.
    pub lead_h: f64,
    pub false_per_30d: f64,
    /// Median error of the expected time, hours.
    pub time_error_h: f64,
}

/// A day and a limit.
struct Case {
    reached_at: Option<f64>,
    /// The hour of the alert, and the expected hour.
    alert: Option<(f64, Option<f64>)>,
}

/// Measures a rule on the test days of a source.
pub fn evaluate(series: &[Series], rule: Rule) -> Figures {
    let (mut cases, mut errors) = (Vec::new(), Vec::new());
    let shares = shares_of_metric(series);
    let step = if series.len() > MANY { STEP } else { 1 };
    for of in series.iter().step_by(step) {
        let (warm, test) = split(of.days.len());
        if of.days.len() < test + 5 {
            continue;
        }
        let limits = limits(of.days[warm..].iter().map(Day::total), &LIMITS, 0.60);
        let stride = ((of.days.len() - warm) / 120).max(1);
        let mut profile = UsageProfile::new(&shares);
        for (index, day) in of.days.iter().enumerate() {
            if index >= test && (index - warm).is_multiple_of(stride) {
                let before = &of.days[index.saturating_sub(28)..index];
                for limit in &limits {
                    cases.push(ask(&profile, day, before, *limit, rule, &mut errors));
                }
            }
            learn(&mut profile, day);
        }
    }
    figures(&cases, &errors)
}

/// Asks at each full hour of a day until the limit is reached.
fn ask(profile: &UsageProfile, day: &Day, before: &[Day], limit: u64, rule: Rule, errors: &mut Vec<f64>) -> Case {
    let (reached_at, cumulated) = (day.reached_at(limit), day.cumulated());
    let reached = before.iter().filter(|of| of.total() >= limit).count();
    let past = PastDays { days: count(before.len()), reached: count(reached) };
    let mut alert = None;
    for (hour, used) in cumulated.into_iter().enumerate().take(24).skip(1) {
        if used >= limit {
            break;
        }
        let (at, is_raised) = (hour as f64, used as f64 >= 0.1 * limit as f64 && profile.days() >= DAYS_MIN);
        let expected = match rule {
            Rule::Forecast => {
                let usage = DayUsage { weekday: day.weekday(), hour: at, used };
                let DayForecast { probability, expected, .. } = profile.forecast_day(usage, limit, Some(past));
                errors.push((probability - if reached_at.is_some() { 1.0 } else { 0.0 }).powi(2));
                (is_raised && probability >= PROBABILITY && expected.is_some()).then_some(expected)
            }
            // Before three hours are over it says nearly nothing.
            Rule::Linear => (hour >= 3 && used as f64 * 24.0 / at >= limit as f64).then_some(None),
            Rule::Eighty => (used as f64 >= 0.8 * limit as f64).then_some(None),
        };
        if let (Some(expected), None) = (expected, alert) {
            alert = Some((at, expected));
        }
    }
    Case { reached_at, alert }
}

/// Days with twice the usual in 30 days of a series, as the mean of a source. Nothing says that any was unusual.
pub fn spikes_per_30d(series: &[Series]) -> f64 {
    let shares = shares_of_metric(series);
    let (mut parts, mut measured) = (0.0, 0.0);
    for of in series {
        let (_, test) = split(of.days.len());
        if of.days.len() < test + 5 {
            continue;
        }
        let (mut profile, mut spikes) = (UsageProfile::new(&shares), 0_u32);
        for (index, day) in of.days.iter().enumerate() {
            let by_hour = (0_u32..).map(f64::from).zip(day.cumulated()).skip(1);
            let mut usages = by_hour.map(|(hour, used)| DayUsage { weekday: day.weekday(), hour, used });
            spikes += u32::from(index >= test && usages.any(|usage| is_spike(&profile, usage, 2.0)));
            profile.learn(day.weekday(), &day.hours());
        }
        parts += f64::from(spikes) / (of.days.len() - test) as f64;
        measured += 1.0;
    }
    parts / measured * 30.0
}

fn figures(cases: &[Case], errors: &[f64]) -> Figures {
    let alerts = cases.iter().filter(|case| case.alert.is_some()).count() as f64;
    let reached = cases.iter().filter(|case| case.reached_at.is_some()).count() as f64;
    let right: Vec<(f64, f64, Option<f64>)> = cases
        .iter()
        .filter_map(|case| case.alert.zip(case.reached_at))
        .map(|((alert, expected), reached)| (alert, reached, expected))
        .collect();
    let early = right.iter().filter(|(alert, reached, _)| reached - alert >= 2.0).count() as f64;
    let off = right.iter().filter_map(|(_, reached, expected)| expected.map(|expected| (expected - reached).abs()));
    Figures {
        cases: cases.len(),
        brier: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
        precision: right.len() as f64 / alerts.max(1.0),
        recall: right.len() as f64 / reached.max(1.0),
        recall_2h: early / reached.max(1.0),
        lead_h: median(right.iter().map(|(alert, reached, _)| reached - alert).collect()),
        false_per_30d: (alerts - right.len() as f64) / cases.len().max(1) as f64 * 30.0,
        time_error_h: median(off.collect()),
    }
}

/// Limits at these quantiles of the totals, if between a tenth and the largest part of them reach it.
pub fn limits(totals: impl Iterator<Item = u64>, quantiles: &[f64], part_max: f64) -> Vec<u64> {
    let mut totals: Vec<u64> = totals.collect();
    totals.sort_unstable();
    let mut limits = Vec::new();
    for share in quantiles {
        let limit = quantile(&totals, *share).ceil() as u64;
        let reached = totals.iter().filter(|total| **total >= limit).count() as f64 / totals.len() as f64;
        if limit >= 1 && (0.10..=part_max).contains(&reached) && !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits
}

fn quantile(sorted: &[u64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize] as f64, sorted[at.ceil() as usize] as f64);
    below + (above - below) * at.fract()
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count.is_multiple_of(2) => f64::midpoint(values[count / 2 - 1], values[count / 2]),
        count => values[count / 2],
    }
}

pub fn count(days: usize) -> u32 {
    u32::try_from(days).expect("few days")
}
