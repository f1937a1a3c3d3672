//! The hourly series that forecasts are measured on. `data/README.md` says where they come from.

use std::io::Read as _;
use std::path::PathBuf;

use chrono::Weekday;
use flate2::read::GzDecoder;
use quotabell::forecast::UsageProfile;
use quotabell::forecast::profile::{DayHours, HOURS, HourShares};

/// The sources in the order in which they are shown.
pub const SOURCES: [&str; 5] = ["nab", "akl", "flights", "ipsc", "synth"];

/// The usage of one subject.
pub struct Series {
    pub name: String,
    pub days: Vec<Day>,
}

/// A day with its units by hour.
pub struct Day {
    /// Days since 1970-01-01.
    pub number: i32,
    pub units: [u64; HOURS],
}

impl Day {
    pub fn weekday(&self) -> Weekday {
        // 1970-01-01 was a Thursday.
        let from_monday = (self.number + 3).rem_euclid(7);
        Weekday::try_from(u8::try_from(from_monday).expect("below 7")).expect("a weekday")
    }

    pub fn total(&self) -> u64 {
        self.units.iter().sum()
    }

    pub fn hours(&self) -> DayHours {
        let mut hours = DayHours::new(self.number);
        self.units.iter().enumerate().for_each(|(hour, units)| hours.set(hour, *units));
        hours
    }

    /// Units until each full hour, from 0 to 24.
    pub fn cumulated(&self) -> Vec<u64> {
        let sums = self.units.iter().scan(0, |sum, units| {
            *sum += units;
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }

    /// The hour at which a limit is reached, which is interpolated.
    pub fn reached_at(&self, limit: u64) -> Option<f64> {
        let cumulated = self.cumulated();
        let hour = cumulated.iter().position(|units| *units >= limit)?;
        let Some(before) = hour.checked_sub(1) else { return Some(0.0) };
        let units = (cumulated[hour] - cumulated[before]) as f64;
        Some(before as f64 + (limit - cumulated[before]) as f64 / units.max(1e-9))
    }
}

/// A file of `data/`.
pub fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "benches/forecast/data", name].iter().collect()
}

/// Reads the series of a source: a line with the name, then a line for each day, an empty number is 0.
pub fn load(source: &str) -> Vec<Series> {
    let packed = std::fs::read(file(&format!("{source}.csv.gz"))).expect("the series are part of the repository");
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("a whole file");
    let mut series: Vec<Series> = Vec::new();
    for line in text.lines() {
        let mut numbers = line.split(',');
        let (Some(first), Some(second)) = (numbers.next(), numbers.next()) else {
            series.push(Series { name: line.to_owned(), days: Vec::new() });
            continue;
        };
        let units: Vec<u64> = std::iter::once(second)
            .chain(numbers)
            .map(|units| if units.is_empty() { 0 } else { units.parse().expect("units") })
            .collect();
        let day = Day { number: first.parse().expect("a day"), units: units.try_into().expect("24 hours") };
        series.last_mut().expect("a name is first").days.push(day);
    }
    series
}

/// The first day that is asked for, and the first day of the test. The days in between chose the method's numbers.
pub fn split(days: usize) -> (usize, usize) {
    let warm = if days < 60 { 14 } else { 28 };
    (warm, warm + (days.saturating_sub(warm) as f64 * 0.4) as usize)
}

/// Learns from a day, and keeps what the daemon stores.
pub fn learn(profile: &mut UsageProfile, day: &Day) {
    profile.learn(day.weekday(), &day.hours());
    *profile = UsageProfile::from_stored(&profile.to_stored()).expect("it was just stored");
}

/// The mean share of each hour over the series of a source, from the days before their tests.
pub fn shares_of_metric(series: &[Series]) -> HourShares {
    let mut sums = [0.0; HOURS];
    for of in series {
        let days = &of.days[..split(of.days.len()).1];
        let total: u64 = days.iter().map(Day::total).sum();
        if total > 0 {
            for (hour, sum) in sums.iter_mut().enumerate() {
                *sum += days.iter().map(|day| day.units[hour]).sum::<u64>() as f64 / total as f64;
            }
        }
    }
    let all: f64 = sums.iter().sum();
    sums.map(|sum| sum / all)
}
