//! A subject's usage per day: from counters that still exist, and from days that [`super::history`] archived.

use std::collections::{BTreeMap, BTreeSet};

use redis::RedisResult;

use super::batch::MetricPeriod;
use super::query::{metrics_of, run};
use crate::redis_client::{Partition, RedisClient, Scan};
use crate::types::{Day, Keys, Metric, Subject, UnixMs, keys};

/// Units by metric and day, without days on which nothing was used.
pub type DailyUsage = BTreeMap<Metric, BTreeMap<Day, u64>>;

/// Reads a subject's usage per day, of all metrics or of one. `counted` are the days that may still have counters; for
/// a day without a counter the archive counts.
pub async fn read(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    metric: Option<&Metric>,
    counted: &[Day],
) -> RedisResult<DailyUsage> {
    let bucket = keys::bucket(subject.as_str());
    let periods: Vec<_> = counted.iter().map(|day| (*day).into()).collect();
    let mut counters = metrics_of(client, keys, &periods).await?;
    counters.retain(|counter| metric.is_none_or(|metric| *metric == counter.metric));
    let metrics: BTreeSet<Metric> = match metric {
        Some(metric) => [metric.clone()].into(),
        None => archived_metrics(client, keys).await?.into_iter().collect(),
    };
    let (mut values, mut units) = (redis::pipe(), redis::pipe());
    for metric in &metrics {
        values.cmd("HGET").arg(keys.history(metric, bucket)).arg(subject.as_str());
    }
    for of in &counters {
        units.cmd("HGET").arg(keys.usage(&of.metric, of.period, bucket)).arg(subject.as_str());
    }
    let values: Vec<Option<Vec<u8>>> = run(client, &values).await?;
    let units: Vec<Option<u64>> = run(client, &units).await?;

    let mut usage = DailyUsage::new();
    for (metric, value) in metrics.into_iter().zip(values) {
        let days = value.map(|value| days_of(&value)).unwrap_or_default();
        usage.insert(metric, days.into_iter().collect());
    }
    for (of, units) in counters.into_iter().zip(units) {
        if let (Some(day), Some(units)) = (of.period.day(), units) {
            usage.entry(of.metric).or_default().insert(day, units);
        }
    }
    for days in usage.values_mut() {
        days.retain(|_, units| *units > 0);
    }
    usage.retain(|_, days| !days.is_empty());
    Ok(usage)
}

/// Dates before today in any zone whose counters may not be archived yet.
const DATES_BEFORE: u64 = 3;

/// Reads the days of subjects in metrics up to today in their zones, with two requests.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn read_each(
    Partition { client, keys }: &Partition,
    of: &[(&Subject, &Metric)],
    now: UnixMs,
) -> RedisResult<Vec<BTreeMap<Day, u64>>> {
    let last = Day::in_utc(now).and_then(Day::next);
    let dates = last.into_iter().flat_map(|last| (0..=DATES_BEFORE + 2).filter_map(move |back| last.before(back)));
    let counted: Vec<Day> = dates.collect();
    let (mut values, mut units) = (redis::pipe(), redis::pipe());
    for (subject, metric) in of {
        let bucket = keys::bucket(subject.as_str());
        values.cmd("HGET").arg(keys.history(metric, bucket)).arg(subject.as_str());
        for day in &counted {
            units.cmd("HGET").arg(keys.usage(metric, *day, bucket)).arg(subject.as_str());
        }
    }
    let values: Vec<Option<Vec<u8>>> = run(client, &values).await?;
    let units: Vec<Option<u64>> = run(client, &units).await?;
    let units = units.chunks(counted.len().max(1));
    let days = values.into_iter().zip(units).map(|(value, units)| {
        let mut days: BTreeMap<Day, u64> = value.map(|value| days_of(&value)).unwrap_or_default().into_iter().collect();
        days.extend(counted.iter().zip(units).filter_map(|(day, units)| Some((*day, (*units)?))));
        days
    });
    Ok(days.collect())
}

/// A field of a hash and its value.
type HashField = (Vec<u8>, Vec<u8>);
/// Units by subject and day, without days on which nothing was used.
pub type BucketUsage = BTreeMap<Subject, BTreeMap<Day, u64>>;

/// Reads the usage per day of all subjects of a bucket, of one metric, in slices. `counted` are the periods of this
/// metric that may still have counters; those that are no days are ignored.
pub async fn read_bucket(
    client: &RedisClient,
    keys: &Keys,
    metric: &Metric,
    bucket: u8,
    counted: &[MetricPeriod],
) -> RedisResult<BucketUsage> {
    let mut usage = BucketUsage::new();
    for (subject, value) in Scan::hash(&keys.history(metric, bucket)).all::<HashField>(client).await? {
        if let Ok(subject) = Subject::parse(&subject) {
            usage.entry(subject).or_default().extend(days_of(&value));
        }
    }
    for of in counted.iter().filter(|of| of.metric == *metric) {
        let Some(day) = of.period.day() else { continue };
        for (subject, units) in Scan::hash(&keys.usage(metric, of.period, bucket)).all::<HashField>(client).await? {
            let units = std::str::from_utf8(&units).ok().and_then(|units| units.parse().ok());
            if let (Ok(subject), Some(units)) = (Subject::parse(&subject), units) {
                usage.entry(subject).or_default().insert(day, units);
            }
        }
    }
    usage.values_mut().for_each(|days| days.retain(|_, units| *units > 0));
    usage.retain(|_, days| !days.is_empty());
    Ok(usage)
}

/// The metrics with a history, sorted.
pub async fn archived_metrics(client: &RedisClient, keys: &Keys) -> RedisResult<Vec<Metric>> {
    let names: Vec<String> = client.query(redis::cmd("ZRANGE").arg(keys.history_metrics()).arg(0).arg(-1)).await?;
    Ok(names.into_iter().filter_map(|name| name.parse().ok()).collect())
}

/// The days of a stored value: a MessagePack array of its newest day as days since 1970-01-01, and the units of that
/// day and of each earlier one. Omits unreadable parts. Pure.
fn days_of(mut value: &[u8]) -> Vec<(Day, u64)> {
    let Ok(length) = rmp::decode::read_array_len(&mut value) else { return Vec::new() };
    let mut number = || rmp::decode::read_int::<i64, _>(&mut value).ok();
    let Some(newest) = number() else { return Vec::new() };
    let mut days = Vec::new();
    for back in 0..i64::from(length.saturating_sub(1)) {
        let Some(units) = number() else { break };
        let day = newest.checked_sub(back).and_then(Day::of_epoch);
        days.extend(day.zip(u64::try_from(units).ok()));
    }
    days
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The format is part of the layout: other programs read it.
    #[test]
    fn a_value_is_its_newest_day_and_the_units_backwards() {
        // [20778, 5, 0, 300] in MessagePack.
        let value = [0x94, 0xcd, 0x51, 0x2a, 0x05, 0x00, 0xcd, 0x01, 0x2c];
        let days: Vec<(String, u64)> = days_of(&value).iter().map(|(day, units)| (day.to_string(), *units)).collect();
        assert_eq!(days, [("2026-11-21".into(), 5), ("2026-11-20".into(), 0), ("2026-11-19".into(), 300)]);
    }

    proptest! {
        /// Another program may have written arbitrary bytes.
        #[test]
        fn bytes_never_panic(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = days_of(&value);
        }
    }
}
