//! The forecast compared with the reference implementation of its method, on all series of `benches/forecast/data`.

#[path = "../../benches/forecast/evaluation.rs"]
#[allow(dead_code, reason = "the bench shows all figures")]
mod evaluation;
#[path = "../../benches/forecast/long.rs"]
#[allow(dead_code, reason = "the bench shows all figures")]
mod long;
#[path = "../../benches/forecast/reference_figures.rs"]
mod reference_figures;
#[path = "../../benches/forecast/series.rs"]
mod series;

use std::collections::HashMap;

use chrono::Weekday;
use quotabell::forecast::{DayUsage, PastDays, UsageProfile};

use evaluation::{Rule, evaluate, spikes_per_30d};
use long::evaluate_long;
use reference_figures::{LONG_REFERENCE, REFERENCE, SPIKES_PER_30D};
use series::{Series, load, shares_of_metric};

/// A profile that has learned from all days of a series but the last.
fn learned(series: &Series, shares: &quotabell::forecast::profile::HourShares) -> UsageProfile {
    let mut profile = UsageProfile::new(shares);
    let (_, before) = series.days.split_last().expect("days");
    before.iter().for_each(|day| profile.learn(day.weekday(), &day.hours()));
    profile
}

/// Each profile, and what it says of the last day, agrees with the reference up to rounding.
#[test]
fn profiles_and_probabilities_agree_with_the_reference() {
    let mut sources: HashMap<String, HashMap<String, (Series, UsageProfile)>> = HashMap::new();
    for source in series::SOURCES {
        let all = load(source);
        let shares = shares_of_metric(&all);
        let with_profiles = all.into_iter().map(|of| {
            let profile = learned(&of, &shares);
            (of.name.clone(), (of, profile))
        });
        sources.insert(source.to_owned(), with_profiles.collect());
    }
    let reference = std::fs::read_to_string(series::file("reference.csv")).expect("part of the repository");
    let mut compared = 0;
    for line in reference.lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let [source, name, days, level, miss, week, hour, used, limit, reached, probability, times @ .., ratio] =
            &row[..]
        else {
            panic!("{line}")
        };
        let number = |text: &str| text.parse::<f64>().unwrap_or_else(|why| panic!("{line}: {text:?}: {why}"));
        let (series, profile) = &sources[*source][*name];
        let day = series.days.last().expect("a day");
        assert_eq!(f64::from(profile.days()), number(days), "{line}");
        assert!((profile.reliability() * 256.0 / 1.4 - number(miss)).abs() <= 1.0, "{line}: {profile:?}");
        for (at, factor) in (0_u8..).zip(week.split(' ')) {
            let (ours, theirs) =
                (profile.usual_day(Weekday::try_from(at).expect("below 7")), number(level) * number(factor) / 4096.0);
            assert!((ours - theirs).abs() <= 0.001 * theirs.max(1.0), "{line}: {ours} on weekday {at}");
        }
        let (reached, of) = reached.split_once('/').expect("a fraction");
        let past = PastDays { days: of.parse().expect("days"), reached: reached.parse().expect("days") };
        let usage = DayUsage { weekday: day.weekday(), hour: number(hour), used: used.parse().expect("units") };
        let forecast = profile.forecast_day(usage, limit.parse().expect("units"), Some(past));
        assert!((forecast.probability - number(probability)).abs() < 0.002, "{line}: {forecast:?}");
        assert!((forecast.pace_factor - number(ratio)).abs() < 0.001 * number(ratio).max(1.0), "{line}: {forecast:?}");
        let ours = [forecast.expected, forecast.earliest, forecast.latest];
        for (ours, theirs) in ours.into_iter().zip(times) {
            match ours {
                Some(ours) if !theirs.is_empty() => {
                    assert!((ours - number(theirs)).abs() < 0.02, "{line}: {forecast:?}")
                }
                // At the very end of a day a rounding decides whether there is a time.
                Some(ours) => assert!(ours > 23.9, "{line}: {forecast:?}"),
                None => assert!(theirs.is_empty() || number(theirs) > 23.9, "{line}: {forecast:?}"),
            }
        }
        compared += 1;
    }
    assert_eq!(compared, 3 * 156);
}

/// An alert in advance is right as often as that of the reference.
#[test]
fn figures_are_those_of_the_reference() {
    for (source, reference) in REFERENCE {
        let figures = evaluate(&load(source), Rule::Forecast);
        assert_eq!(figures.cases, reference.cases, "{source}");
        let pairs = [
            (figures.brier, reference.brier),
            (figures.precision, reference.precision),
            (figures.recall, reference.recall),
        ];
        for (ours, theirs) in pairs {
            assert!((ours - theirs).abs() <= 0.01, "{source}: {figures:?}");
        }
    }
}

/// Of weeks and months too. The reference kept what it had learned before a week until the week was over, so which
/// cases cross the probability differs more than the probabilities do.
#[test]
fn weeks_and_months_are_foreseen_as_by_the_reference() {
    for (window, source, reference) in LONG_REFERENCE {
        let figures = evaluate_long(&load(source), window);
        assert_eq!(figures.cases, reference.cases, "{window:?} {source}");
        assert!((figures.brier - reference.brier).abs() <= 0.005, "{window:?} {source}: {figures:?}");
        let pairs = [(figures.precision, reference.precision), (figures.recall, reference.recall)];
        for (ours, theirs) in pairs {
            assert!((ours - theirs).abs() <= 0.085, "{window:?} {source}: {figures:?}");
        }
    }
}

#[test]
fn spikes_are_as_rare_as_those_of_the_reference() {
    for (source, reference) in SPIKES_PER_30D {
        let ours = spikes_per_30d(&load(source));
        assert!((ours - reference).abs() <= 0.02, "{source}: {ours} instead of {reference}");
    }
}
