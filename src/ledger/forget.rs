//! Removes the counters of a subject: the wrapper of `forget.lua`, and what needs no script.
//!
//! The worker caches totals and would write them back. So every removal of a counter also raises the erasure epoch
//! beside the checkpoint, and a commit that was built on an older epoch is `stale`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use redis::RedisResult;

use super::batch::MetricPeriod;
use super::daily_usage::archived_metrics;
use super::query::{StoredRecord, records_of, run};
use crate::redis_client::replace_field::replace_field;
use crate::redis_client::{Partition, Script};
use crate::subjects::Algorithm;
use crate::types::text::glob_literal;
use crate::types::{Branch, Keys, Metric, RaisedRecord, Subject, keys};
use quotabell_throttle::stored_key;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("forget.lua")));

/// Maximum number of counters per call: the call searches the records of a hash for each counter.
const COUNTERS_AT_ONCE: usize = 20;
/// Number of refused events per read: at most 16 fields of 1 KiB each, so a reply stays below 16 MB.
const REFUSED_AT_ONCE: usize = 500;
/// Number of actions per read.
const ACTIONS_AT_ONCE: usize = 1000;

/// The number of removed items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgottenCounts {
    /// Counters.
    pub counters: u64,
    /// Records of raised alerts.
    pub records: u64,
    /// Flags.
    pub flags: u64,
}

/// Removes the subject's counters among these, with its records and flags. A counter and its flags go at the same
/// moment: later usage raises alerts as if nothing had been used. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some items may already be removed.
pub async fn counts(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    counters: &[MetricPeriod],
) -> RedisResult<ForgottenCounts> {
    let bucket = keys::bucket(subject.as_str());
    let mut pipeline = redis::pipe();
    for of in counters {
        pipeline.cmd("HEXISTS").arg(keys.usage(&of.metric, of.period, bucket)).arg(subject.as_str());
    }
    let is_there: Vec<bool> = run(client, &pipeline).await?;
    let used: Vec<&MetricPeriod> =
        counters.iter().zip(is_there).filter_map(|(of, is_there)| is_there.then_some(of)).collect();
    let mut forgotten = ForgottenCounts::default();
    for used in used.chunks(COUNTERS_AT_ONCE) {
        let mut call = SCRIPT.call().key(keys.checkpoint());
        call = call.arg(subject.as_str()).arg(format!("*:{}", glob_literal(subject.as_str())));
        for MetricPeriod { metric, period } in used {
            call = call.key(keys.usage(metric, *period, bucket)).key(keys.raised(metric, *period, bucket));
            call = call.arg(&keys.flag_parts(subject, metric, *period));
        }
        let (counters, records, flags): (u64, u64, u64) = call.run(client).await?;
        forgotten.counters += counters;
        forgotten.records += records;
        forgotten.flags += flags;
    }
    Ok(forgotten)
}

/// Removes the subjects of a branch from the records of the alerts of a level above, in these periods. Repeatable. Call
/// it after [`counts`], because new alerts name subjects with counters.
///
/// # Errors
///
/// The error of Redis or of the connection; some records may already be changed.
pub async fn in_records(
    Partition { client, keys }: &Partition,
    level: &Subject,
    counters: &[MetricPeriod],
    branch: &Branch,
) -> RedisResult<()> {
    let without = |json: &str| {
        let mut record: RaisedRecord = serde_json::from_str(json).ok()?;
        record.forget(branch).then(|| serde_json::to_string(&record).expect("plain strings and numbers serialise"))
    };
    let bucket = keys::bucket(level.as_str());
    for (MetricPeriod { metric, period }, records) in
        counters.iter().zip(records_of(client, keys, level, counters).await?)
    {
        for StoredRecord { mut record, .. } in records.records {
            let field = Keys::raised_field(record.alert.threshold, level);
            if record.forget(branch) {
                replace_field(client, &keys.raised(metric, *period, bucket), &field, without).await?;
            }
        }
    }
    Ok(())
}

/// Removes the subject's history and returns the number of metrics. Repeatable. Call it after [`counts`], because
/// stream maintenance archives counters.
pub async fn history(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<u64> {
    let bucket = keys::bucket(subject.as_str());
    let mut pipeline = redis::pipe();
    for metric in archived_metrics(client, keys).await? {
        pipeline.cmd("HDEL").arg(keys.history(&metric, bucket)).arg(subject.as_str());
    }
    Ok(run::<u64>(client, &pipeline).await?.into_iter().sum())
}

/// Removes the subject's profiles in these metrics, and returns their number. Repeatable. Call it after [`counts`]:
/// what was read before that is not stored any more.
pub async fn profiles(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    metrics: &BTreeSet<Metric>,
) -> RedisResult<u64> {
    let mut pipeline = redis::pipe();
    for metric in metrics {
        pipeline.cmd("HDEL").arg(keys.profiles(metric, keys::bucket(subject.as_str()))).arg(subject.as_str());
    }
    Ok(run::<u64>(client, &pipeline).await?.into_iter().sum())
}

/// Every metric that the subject may have used recently: those of these counters, and those with a history.
pub async fn metrics(
    Partition { client, keys }: &Partition,
    counters: &[MetricPeriod],
) -> RedisResult<BTreeSet<Metric>> {
    let counted = counters.iter().map(|of| of.metric.clone());
    Ok(counted.chain(archived_metrics(client, keys).await?).collect())
}

/// Removes the subject's state in all limiters of the check API. Repeatable.
pub async fn limiters(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    metrics: &BTreeSet<Metric>,
) -> RedisResult<u64> {
    let mut pipeline = redis::pipe();
    for metric in metrics {
        for algorithm in Algorithm::ALL {
            pipeline.cmd("UNLINK").arg(&*stored_key(&keys.limiter(algorithm.as_str(), metric, subject)));
        }
    }
    Ok(run::<u64>(client, &pipeline).await?.into_iter().sum())
}

/// Removes a branch from the log of actions. Repeatable.
pub async fn actions(Partition { client, keys }: &Partition, branch: &Branch) -> RedisResult<u64> {
    client.remove_entries(&keys.actions(), ACTIONS_AT_ONCE, |values| branch.is_named_by(values)).await
}

/// Removes the refused events of a branch. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some events may already be removed.
pub async fn refused(Partition { client, keys }: &Partition, branch: &Branch) -> RedisResult<u64> {
    // Three fields of our own precede the event's fields.
    let is_of = |values: &[Vec<u8>]| values.get(6..).is_some_and(|of_event| branch.is_named_by(of_event));
    client.remove_entries(&keys.refused(), REFUSED_AT_ONCE, is_of).await
}
