//! The wrapper of `history.lua`: the counters of a day that is over become one compact value for each subject and
//! metric.
//!
//! Which days are left is known from the periods that were written, and after a start from the days that may still have
//! counters. Each slice stores how far its day is archived, so a daemon that is killed loses nothing and does nothing
//! twice. Read next: [`super::daily_usage`], where the values are read.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use redis::RedisResult;
use serde::{Deserialize, Serialize};

use crate::redis_client::{RedisClient, Script};
use crate::types::keys::BUCKETS;
use crate::types::{Day, Keys, Metric, UnixMs};

use super::totals::{COUNTER_TTL_S, SPREAD_S};

/// So many buckets of a metric are offered to one call: all that it may write has to be named.
const BUCKETS_AT_ONCE: u32 = 64;
/// A call looks at about so many counters where 90 days are kept. Each takes the server 15 us, most of it to unpack and
/// pack a value.
const COUNTERS_AT_ONCE: u32 = 100;
/// As many metrics are looked for in the history at once.
const METRICS_AT_ONCE: usize = 1_000;
/// What it costs to begin a day, in counters.
const BEGIN_COST: u32 = 10;
/// The steps of a metric: two for each bucket.
const STEPS: u32 = 2 * BUCKETS as u32;
/// How long it is known how far a day was archived: as long as it may have counters.
const PROGRESS_TTL_S: u64 = COUNTER_TTL_S + 3 * 86_400;

/// The section `[history]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryConfig {
    /// How many days are kept; 0: none.
    pub days: u32,
}

/// Archives days of one partition.
#[derive(Debug)]
pub struct HistoryArchiver {
    keys: Keys,
    days: u32,
    script: Script,
    /// Days that may have counters which are not archived.
    pending: BTreeMap<Day, ArchiveStart>,
    current: Option<DayInProgress>,
    /// Days of which nothing is archived, as far as this process knows and nobody else archives.
    unarchived: BTreeSet<Day>,
}

/// Where the archiving of a day begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchiveStart {
    /// At its first counter: what was archived may have changed.
    Anew,
    /// Where it was left.
    Resumed,
}

#[derive(Debug)]
struct DayInProgress {
    day: Day,
    /// The metrics that are not done.
    metrics: Vec<Metric>,
    /// The step of the last one of them.
    step: u32,
}

impl HistoryArchiver {
    /// For the partition with these keys; `None` where no history is kept.
    pub fn new(keys: Keys, config: HistoryConfig) -> Option<Self> {
        let script = Script::with_prelude(include_str!("history.lua"));
        let (pending, unarchived) = (BTreeMap::new(), BTreeSet::new());
        let archiver = Self { keys, days: config.days, script, pending, current: None, unarchived };
        (config.days > 0).then_some(archiver)
    }

    /// Another process may have archived meanwhile.
    pub fn begin_session(&mut self) {
        self.unarchived.clear();
    }

    /// Counters of this day are about to be written, and some of it may be archived: has all of it archived again.
    /// Written down before they are, so that a process which is killed behind its commit leaves no counter that nobody
    /// archives. Repeatable.
    pub async fn before_commit(&mut self, client: &RedisClient, day: Day) -> RedisResult<()> {
        if !self.unarchived.contains(&day) {
            let () = client.query(redis::cmd("UNLINK").arg(self.keys.history_progress(day))).await?;
            self.unarchived.insert(day);
        }
        Ok(())
    }

    /// A process before this one may have left counters of this day.
    pub fn assume_counters(&mut self, day: Day) {
        self.pending.entry(day).or_insert(ArchiveStart::Resumed);
    }

    /// Counters of this day were written.
    pub fn after_commit(&mut self, day: Day) {
        self.pending.insert(day, ArchiveStart::Anew);
        if self.current.as_ref().is_some_and(|current| current.day == day) {
            self.current = None;
        }
    }

    /// Whether counters of the day may be lost if they expire now.
    pub fn is_pending(&self, day: Day) -> bool {
        self.pending.contains_key(&day)
    }

    /// The oldest day that is not archived.
    pub fn next(&self) -> Option<Day> {
        self.pending.keys().next().copied()
    }

    /// How many metrics of the day that is being archived are left; 0 before it has begun.
    pub fn metrics_left(&self) -> usize {
        self.current.as_ref().map_or(0, |current| current.metrics.len())
    }

    /// The days that are not archived.
    pub fn days_left(&self) -> impl Iterator<Item = Day> {
        self.pending.keys().copied()
    }

    /// Archives a slice of the oldest day; `now` is server time. Bounded work. Repeatable. Says what it cost the
    /// server, about: in counters that are archived.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; the next call goes on where the last one ended.
    pub async fn archive(&mut self, client: &RedisClient, now: UnixMs) -> RedisResult<u32> {
        let Some(day) = self.next() else { return Ok(0) };
        let mut cost = BEGIN_COST;
        // Of a day that is too old nothing is kept.
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

    /// Looks what is left of a day.
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
        // They are taken from the end. Names that somebody invents anew each day must not hold up the others.
        let known = self.metrics_with_history(client, day, &metrics).await?;
        metrics.sort_by_cached_key(|metric| known.contains(metric));
        let step = metrics.last().and_then(|metric| reached.get(metric.as_str())).map_or(0, |reached| step_of(reached));
        Ok(DayInProgress { day, metrics, step })
    }

    /// Those of the metrics that have a history of earlier days.
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
        let mut call = self.script.call().key(self.keys.history_progress(day)).key(self.keys.history_metrics());
        for bucket in (first..u32::from(BUCKETS)).take(BUCKETS_AT_ONCE as usize) {
            let bucket = u8::try_from(bucket).unwrap_or(u8::MAX);
            call = call.key(self.keys.usage(metric, day, bucket)).key(self.keys.history(metric, bucket));
        }
        let counters = (COUNTERS_AT_ONCE * 90 / self.days).clamp(10, COUNTERS_AT_ONCE);
        call.arg(metric.as_str())
            .arg(first)
            .arg(day.since_epoch())
            .arg(self.days)
            .arg(counters)
            .arg(PROGRESS_TTL_S)
            .arg(u64::from(self.days) * 86_400)
            .arg(SPREAD_S)
            .run(client)
            .await
    }
}

/// The step in `<step>:<cursor>:<server>`.
fn step_of(reached: &str) -> u32 {
    reached.split(':').next().and_then(|step| step.parse().ok()).unwrap_or(0)
}
