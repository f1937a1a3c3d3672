//! Reads the ledger for people: a subject's usage and the raised alerts. Writes nothing, and scans no keyspace.

use std::collections::{BTreeMap, BTreeSet};

use redis::{FromRedisValue, Pipeline, RedisResult, Value};

use super::batch::MetricPeriod;
use super::read_totals::{counter_of, no_count};
use crate::redis_client::{Partition, RedisClient};
use crate::types::text::glob_literal;
use crate::types::{
    Alert, AlertEnds, Keys, Metric, NotedEnds, Period, RaisedRecord, StreamId, Subject, UnixMs, alert_ends, keys,
};

/// Number of records per HSCAN call (COUNT).
const SCAN_COUNT: usize = 1000;

/// A subject's usage of a metric in a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodUsage {
    /// Metric and period.
    pub of: MetricPeriod,
    /// Used units; `None` if there is no counter.
    pub used: Option<u64>,
    /// Raised alerts, ascending by threshold and then by time, each with its state.
    pub alerts: Vec<Alert>,
}

/// The records of alerts of one or several quotas, as they are stored.
#[derive(Debug, Clone, Default)]
pub struct StoredAlerts {
    /// The records, unsorted.
    pub records: Vec<StoredRecord>,
    /// The ends beside them.
    pub ends: Vec<StoredEnds>,
}

/// A record, with the length of the text that holds it, in bytes.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StoredRecord {
    pub record: RaisedRecord,
    pub length: usize,
}

/// The ends of the alerts of a quota, with the text that holds them.
#[derive(Debug, Clone)]
pub struct StoredEnds {
    /// The stored JSON.
    pub text: String,
    /// The ends.
    pub ends: AlertEnds,
}

impl StoredAlerts {
    /// Adds the value of a field. One that can't be read counts as missing.
    pub(super) fn add(&mut self, text: String) {
        if let Ok(record) = serde_json::from_str(&text) {
            self.records.push(StoredRecord { record, length: text.len() });
        } else if let Ok(ends) = serde_json::from_str(&text) {
            self.ends.push(StoredEnds { text, ends });
        }
    }

    /// All alerts with their state at `now`, unsorted.
    pub fn into_stated(self, now: UnixMs) -> Vec<Alert> {
        let noted: NotedEnds = self.ends.into_iter().flat_map(|StoredEnds { ends, .. }| ends.ends).collect();
        self.records.into_iter().flat_map(|stored| alert_ends::stated(stored.record, &noted, now)).collect()
    }
}

/// Reads a subject's counts and alerts: of each metric that it used in one of these periods, and of those in `also`.
/// Sorted. `now` is server time.
pub async fn usage(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    periods: &[Period],
    also: &BTreeSet<MetricPeriod>,
    now: UnixMs,
) -> RedisResult<Vec<PeriodUsage>> {
    let mut asked: BTreeSet<MetricPeriod> = metrics_of(client, keys, periods).await?.into_iter().collect();
    asked.extend(also.iter().cloned());
    let asked: Vec<MetricPeriod> = asked.into_iter().collect();
    let bucket = keys::bucket(subject.as_str());
    let hash_of = |of: &MetricPeriod| keys.usage(&of.metric, of.period, bucket);
    let mut counters = redis::pipe();
    for of in &asked {
        counters.cmd("HGET").arg(hash_of(of)).arg(subject.as_str());
    }
    let texts: Vec<Option<String>> = run(client, &counters).await?;
    let counts = asked.iter().zip(texts).map(|(of, text)| {
        let count = |text: String| counter_of(&text).ok_or_else(|| no_count(&hash_of(of), subject));
        text.map(count).transpose()
    });
    let counts: Vec<Option<u64>> = counts.collect::<RedisResult<_>>()?;
    let records = records_of(client, keys, subject, &asked).await?;
    let usages = asked.into_iter().zip(counts).zip(records).map(|((of, used), mut stored)| {
        stored.records.sort_by_key(|stored| stored.record.alert.threshold);
        PeriodUsage { of, used, alerts: stored.into_stated(now) }
    });
    // A metric that only others used is irrelevant for this subject.
    Ok(usages.filter(|usage| usage.used.is_some() || !usage.alerts.is_empty() || also.contains(&usage.of)).collect())
}

/// The count of a subject; `None` if there is no counter.
pub async fn used(partition: &Partition, subject: &Subject, of: &MetricPeriod) -> RedisResult<Option<u64>> {
    Ok(used_each(partition, &[(subject, of.clone())]).await?.pop().flatten())
}

/// The counts of subjects of a partition, with one request; `None` where there is no counter.
pub async fn used_each(
    Partition { client, keys }: &Partition,
    of: &[(&Subject, MetricPeriod)],
) -> RedisResult<Vec<Option<u64>>> {
    let key = |(subject, MetricPeriod { metric, period }): &(&Subject, MetricPeriod)| {
        keys.usage(metric, *period, keys::bucket(subject.as_str()))
    };
    let mut counts = redis::pipe();
    for of in of {
        counts.cmd("HGET").arg(key(of)).arg(of.0.as_str());
    }
    let counts: Vec<Option<String>> = run(client, &counts).await?;
    let read = |(of, text): (&(&Subject, MetricPeriod), Option<String>)| {
        text.map(|text| counter_of(&text).ok_or_else(|| no_count(&key(of), of.0))).transpose()
    };
    of.iter().zip(counts).map(read).collect()
}

/// Reads the alerts of a subject in these periods, unsorted, each with its state at `now`, server time.
pub async fn alerts_of(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    periods: &[Period],
    now: UnixMs,
) -> RedisResult<Vec<Alert>> {
    let used = metrics_of(client, keys, periods).await?;
    let records = records_of(client, keys, subject, &used).await?;
    Ok(records.into_iter().flat_map(|stored| stored.into_stated(now)).collect())
}

/// Reads all alerts of these periods, oldest first, each with its state at `now`, server time. The work is proportional
/// to their number.
pub async fn alerts(
    Partition { client, keys }: &Partition,
    periods: &[Period],
    now: UnixMs,
) -> RedisResult<Vec<Alert>> {
    let mut alerts: Vec<Alert> = Vec::new();
    for of in metrics_of(client, keys, periods).await? {
        let mut hashes = redis::pipe();
        for bucket in 0..=u8::MAX {
            hashes.cmd("HVALS").arg(keys.raised(&of.metric, of.period, bucket));
        }
        let buckets: Vec<Vec<String>> = run(client, &hashes).await?;
        let mut stored = StoredAlerts::default();
        buckets.into_iter().flatten().for_each(|text| stored.add(text));
        alerts.extend(stored.into_stated(now));
    }
    alerts.sort_by(|a, b| (a.raised_at_ms, &a.id).cmp(&(b.raised_at_ms, &b.id)));
    Ok(alerts)
}

/// The metrics that any subject used in each of these periods.
pub async fn metrics_of(client: &RedisClient, keys: &Keys, periods: &[Period]) -> RedisResult<Vec<MetricPeriod>> {
    let mut sets = redis::pipe();
    for period in periods {
        sets.cmd("SMEMBERS").arg(keys.metrics(*period));
    }
    let sets: Vec<Vec<String>> = run(client, &sets).await?;
    let metrics = periods.iter().zip(sets).flat_map(|(period, names)| {
        let metrics = names.into_iter().filter_map(|name| name.parse::<Metric>().ok());
        metrics.map(|metric| MetricPeriod { metric, period: *period }).collect::<BTreeSet<_>>()
    });
    Ok(metrics.collect())
}

/// The records of a subject, with their ends. A raised threshold may no longer be configured, so HSCAN searches each
/// hash by subject in slices, instead of reading the configured thresholds.
pub async fn records_of(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    asked: &[MetricPeriod],
) -> RedisResult<Vec<StoredAlerts>> {
    let (bucket, pattern) = (keys::bucket(subject.as_str()), format!("*:{}", glob_literal(subject.as_str())));
    let hashes: Vec<String> = asked.iter().map(|of| keys.raised(&of.metric, of.period, bucket)).collect();
    let found = scan_hashes(client, &hashes, &pattern).await?;
    let of_subject = |texts: BTreeMap<String, String>| {
        let mut stored = StoredAlerts::default();
        texts.into_values().for_each(|text| stored.add(text));
        // The subject may be a suffix of another subject's field.
        stored.records.retain(|stored| stored.record.alert.subject == *subject);
        stored.ends.retain(|stored| stored.ends.subject == *subject);
        stored
    };
    Ok(found.into_iter().map(of_subject).collect())
}

/// The fields of these hashes that match the pattern, read in slices, so that no call takes long.
pub(super) async fn scan_hashes(
    client: &RedisClient,
    hashes: &[String],
    pattern: &str,
) -> RedisResult<Vec<BTreeMap<String, String>>> {
    // By field, because HSCAN may return one twice.
    let mut found: Vec<BTreeMap<String, String>> = vec![BTreeMap::new(); hashes.len()];
    let mut unfinished: Vec<(usize, u64)> = (0..hashes.len()).map(|at| (at, 0)).collect();
    while !unfinished.is_empty() {
        let mut slices = redis::pipe();
        for (at, cursor) in &unfinished {
            slices.cmd("HSCAN").arg(&hashes[*at]).arg(*cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
        }
        let slices: Vec<(u64, Vec<(String, String)>)> = run(client, &slices).await?;
        for ((at, cursor), (next, fields)) in unfinished.iter_mut().zip(slices) {
            found[*at].extend(fields);
            *cursor = next;
        }
        unfinished.retain(|(_, cursor)| *cursor != 0);
    }
    Ok(found)
}

/// Runs the pipeline and returns its replies with this type. An empty pipeline sends nothing.
pub(super) async fn run<T: FromRedisValue>(client: &RedisClient, pipeline: &Pipeline) -> RedisResult<Vec<T>> {
    if pipeline.is_empty() { Ok(Vec::new()) } else { client.pipe(pipeline).await }
}

/// Number of added entries that are not committed yet.
pub async fn lag(client: &RedisClient, keys: &Keys) -> RedisResult<u64> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("EXISTS").arg(keys.stream());
    pipeline.cmd("HGET").arg(keys.checkpoint()).arg("entries_read");
    let (exists, read): (bool, Option<u64>) = client.pipe(&pipeline).await?;
    if !exists {
        return Ok(0);
    }
    let info: std::collections::HashMap<String, Value> =
        client.query(redis::cmd("XINFO").arg("STREAM").arg(keys.stream())).await?;
    let number =
        |name: &str| info.get(name).and_then(|value| redis::from_redis_value_ref::<u64>(value).ok()).unwrap_or(0);
    // Before the first commit, trimmed entries count as read (as in `audit.lua`).
    let read = read.unwrap_or_else(|| number("entries-added").saturating_sub(number("length")));
    Ok(number("entries-added").saturating_sub(read))
}

/// When the last counted entry was appended, by its id; `None` if nothing was counted yet.
pub async fn counted_until(client: &RedisClient, keys: &Keys) -> RedisResult<Option<UnixMs>> {
    let id: Option<String> = client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg("id")).await?;
    let id: Option<StreamId> = id.and_then(|id| id.parse().ok());
    Ok(id.map(|id| UnixMs(i64::try_from(id.ms).unwrap_or(i64::MAX))))
}
