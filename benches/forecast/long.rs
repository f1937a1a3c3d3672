//! Asks for the forecast of each test week every six hours and of each test month every midnight, and compares it with
//! what happened.

use quotabell::forecast::long::{LongUsage, LongWindow};
use quotabell::forecast::{DayUsage, UsageProfile};

use super::evaluation::{count, limits, median};
use super::series::{Day, Series, learn, shares_of_metric};

/// What is asked of a window.
struct Questions {
    /// Quantiles of the totals of the periods that serve as limits.
    limits: [f64; 2],
    /// The probability at which an alert is raised.
    probability: f64,
    /// Hours of the day at which it is asked; 24 is the next midnight.
    hours: &'static [usize],
    /// Days that a full period has at least.
    days_min: usize,
    /// Days before the first period.
    warm: usize,
    /// Periods that a series needs.
    periods_min: usize,
}

/// What the forecast says in advance, over all periods and limits of a source.
#[derive(Debug)]
pub struct LongFigures {
    pub cases: usize,
    /// Mean squared error of the probabilities.
    pub brier: f64,
    pub precision: f64,
    pub recall: f64,
    /// Median of the hours from the alert to the limit.
    pub lead_h: f64,
}

/// A period and a limit; hours count from the period's beginning.
struct Case {
    reached_at: Option<f64>,
    alert_at: Option<f64>,
}

/// The index of the week or month of a day.
fn number_of(window: LongWindow, day: &Day) -> i64 {
    let number = i64::from(day.number);
    match window {
        // 1970-01-01 was a Thursday.
        LongWindow::Week => (number + 3).div_euclid(7),
        LongWindow::Month => {
            let date = chrono::DateTime::from_timestamp(number * 86_400, 0).expect("a date");
            date.format("%Y%m").to_string().parse().expect("digits")
        }
    }
}

/// Measures the forecast of a window on the test periods of a source.
pub fn evaluate_long(series: &[Series], window: LongWindow) -> LongFigures {
    let shares = shares_of_metric(series);
    let (mut cases, mut errors) = (Vec::new(), Vec::new());
    for of in series {
        let asked = questions(window, of.days.len());
        let periods = of.days.chunk_by(|one, other| number_of(window, one) == number_of(window, other));
        let mut days_before = 0;
        let full: Vec<&[Day]> = periods
            .filter(|days| {
                let is_warm = days_before >= asked.warm;
                days_before += days.len();
                is_warm && days.len() >= asked.days_min
            })
            .collect();
        if full.len() < asked.periods_min {
            continue;
        }
        let totals = full.iter().map(|days| days.iter().map(Day::total).sum());
        let limits = limits(totals, &asked.limits, 0.65);
        let tests = ((full.len() as f64 * 0.4).round_ties_even() as usize).max(1);
        let first_test = full[full.len() - tests][0].number;
        let mut profile = UsageProfile::new(&shares);
        let mut learned = of.days.iter();
        for days in full.into_iter().filter(|days| days[0].number >= first_test) {
            while let Some(day) = learned.as_slice().first().filter(|day| day.number < days[0].number) {
                learn(&mut profile, day);
                learned.next();
            }
            for limit in &limits {
                cases.extend(ask(window, profile.clone(), days, *limit, &asked, &mut errors));
            }
        }
    }
    figures(&cases, &errors)
}

fn questions(window: LongWindow, days: usize) -> Questions {
    match window {
        LongWindow::Week => Questions {
            limits: [0.8, 0.5],
            probability: 0.94,
            hours: &[6, 12, 18, 24],
            days_min: 7,
            warm: if days < 60 { 14 } else { 28 },
            periods_min: 2,
        },
        LongWindow::Month => {
            Questions { limits: [0.75, 0.5], probability: 0.9, hours: &[24], days_min: 27, warm: 30, periods_min: 4 }
        }
    }
}

/// Asks until the limit is reached; `None` if it is reached before the first question.
fn ask(
    window: LongWindow,
    mut profile: UsageProfile,
    days: &[Day],
    limit: u64,
    asked: &Questions,
    errors: &mut Vec<f64>,
) -> Option<Case> {
    let (mut before, mut reached_at) = (0, None);
    for (index, day) in days.iter().enumerate() {
        if before + day.total() >= limit {
            reached_at = day.reached_at(limit - before).map(|hour| index as f64 * 24.0 + hour);
            break;
        }
        before += day.total();
    }
    let (mut before, mut alert_at, mut is_asked) = (0, None, false);
    for (index, day) in days.iter().enumerate() {
        let cumulated = day.cumulated();
        for &hour in asked.hours {
            let used = before + cumulated[hour];
            if used >= limit {
                return is_asked.then_some(Case { reached_at, alert_at });
            }
            // At midnight the day is learned, and the next one begins.
            let (at, now) = match hour {
                24 => {
                    learn(&mut profile, day);
                    (index + 1, 0)
                }
                _ => (index, hour),
            };
            let Some(today) = days.get(at) else { continue };
            let today = DayUsage {
                weekday: today.weekday(),
                hour: now as f64,
                used: if now == 0 { 0 } else { cumulated[hour] },
            };
            let usage = LongUsage { today, days_before: count(at), days_after: count(days.len() - 1 - at), used };
            let probability = profile.forecast_long(window, usage, limit).probability;
            errors.push((probability - if reached_at.is_some() { 1.0 } else { 0.0 }).powi(2));
            is_asked = true;
            if probability >= asked.probability && alert_at.is_none() {
                alert_at = Some((index * 24 + hour) as f64);
            }
        }
        before += day.total();
    }
    Some(Case { reached_at, alert_at })
}

fn figures(cases: &[Case], errors: &[f64]) -> LongFigures {
    let alerts = cases.iter().filter(|case| case.alert_at.is_some()).count() as f64;
    let reached = cases.iter().filter(|case| case.reached_at.is_some()).count() as f64;
    let right = cases.iter().filter_map(|case| Some(case.reached_at? - case.alert_at?));
    let leads: Vec<f64> = right.collect();
    LongFigures {
        cases: cases.len(),
        brier: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
        precision: leads.len() as f64 / alerts.max(1.0),
        recall: leads.len() as f64 / reached.max(1.0),
        lead_h: median(leads),
    }
}
