//! The worker's cached counters: the current total of each, and the count at which it must be judged next.
//!
//! A worker that commits after a checkpoint knows that nobody else has committed since. So a counter that was read once
//! stays valid until another worker commits, and each commit contains its new value. The cache is bounded by the cached
//! subjects: evicting a subject evicts its rows. Pure. Read next: [`super::read_totals`], which reads counters.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::types::keys::BUCKETS;
use crate::types::{Metric, Period, UnixMs, Window};

use super::batch::MetricPeriod;

/// A TTL is renewed after this time, because EXPIRE costs the server as much as counting.
const TTL_REFRESH_MS: u64 = 60_000;
/// Lifetime of counters and records after their last write.
pub const COUNTER_TTL_S: u64 = 14 * 86_400;
/// Minimum lifetime after their period is over in every zone.
pub const CLOSED_TTL_S: u64 = 48 * 3_600;
/// Difference between the expiry of neighboring buckets, so that the server frees them one by one.
pub const SPREAD_S: u64 = 10;
/// Number of periods of one window that the cache keeps per subject and metric: the newest, and the previous one for
/// late events.
const PERIODS_KEPT: usize = 2;
/// Maximum number of cached metric periods. Beyond it the worker empties the cache.
const METRIC_PERIODS_MAX: usize = 20_000;
/// Maximum number of rows per cached subject, on average.
const ROWS_PER_SUBJECT: usize = 16;

const NONE: u32 = u32::MAX;

/// A cached counter.
#[derive(Debug, Clone, Copy)]
pub struct CachedCounter {
    /// Units, including those of the batch under construction.
    pub total: u64,
    /// The count from which an alert may be due; [`super::thresholds::NO_THRESHOLD`] for never.
    pub next_threshold_units: u64,
    /// End of its period in the subject's zone.
    pub end: UnixMs,
    /// Version of the subject's settings from which the next threshold was computed; the caller numbers versions.
    pub settings_version: u32,
    /// The last batch that changed it; the caller numbers batches.
    pub changed_in_batch: u64,
    /// Its index among the rows that this batch changed.
    pub changed_index: u32,
    /// The last batch that looked it up; the entries that need it may not be added yet.
    pub needed_by_batch: u64,
    key: RowKey,
    /// The next row of the same subject.
    next_of_subject: u32,
}

/// The identity of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Index of its subject.
    pub subject_index: u32,
    /// Its hash, from [`CounterCache::hash_id`].
    pub hash_id: u32,
}

/// A metric in a period, with the time at which the TTL of its hashes was set.
#[derive(Debug)]
struct Counters {
    of: MetricPeriod,
    refreshed: Box<[i64; BUCKETS as usize]>,
    /// When the metric was added to the period's set of metrics.
    listed: i64,
}

/// The rows.
#[derive(Debug, Default)]
pub struct CounterCache {
    rows: Vec<CachedCounter>,
    vacant: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
    /// The first row of each subject, by the subject's index.
    first: Vec<u32>,
    metrics: Vec<Metric>,
    metric_ids: HashMap<Metric, u32, RandomState>,
    counters: Vec<Counters>,
    counter_ids: HashMap<(u32, Period), u32, RandomState>,
}

impl CounterCache {
    /// Whether the cache is too large and should be emptied, because producers may invent endless metrics.
    pub fn is_overgrown(&self, subjects_max: usize) -> bool {
        self.counters.len() > METRIC_PERIODS_MAX
            || self.metrics.len() > METRIC_PERIODS_MAX
            || self.rows.len() - self.vacant.len() > subjects_max.saturating_mul(ROWS_PER_SUBJECT)
    }

    /// The number of a metric with a valid name.
    pub fn metric_id(&mut self, name: &str) -> u32 {
        if let Some(id) = self.metric_ids.get(name) {
            return *id;
        }
        let metric = Metric::parse(name.as_bytes()).expect("the event's metric was checked");
        let id = u32::try_from(self.metrics.len()).expect("fewer metrics than u32 counts");
        self.metrics.push(metric.clone());
        self.metric_ids.insert(metric, id);
        id
    }

    /// The metric with a number.
    pub fn metric(&self, id: u32) -> &Metric {
        &self.metrics[id as usize]
    }

    /// The number of the hash for a metric, period and bucket.
    pub fn hash_id(&mut self, metric: u32, period: Period, bucket: u8) -> u32 {
        let (metrics, counters) = (&self.metrics, &mut self.counters);
        let id = *self.counter_ids.entry((metric, period)).or_insert_with(|| {
            let of = MetricPeriod { metric: metrics[metric as usize].clone(), period };
            counters.push(Counters { of, refreshed: Box::new([i64::MIN; BUCKETS as usize]), listed: i64::MIN });
            u32::try_from(counters.len() - 1).expect("fewer periods than u32 counts")
        });
        id * u32::from(BUCKETS) + u32::from(bucket)
    }

    /// The number of the hash for a metric, period and bucket, if one is known.
    pub fn known_hash_id(&self, MetricPeriod { metric, period }: &MetricPeriod, bucket: u8) -> Option<u32> {
        let metric = *self.metric_ids.get(metric)?;
        let id = *self.counter_ids.get(&(metric, *period))?;
        Some(id * u32::from(BUCKETS) + u32::from(bucket))
    }

    /// Metric and period of a hash.
    pub fn metric_period(&self, hash_id: u32) -> &MetricPeriod {
        &self.counters[(hash_id / u32::from(BUCKETS)) as usize].of
    }

    /// Bucket of a hash.
    pub fn bucket(hash_id: u32) -> u8 {
        u8::try_from(hash_id % u32::from(BUCKETS)).unwrap_or(u8::MAX)
    }

    /// The row, if it is cached.
    pub fn find(&self, key: RowKey) -> Option<u32> {
        let is = |at: &u32| self.key_of(*at) == key;
        self.index.find(self.hasher.hash_one(key), is).copied()
    }

    /// The row at a position.
    pub fn row(&self, at: u32) -> &CachedCounter {
        &self.rows[at as usize]
    }

    /// The row at a position, to change it.
    pub fn row_mut(&mut self, at: u32) -> &mut CachedCounter {
        &mut self.rows[at as usize]
    }

    /// Subject and hash of the row.
    pub fn key_of(&self, at: u32) -> RowKey {
        self.rows[at as usize].key
    }

    /// Inserts a row that was read. Evicts older periods of the same metric and window, except rows that batches from
    /// `oldest_batch_in_use` on use or need.
    pub fn insert(&mut self, key: RowKey, total: u64, end: UnixMs, oldest_batch_in_use: u64) -> u32 {
        self.drop_older(key, oldest_batch_in_use);
        let row = CachedCounter {
            total,
            next_threshold_units: 0,
            end,
            settings_version: 0,
            changed_in_batch: 0,
            changed_index: 0,
            needed_by_batch: oldest_batch_in_use,
            key,
            next_of_subject: self.first_of(key.subject_index),
        };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.rows[at as usize] = row;
                at
            }
            None => {
                self.rows.push(row);
                u32::try_from(self.rows.len() - 1).expect("fewer rows than u32 counts")
            }
        };
        self.first[key.subject_index as usize] = at;
        let (hasher, rows) = (&self.hasher, &self.rows);
        let hash_of = |at: &u32| hasher.hash_one(rows[*at as usize].key);
        self.index.insert_unique(hash_of(&at), at, hash_of);
        at
    }

    fn first_of(&mut self, subject_index: u32) -> u32 {
        if self.first.len() <= subject_index as usize {
            self.first.resize(subject_index as usize + 1, NONE);
        }
        self.first[subject_index as usize]
    }

    fn drop_older(&mut self, key: RowKey, oldest_batch_in_use: u64) {
        let MetricPeriod { metric, period } = self.metric_period(key.hash_id).clone();
        let window = period.window();
        let mut same: Vec<(Period, u32)> = Vec::new();
        let mut at = self.first_of(key.subject_index);
        while at != NONE {
            let row = &self.rows[at as usize];
            let of = self.metric_period(row.key.hash_id);
            if of.period.window() == window
                && of.metric == metric
                && row.changed_in_batch.max(row.needed_by_batch) < oldest_batch_in_use
            {
                same.push((of.period, at));
            }
            at = row.next_of_subject;
        }
        if same.len() < PERIODS_KEPT {
            return;
        }
        same.sort_unstable();
        for (_, at) in same.iter().take(same.len() + 1 - PERIODS_KEPT) {
            self.evict(*at);
        }
    }

    /// Evicts one row.
    fn evict(&mut self, at: u32) {
        let RowKey { subject_index, .. } = self.key_of(at);
        let sibling = self.rows[at as usize].next_of_subject;
        if self.first[subject_index as usize] == at {
            self.first[subject_index as usize] = sibling;
        } else {
            let mut before = self.first[subject_index as usize];
            while self.rows[before as usize].next_of_subject != at {
                before = self.rows[before as usize].next_of_subject;
            }
            self.rows[before as usize].next_of_subject = sibling;
        }
        self.vacate(at);
    }

    /// Evicts the rows of an evicted subject.
    pub fn drop_subject(&mut self, subject_index: u32) {
        let mut at = self.first_of(subject_index);
        self.first[subject_index as usize] = NONE;
        while at != NONE {
            let sibling = self.rows[at as usize].next_of_subject;
            self.vacate(at);
            at = sibling;
        }
    }

    fn vacate(&mut self, at: u32) {
        let hash = self.hasher.hash_one(self.key_of(at));
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        self.vacant.push(at);
    }

    /// New TTL of a hash, seconds; `None` if it was set within the last minute, or if the hash has none. A failed
    /// commit empties the cache, including these times.
    pub fn ttl_s(&mut self, hash_id: u32, now: UnixMs) -> Option<u64> {
        let bucket = Self::bucket(hash_id);
        let counters = &mut self.counters[(hash_id / u32::from(BUCKETS)) as usize];
        let last = &mut counters.refreshed[usize::from(bucket)];
        // In both directions: after a failover the server's clock may be behind.
        if last.abs_diff(now.0) < TTL_REFRESH_MS {
            return None;
        }
        *last = now.0;
        Some(ttl_s(counters.of.period, now)? + SPREAD_S * u64::from(bucket))
    }

    /// Whether the metric of this hash must be added to the set of metrics of its period.
    pub fn is_to_be_listed(&mut self, hash_id: u32, now: UnixMs) -> bool {
        let listed = &mut self.counters[(hash_id / u32::from(BUCKETS)) as usize].listed;
        let due = listed.abs_diff(now.0) >= TTL_REFRESH_MS;
        if due {
            *listed = now.0;
        }
        due
    }
}

/// Lifetime of a period's data after its last write: 14 days, and at least 48 hours after the period has ended in every
/// zone. `None` for a total: its data live as long as their subject.
pub fn ttl_s(period: Period, now: UnixMs) -> Option<u64> {
    let left = match period.window() {
        Window::Total => return None,
        // These periods are over long before 14 days have passed.
        Window::Hour | Window::Day => 0,
        Window::Week | Window::Month | Window::Quarter | Window::Year => {
            period.ends_everywhere().since(now).as_secs() + CLOSED_TTL_S
        }
    };
    Some(COUNTER_TTL_S.max(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(text: &str) -> Period {
        Period::parse(text).expect("legal")
    }

    fn totals() -> (CounterCache, u32) {
        let mut totals = CounterCache::default();
        let metric = totals.metric_id("requests");
        (totals, metric)
    }

    /// Endless new periods must not exhaust the memory, and a row that a commit in flight writes must stay.
    #[test]
    fn a_subject_keeps_the_newest_periods_and_those_in_use() {
        let (mut totals, metric) = totals();
        let mut at = Vec::new();
        for hour in 0..20 {
            let hash_id = totals.hash_id(metric, period(&format!("2026-11-21T{hour:02}Z")), 7);
            let oldest_batch_in_use = 5 + hour;
            at.push(totals.insert(RowKey { subject_index: 3, hash_id }, hour, UnixMs(0), oldest_batch_in_use));
            if hour == 4 {
                totals.row_mut(at[4]).changed_in_batch = 100;
            }
        }
        let held: Vec<u64> = (0..20)
            .filter(|hour| {
                let hash_id = totals.hash_id(metric, period(&format!("2026-11-21T{hour:02}Z")), 7);
                totals.find(RowKey { subject_index: 3, hash_id }).is_some()
            })
            .collect();
        assert_eq!(held, [4, 18, 19]);
        totals.drop_subject(3);
        assert_eq!(totals.index.len(), 0);
        assert!(totals.vacant.len() == totals.rows.len());
    }

    /// One read may contain events of many periods: if the last one evicted the first, no batch would ever have all
    /// rows.
    #[test]
    fn the_periods_of_one_reading_are_held_together() {
        let (mut totals, metric) = totals();
        let keys: Vec<RowKey> = (0..20)
            .map(|hour| RowKey {
                subject_index: 3,
                hash_id: totals.hash_id(metric, period(&format!("2026-11-21T{hour:02}Z")), 7),
            })
            .collect();
        let first = totals.insert(keys[0], 0, UnixMs(0), 5);
        totals.row_mut(first).needed_by_batch = 8;
        keys[1..].iter().for_each(|key| {
            totals.insert(*key, 0, UnixMs(0), 7);
        });
        assert!(keys.iter().all(|key| totals.find(*key).is_some()));
    }

    /// A TTL that is never renewed would end while the day is still being counted; renewing it every time costs as much
    /// as counting.
    #[test]
    fn a_ttl_is_set_at_first_and_then_every_minute() {
        let (mut totals, metric) = totals();
        let hash_id = totals.hash_id(metric, period("2026-11-21"), 7);
        let now = UnixMs(1_795_250_000_000);
        assert_eq!(totals.ttl_s(hash_id, now), Some(14 * 86_400 + 70));
        assert_eq!(totals.ttl_s(hash_id, now.plus(59_999)), None);
        assert_eq!(totals.ttl_s(hash_id, now.plus(60_000)), Some(14 * 86_400 + 70));
        assert_eq!(totals.ttl_s(hash_id, now.plus(-86_400_000)), Some(14 * 86_400 + 70), "a clock that is behind");
    }

    /// If a month's counter expired 14 days after its last write, the end of the month would be counted from zero.
    #[test]
    fn a_counter_lives_until_its_period_is_over() {
        let begins =
            UnixMs(chrono::DateTime::parse_from_rfc3339("2026-11-01T00:00:00Z").expect("legal").timestamp_millis());
        assert_eq!(ttl_s(period("2026-11"), begins), Some((31 * 24 + 12 - 24 + 48) * 3600));
        assert_eq!(ttl_s(period("2026-11-01T00Z"), begins), Some(COUNTER_TTL_S));
    }

    /// Producers may invent metrics; the worker notices and empties the cache.
    #[test]
    fn ever_new_metrics_are_noticed() {
        let mut totals = CounterCache::default();
        for n in 0..=METRIC_PERIODS_MAX {
            totals.metric_id(&format!("m{n}"));
        }
        assert!(totals.is_overgrown(1000));
    }
}
