//! The wrapper of `history.lua`: archives the counters of a past day as one compact value per subject and metric.
//!
//! The archiver learns the remaining days from the periods that were written and, after a start, from the days that may
//! still have counters. Each slice stores the progress of its day, so a killed daemon loses nothing and repeats
//! nothing. Read next: [`super::daily_usage`], which reads the values.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::LazyLock;

use redis::RedisResult;
use serde::{Deserialize, Serialize};

use crate::redis_client::{RedisClient, Script};
use crate::types::keys::BUCKETS;
use crate::types::{Day, Keys, Metric, UnixMs};

use super::totals::{COUNTER_TTL_S, SPREAD_S};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("history.lua")));

/// Number of buckets of a metric per call: a call has to name all keys that it may write.
const BUCKETS_AT_ONCE: u32 = 64;
/// Approximate number of counters per call if 90 days are kept. Each counter takes the server 15 us, most of it to
/// unpack and pack a value.
const COUNTERS_AT_ONCE: u32 = 100;
/// Number of metrics per lookup in the history.
const METRICS_AT_ONCE: usize = 1_000;
/// Cost of starting a day, in counters.
const BEGIN_COST: u32 = 10;
/// Number of steps of a metric: two per bucket.
const STEPS: u32 = 2 * BUCKETS as u32;
/// Lifetime of a day's stored progress: as long as the day may have counters.
const PROGRESS_TTL_S: u64 = COUNTER_TTL_S + 3 * 86_400;

/// The section `[history]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryConfig {
    /// Number of days to keep; 0 for none.
    pub days: u32,
    /// How long a month of the log of alerts is kept after its end, days.
    pub alerts_days: u32,
}

/// Archives days of one partition.
#[derive(Debug)]
pub struct HistoryArchiver {
    keys: Keys,
    days: u32,
    /// Days that may have unarchived counters.
    pending: BTreeMap<Day, ArchiveStart>,
    current: Option<DayInProgress>,
    /// Days without archived counters, as far as this process knows. Valid while no other process archives.
    unarchived: BTreeSet<Day>,
}

/// The position at which the archiving of a day starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchiveStart {
    /// At the first counter: archived counters may have changed.
    Anew,
    /// At the stored progress.
    Resumed,
}

#[derive(Debug)]
struct DayInProgress {
    day: Day,
    /// The unfinished metrics.
    metrics: Vec<Metric>,
    /// The step of the last one of them.
    step: u32,
}

impl HistoryArchiver {
    /// An archiver for the partition with these keys. If no history is kept, no day is ever pending.
    pub fn new(keys: Keys, config: HistoryConfig) -> Self {
        let (pending, unarchived) = (BTreeMap::new(), BTreeSet::new());
        Self { keys, days: config.days, pending, current: None, unarchived }
    }

    /// Starts a session: another process may have archived meanwhile.
    pub fn begin_session(&mut self) {
        self.unarchived.clear();
    }

    /// Call it before counters of a day are written: if a part of the day is already archived, the whole day will be
    /// archived again. It stores that before the write, so that a process killed after its commit leaves no counter
    /// that nobody archives. Repeatable.
    pub async fn before_commit(&mut self, client: &RedisClient, day: Day) -> RedisResult<()> {
        if self.days > 0 && !self.unarchived.contains(&day) {
            let () = client.query(redis::cmd("UNLINK").arg(self.keys.history_progress(day))).await?;
            self.unarchived.insert(day);
        }
        Ok(())
    }

    /// Assumes that an earlier process left counters of this day.
    pub fn assume_counters(&mut self, day: Day) {
        if self.days > 0 {
            self.pending.entry(day).or_insert(ArchiveStart::Resumed);
        }
    }

    /// Records that counters of this day were written.
    pub fn after_commit(&mut self, day: Day) {
        if self.days == 0 {
            return;
        }
        self.pending.insert(day, ArchiveStart::Anew);
        if self.current.as_ref().is_some_and(|current| current.day == day) {
            self.current = None;
        }
    }

    /// Whether counters of the day would be lost if they expired now.
    pub fn is_pending(&self, day: Day) -> bool {
        self.pending.contains_key(&day)
    }

    /// The oldest unarchived day.
    pub fn next(&self) -> Option<Day> {
        self.pending.keys().next().copied()
    }

    /// Number of remaining metrics of the day in progress; 0 before it starts.
    pub fn metrics_left(&self) -> usize {
        self.current.as_ref().map_or(0, |current| current.metrics.len())
    }

    /// The unarchived days.
    pub fn days_left(&self) -> impl Iterator<Item = Day> {
        self.pending.keys().copied()
    }

    /// Archives a slice of the oldest day; `now` is server time. The day's counters live until all of it is archived.
    /// Bounded work. Repeatable. Returns the approximate cost for the server, in archived counters.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection; the next call continues at the same place.
    pub async fn archive(&mut self, client: &RedisClient, now: UnixMs) -> RedisResult<u32> {
        let Some(day) = self.next() else { return Ok(0) };
        let mut cost = BEGIN_COST;
        // Days beyond the configured number are not archived.
        let oldest = Day::in_utc(now).and_then(|today| today.before(u64::from(self.days)));
        let mut current = match self.current.take().filter(|current| current.day == day) {
            Some(current) => current,
            None if oldest.is_some_and(|oldest| day < oldest) => DayInProgress { day, metrics: Vec::new(), step: 0 },
            None => self.begin(client, day).await?,
        };
        if let Some(metric) = current.metrics.last() {
            self.unarchived.remove(&day);
            (current.step, cost) = self.archive_slice(client, day, metric, current.step).await?;
            if current.step >= STEPS {
                current.metrics.pop();
                current.step = 0;
            }
        }
        if current.metrics.is_empty() {
            self.pending.remove(&day);
        } else {
            self.current = Some(current);
        }
        Ok(cost)
    }

    /// Finds the unarchived metrics of a day.
    async fn begin(&mut self, client: &RedisClient, day: Day) -> RedisResult<DayInProgress> {
        let progress = self.keys.history_progress(day);
        if self.pending.get(&day) == Some(&ArchiveStart::Anew) {
            let () = client.query(redis::cmd("UNLINK").arg(&progress)).await?;
            self.pending.insert(day, ArchiveStart::Resumed);
        }
        let mut pipeline = redis::pipe();
        pipeline.cmd("SMEMBERS").arg(self.keys.metrics(day)).cmd("HGETALL").arg(&progress);
        let (metrics, reached): (Vec<String>, BTreeMap<String, String>) = client.pipe(&pipeline).await?;
        let is_done = |metric: &String| reached.get(metric).is_some_and(|reached| step_of(reached) >= STEPS);
        let left = metrics.into_iter().filter(|metric| !is_done(metric)).filter_map(|metric| metric.parse().ok());
        let mut metrics: Vec<Metric> = left.collect();
        // The metrics are processed from the end. Metrics that a producer invents every day must not delay the others.
        let known = self.metrics_with_history(client, day, &metrics).await?;
        metrics.sort_by_cached_key(|metric| known.contains(metric));
        let step = metrics.last().and_then(|metric| reached.get(metric.as_str())).map_or(0, |reached| step_of(reached));
        Ok(DayInProgress { day, metrics, step })
    }

    /// The metrics that have a history of earlier days.
    async fn metrics_with_history(
        &self,
        client: &RedisClient,
        day: Day,
        metrics: &[Metric],
    ) -> RedisResult<HashSet<Metric>> {
        let mut known = HashSet::new();
        for metrics in metrics.chunks(METRICS_AT_ONCE) {
            let mut pipeline = redis::pipe();
            for metric in metrics {
                pipeline.cmd("ZSCORE").arg(self.keys.history_metrics()).arg(metric.as_str());
            }
            let newest: Vec<Option<i64>> = client.pipe(&pipeline).await?;
            let earlier = |newest: &Option<i64>| newest.is_some_and(|newest| newest < day.since_epoch());
            known.extend(
                metrics.iter().zip(newest).filter(|(_, newest)| earlier(newest)).map(|(metric, _)| metric.clone()),
            );
        }
        Ok(known)
    }

    async fn archive_slice(
        &self,
        client: &RedisClient,
        day: Day,
        metric: &Metric,
        step: u32,
    ) -> RedisResult<(u32, u32)> {
        let first = step / 2;
        let mut call = SCRIPT.call().key(self.keys.history_progress(day)).key(self.keys.history_metrics());
        for bucket in (first..u32::from(BUCKETS)).take(BUCKETS_AT_ONCE as usize) {
            let bucket = u8::try_from(bucket).unwrap_or(u8::MAX);
            call = call.key(self.keys.usage(metric, day, bucket)).key(self.keys.history(metric, bucket));
        }
        let counters = (COUNTERS_AT_ONCE * 90 / self.days).clamp(10, COUNTERS_AT_ONCE);
        call = call.arg(metric.as_str()).arg(first).arg(day.since_epoch()).arg(self.days).arg(counters);
        call.arg(PROGRESS_TTL_S).arg(u64::from(self.days) * 86_400).arg(SPREAD_S).run(client).await
    }
}

/// The step in `<step>:<cursor>:<server>`.
fn step_of(reached: &str) -> u32 {
    reached.split(':').next().and_then(|step| step.parse().ok()).unwrap_or(0)
}
