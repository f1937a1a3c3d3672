//! Reading the books for people: the counts of one subject in a period, and the alerts of a period. Writes nothing, scans nothing.

use std::collections::BTreeSet;

use redis::{RedisResult, Value};

use crate::types::percent::PERCENT_MAX;
use crate::types::{Alert, Keys, Metric, Percent, Period, RaisedRecord, Subject, keys};
use crate::wire::RedisClient;

/// One metric of a subject in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricUsage {
    /// The metric.
    pub metric: Metric,
    /// Units used; `None` where there is no counter.
    pub used: Option<u64>,
    /// Alerts raised, ascending by threshold.
    pub alerts: Vec<Alert>,
}

/// Reads a subject's counts and alerts of a period: of each metric that anybody used in it and of those in `also`.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn usage(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    period: Period,
    also: &[Metric],
) -> RedisResult<Vec<MetricUsage>> {
    let mut metrics: BTreeSet<Metric> = metrics_of(client, keys, &[period]).await?.into_iter().flatten().collect();
    metrics.extend(also.iter().cloned());
    let bucket = keys::bucket(subject.as_str());
    // A threshold that was raised may have left the configuration since, so every possible one is asked for.
    let fields: Vec<String> =
        (1..=PERCENT_MAX).filter_map(Percent::new).map(|percent| Keys::raised_field(percent, subject)).collect();
    let mut pipeline = redis::pipe();
    for metric in &metrics {
        pipeline.cmd("HGET").arg(keys.usage(metric, period, bucket)).arg(subject.as_str());
        pipeline.cmd("HMGET").arg(keys.raised(metric, period, bucket)).arg(&fields);
    }
    if metrics.is_empty() {
        return Ok(Vec::new());
    }
    let replies: Vec<Value> = client.pipe(&pipeline).await?;
    let mut replies = replies.into_iter();
    let mut usages = Vec::new();
    for metric in metrics {
        let used: Option<u64> = redis::from_redis_value(replies.next().unwrap_or(Value::Nil))?;
        let records: Vec<Option<String>> = redis::from_redis_value(replies.next().unwrap_or(Value::Nil))?;
        let alerts: Vec<Alert> = records
            .into_iter()
            .flatten()
            .filter_map(|text| serde_json::from_str(&text).ok())
            .map(|record: RaisedRecord| record.alert)
            .collect();
        // A metric that only others used says nothing about this subject.
        if used.is_some() || !alerts.is_empty() || also.contains(&metric) {
            usages.push(MetricUsage { metric, used, alerts });
        }
    }
    Ok(usages)
}

/// Reads the newest alert of each percentage of these periods, oldest first. Work is bounded by what they raised.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn alerts(client: &RedisClient, keys: &Keys, periods: &[Period]) -> RedisResult<Vec<Alert>> {
    let mut alerts: Vec<Alert> = Vec::new();
    let metrics = metrics_of(client, keys, periods).await?;
    for (period, metric) in periods
        .iter()
        .zip(metrics)
        .flat_map(|(period, metrics)| metrics.into_iter().map(move |metric| (*period, metric)))
    {
        let mut pipeline = redis::pipe();
        for bucket in 0..=u8::MAX {
            pipeline.cmd("HVALS").arg(keys.raised(&metric, period, bucket));
        }
        let buckets: Vec<Vec<String>> = client.pipe(&pipeline).await?;
        alerts.extend(
            buckets
                .into_iter()
                .flatten()
                .filter_map(|text| serde_json::from_str::<RaisedRecord>(&text).ok())
                .map(|record| record.alert),
        );
    }
    alerts.sort_by(|a, b| (a.raised_at_ms, &a.id).cmp(&(b.raised_at_ms, &b.id)));
    Ok(alerts)
}

/// The metrics that anybody used, for each of these periods.
async fn metrics_of(client: &RedisClient, keys: &Keys, periods: &[Period]) -> RedisResult<Vec<Vec<Metric>>> {
    if periods.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = redis::pipe();
    for period in periods {
        pipeline.cmd("SMEMBERS").arg(keys.metrics(*period));
    }
    let names: Vec<Vec<String>> = client.pipe(&pipeline).await?;
    Ok(names.iter().map(|names| names.iter().filter_map(|name| name.parse().ok()).collect()).collect())
}

/// How far the reading is behind: entries that were added and are not committed yet.
///
/// # Errors
///
/// What Redis or the connection said.
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
    // Before the first commit, what was trimmed counts as read (as `commit.lua` will count it).
    let read = read.unwrap_or_else(|| number("entries-added").saturating_sub(number("length")));
    Ok(number("entries-added").saturating_sub(read))
}
