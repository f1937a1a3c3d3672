//! Reads the records of raised alerts of all subjects in slices, so that one call costs the server little however many
//! there are. Writes nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use redis::RedisResult;
use serde::{Deserialize, Serialize};

use super::batch::MetricPeriod;
use super::query::{StoredAlerts, metrics_of, run, scan_hashes};
use crate::redis_client::{Partition, Partitions, RedisClient};
use crate::types::keys::BUCKETS;
use crate::types::{Keys, Metric, Period};

/// Number of records after which a slice ends: about 4 MB of JSON. A bucket is read as a whole.
const RECORDS_MAX: usize = 5_000;
/// Metrics and periods whose hashes one call counts.
const COUNTED_AT_ONCE: usize = 16;
/// Maximum number of metrics and periods that one slice looks at: most have no alerts.
const LOOKED_AT_MAX: usize = 64;

/// The hash with which a slice begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisedPosition {
    partition: u32,
    metric: Metric,
    period: Period,
    bucket: u8,
}

/// A part of the records.
#[derive(Debug, Default)]
pub struct RaisedSlice {
    /// The records with their ends, unsorted. Those of a subject, metric and period are in one slice.
    pub alerts: StoredAlerts,
    /// The position of the next slice; `None` at the end.
    pub next: Option<RaisedPosition>,
}

/// Reads the next slice of the records in these periods: partition by partition, and in each the periods that end last
/// first. At most 16 calls for each partition, whatever the number of subjects.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn read_slice(
    partitions: &Partitions,
    periods: &[Period],
    metric: Option<&Metric>,
    from: Option<RaisedPosition>,
) -> RedisResult<RaisedSlice> {
    let mut slice = RaisedSlice::default();
    let mut left = LOOKED_AT_MAX;
    let first = from.as_ref().map_or(0, |from| from.partition);
    for partition in partitions.iter().filter(|partition| partition.number().get() >= first) {
        let from = from.as_ref().filter(|from| from.partition == partition.number().get());
        slice.next = read_partition(partition, periods, metric, from, &mut slice.alerts, &mut left).await?;
        if slice.next.is_some() {
            break;
        }
    }
    Ok(slice)
}

/// Adds the records of a partition, and returns the position at which it stopped.
async fn read_partition(
    Partition { client, keys }: &Partition,
    periods: &[Period],
    metric: Option<&Metric>,
    from: Option<&RaisedPosition>,
    alerts: &mut StoredAlerts,
    left: &mut usize,
) -> RedisResult<Option<RaisedPosition>> {
    let mut used = metrics_of(client, keys, periods).await?;
    used.retain(|of| metric.is_none_or(|metric| *metric == of.metric));
    let order = |metric: &Metric, period: Period| (Reverse(period.ends_everywhere()), period, metric.clone());
    used.sort_by_cached_key(|of| order(&of.metric, of.period));
    let start = from.map(|from| order(&from.metric, from.period));
    used.retain(|of| start.as_ref().is_none_or(|start| *start <= order(&of.metric, of.period)));
    let bucket_from = |of: &MetricPeriod| {
        from.filter(|from| from.metric == of.metric && from.period == of.period).map_or(0, |from| from.bucket)
    };
    let (mut found, mut hashes, mut next) = (alerts.records.len(), redis::pipe(), None);
    'all: for group in used.chunks(COUNTED_AT_ONCE) {
        let counts = lengths(client, keys, group).await?;
        for (of, counts) in group.iter().zip(counts.chunks(BUCKETS.into())) {
            let MetricPeriod { metric, period } = of;
            for (bucket, count) in (0..=u8::MAX).zip(counts).skip(bucket_from(of).into()) {
                if *left == 0 || found > 0 && found + count > RECORDS_MAX {
                    let partition = keys.partition().get();
                    next = Some(RaisedPosition { partition, metric: metric.clone(), period: *period, bucket });
                    break 'all;
                }
                if *count > 0 {
                    found += count;
                    hashes.cmd("HVALS").arg(keys.raised(metric, *period, bucket));
                }
            }
            *left -= 1;
        }
    }
    let read: Vec<Vec<String>> = run(client, &hashes).await?;
    read.into_iter().flatten().for_each(|text| alerts.add(text));
    Ok(next)
}

/// The number of fields in each hash of records, by metric and period and then by bucket.
async fn lengths(client: &RedisClient, keys: &Keys, of: &[MetricPeriod]) -> RedisResult<Vec<usize>> {
    let mut counts = redis::pipe();
    for MetricPeriod { metric, period } in of {
        (0..=u8::MAX).for_each(|bucket| {
            counts.cmd("HLEN").arg(keys.raised(metric, *period, bucket));
        });
    }
    run(client, &counts).await
}

/// The buckets of a metric and period that have records, each with the number of its fields.
pub async fn buckets_of(Partition { client, keys }: &Partition, of: &MetricPeriod) -> RedisResult<Vec<(u8, usize)>> {
    let lengths = lengths(client, keys, std::slice::from_ref(of)).await?;
    Ok((0..=u8::MAX).zip(lengths).filter(|(_, fields)| *fields > 0).collect())
}

/// The records of these buckets of a metric and period, read in slices.
pub async fn read_buckets(
    Partition { client, keys }: &Partition,
    MetricPeriod { metric, period }: &MetricPeriod,
    buckets: &[u8],
) -> RedisResult<StoredAlerts> {
    let hashes: Vec<String> = buckets.iter().map(|bucket| keys.raised(metric, *period, *bucket)).collect();
    let mut alerts = StoredAlerts::default();
    let found = scan_hashes(client, &hashes, "*").await?;
    found.into_iter().flat_map(BTreeMap::into_values).for_each(|text| alerts.add(text));
    Ok(alerts)
}
