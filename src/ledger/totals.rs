//! The totals that a worker holds: what the counters of a partition stand at, and when each is to be judged next.
//!
//! Whoever commits after a checkpoint knows that nobody else has committed since. So a counter that was read once is
//! known until another one commits, and a commit writes what it is to become. Bounded by the subjects that are held: a
//! subject that is let go takes its rows along. Pure. Read next: [`super::read_totals`], where rows come from.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::types::keys::BUCKETS;
use crate::types::{Metric, Period, UnixMs, Window};

use super::batch::MetricPeriod;

/// A TTL is set again after this long: EXPIRE takes the server as long as counting.
const TTL_REFRESH_MS: u64 = 60_000;
/// How long counters and records live after their last write.
pub const COUNTER_TTL_S: u64 = 14 * 86_400;
/// How long they live at least once their period is over everywhere.
pub const CLOSED_TTL_S: u64 = 48 * 3_600;
/// Buckets expire this long after one another, so that the server frees them one by one.
pub const SPREAD_S: u64 = 10;
/// Periods of one window that a subject keeps of a metric: the newest, and the one before it for events that come late.
const PERIODS_KEPT: usize = 2;
/// So many metrics and periods are held at most. Above it the worker begins with nothing held.
const METRIC_PERIODS_MAX: usize = 20_000;
/// So many rows a subject that may be held.
const ROWS_PER_SUBJECT: usize = 16;

const NONE: u32 = u32::MAX;

/// What a counter stands at.
#[derive(Debug, Clone, Copy)]
pub struct CachedCounter {
    /// Units, with those of the batch that is being built.
    pub total: u64,
    /// The count from which on an alert may be due; [`super::thresholds::NO_THRESHOLD`] for never.
    pub next_threshold_units: u64,
    /// When its period ends for its subject.
    pub end: UnixMs,
    /// The version of its subject's settings from which the next threshold was found, as the caller numbers them.
    pub settings_version: u32,
    /// The last batch that changed it, as the caller numbers them.
    pub changed_in_batch: u32,
    /// Its index among the rows that this batch changed.
    pub changed_index: u32,
    /// The last batch for which it was looked up: the entries that need it may not be added yet.
    pub needed_by_batch: u32,
    hash_id: u32,
    subject_index: u32,
    /// The next row of the same subject.
    next_of_subject: u32,
}

/// What tells a row from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Where its subject is held.
    pub subject_index: u32,
    /// Which hash it lies in: of [`CounterCache::hash_id`].
    pub hash_id: u32,
}

/// A metric in a period, with when the TTL of its hashes was set.
#[derive(Debug)]
struct Counters {
    of: MetricPeriod,
    refreshed: Box<[i64; BUCKETS as usize]>,
    /// When the metric was added to those of the period.
    listed: i64,
}

/// The rows.
#[derive(Debug, Default)]
pub struct CounterCache {
    /// How often all was forgotten: what callers remember of positions holds for one number only.
    epoch: u32,
    rows: Vec<CachedCounter>,
    vacant: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
    /// The first row of each subject, by where it is held.
    first: Vec<u32>,
    metrics: Vec<Metric>,
    metric_ids: HashMap<Metric, u32, RandomState>,
    counters: Vec<Counters>,
    counter_ids: HashMap<(u32, Period), u32, RandomState>,
}

impl CounterCache {
    /// Nothing is held any more.
    pub fn forget(&mut self) {
        *self = Self { epoch: self.epoch.wrapping_add(1), ..Self::default() };
    }

    /// How often all was forgotten.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether so much is held that it is better to begin anew: producers may invent metrics without an end.
    pub fn is_overgrown(&self, subjects_max: usize) -> bool {
        self.counters.len() > METRIC_PERIODS_MAX
            || self.metrics.len() > METRIC_PERIODS_MAX
            || self.rows.len() - self.vacant.len() > subjects_max.saturating_mul(ROWS_PER_SUBJECT)
    }

    /// The number of a metric, whose name was checked.
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

    /// The metric of a number.
    pub fn metric(&self, id: u32) -> &Metric {
        &self.metrics[id as usize]
    }

    /// The hash in which the counters of a metric, period and bucket lie, as a number.
    pub fn hash_id(&mut self, metric: u32, period: Period, bucket: u8) -> u32 {
        let (metrics, counters) = (&self.metrics, &mut self.counters);
        let id = *self.counter_ids.entry((metric, period)).or_insert_with(|| {
            let of = MetricPeriod { metric: metrics[metric as usize].clone(), period };
            counters.push(Counters { of, refreshed: Box::new([i64::MIN; BUCKETS as usize]), listed: i64::MIN });
            u32::try_from(counters.len() - 1).expect("fewer periods than u32 counts")
        });
        id * u32::from(BUCKETS) + u32::from(bucket)
    }

    /// Metric and period of a hash.
    pub fn metric_period(&self, hash_id: u32) -> &MetricPeriod {
        &self.counters[(hash_id / u32::from(BUCKETS)) as usize].of
    }

    /// Bucket of a hash.
    pub fn bucket(hash_id: u32) -> u8 {
        u8::try_from(hash_id % u32::from(BUCKETS)).unwrap_or(u8::MAX)
    }

    /// The row, where it is held.
    pub fn find(&self, key: RowKey) -> Option<u32> {
        let is = |at: &u32| self.key(*at) == key;
        self.index.find(self.hasher.hash_one(key), is).copied()
    }

    fn key(&self, at: u32) -> RowKey {
        let row = &self.rows[at as usize];
        RowKey { subject_index: row.subject_index, hash_id: row.hash_id }
    }

    /// The row at a position.
    pub fn row(&self, at: u32) -> &CachedCounter {
        &self.rows[at as usize]
    }

    /// The total of the row at a position; any number where the rows were forgotten since.
    pub fn peek(&self, at: u32) -> u64 {
        self.rows.get(at as usize).map_or(0, |row| row.total)
    }

    /// The row at a position, to change it.
    pub fn row_mut(&mut self, at: u32) -> &mut CachedCounter {
        &mut self.rows[at as usize]
    }

    /// Where the row's subject is held, and in which hash it lies.
    pub fn key_of(&self, at: u32) -> RowKey {
        self.key(at)
    }

    /// Takes a row that was read. Older periods of the same metric and window are let go, but for rows that batches
    /// from `oldest_batch_in_use` on use or need.
    pub fn insert(&mut self, key: RowKey, total: u64, end: UnixMs, oldest_batch_in_use: u32) -> u32 {
        self.drop_older(key, oldest_batch_in_use);
        let row = CachedCounter {
            total,
            next_threshold_units: 0,
            end,
            settings_version: 0,
            changed_in_batch: 0,
            changed_index: 0,
            needed_by_batch: oldest_batch_in_use,
            hash_id: key.hash_id,
            subject_index: key.subject_index,
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
        let hash_of = |at: &u32| {
            let row = &rows[*at as usize];
            hasher.hash_one(RowKey { subject_index: row.subject_index, hash_id: row.hash_id })
        };
        self.index.insert_unique(hash_of(&at), at, hash_of);
        at
    }

    fn first_of(&mut self, subject_index: u32) -> u32 {
        if self.first.len() <= subject_index as usize {
            self.first.resize(subject_index as usize + 1, NONE);
        }
        self.first[subject_index as usize]
    }

    fn drop_older(&mut self, key: RowKey, oldest_batch_in_use: u32) {
        let MetricPeriod { metric, period } = self.metric_period(key.hash_id).clone();
        let window = period.window();
        let mut same: Vec<(Period, u32)> = Vec::new();
        let mut at = self.first_of(key.subject_index);
        while at != NONE {
            let row = &self.rows[at as usize];
            let of = self.metric_period(row.hash_id);
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
            self.let_go(*at);
        }
    }

    /// Lets one row go.
    fn let_go(&mut self, at: u32) {
        let RowKey { subject_index, .. } = self.key(at);
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

    /// Lets the rows of a subject go, which is not held any more.
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
        let hash = self.hasher.hash_one(self.key(at));
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        self.vacant.push(at);
    }

    /// Seconds that a hash is to live from now on; `None` where that was said within the last minute. A commit that
    /// fails takes all totals along, and with them what is noted here.
    pub fn ttl_s(&mut self, hash_id: u32, now: UnixMs) -> Option<u64> {
        let bucket = Self::bucket(hash_id);
        let counters = &mut self.counters[(hash_id / u32::from(BUCKETS)) as usize];
        let last = &mut counters.refreshed[usize::from(bucket)];
        // Either way: after a failover the server's clock may be behind.
        if last.abs_diff(now.0) < TTL_REFRESH_MS {
            return None;
        }
        *last = now.0;
        Some(ttl_s(counters.of.period, now) + SPREAD_S * u64::from(bucket))
    }

    /// Whether the metric of this hash is to be noted as used in its period.
    pub fn is_to_be_listed(&mut self, hash_id: u32, now: UnixMs) -> bool {
        let listed = &mut self.counters[(hash_id / u32::from(BUCKETS)) as usize].listed;
        let due = listed.abs_diff(now.0) >= TTL_REFRESH_MS;
        if due {
            *listed = now.0;
        }
        due
    }
}

/// How long what belongs to a period lives from its last write: 14 days, and at least until 48 hours after the period
/// has ended everywhere.
pub fn ttl_s(period: Period, now: UnixMs) -> u64 {
    let left = match period.window() {
        // These are over long before 14 days.
        Window::Hour | Window::Day => 0,
        Window::Week | Window::Month => period.ends_everywhere().since(now).as_secs() + CLOSED_TTL_S,
    };
    COUNTER_TTL_S.max(left)
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

    /// A stream of ever new periods must not eat the machine, and a row that a commit in flight writes must stay.
    #[test]
    fn a_subject_keeps_the_newest_periods_and_those_in_use() {
        let (mut totals, metric) = totals();
        let mut at = Vec::new();
        for hour in 0..20 {
            let hash_id = totals.hash_id(metric, period(&format!("2026-11-21T{hour:02}Z")), 7);
            let oldest_batch_in_use = 5 + u32::try_from(hour).expect("small");
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

    /// Events of many periods may come in one reading: were the first of them let go for the last, no batch would ever
    /// have all.
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

    /// A TTL that is never set again would end in the middle of a day that is still being counted; one that is set each
    /// time costs as much as counting.
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

    /// A month's counter that expires 14 days after its last write would count the month's end from zero.
    #[test]
    fn a_counter_lives_until_its_period_is_over() {
        let begins =
            UnixMs(chrono::DateTime::parse_from_rfc3339("2026-11-01T00:00:00Z").expect("legal").timestamp_millis());
        assert_eq!(ttl_s(period("2026-11"), begins), (31 * 24 + 12 - 24 + 48) * 3600);
        assert_eq!(ttl_s(period("2026-11-01T00Z"), begins), COUNTER_TTL_S);
    }

    /// Producers may invent metrics; whoever notices begins anew.
    #[test]
    fn ever_new_metrics_are_noticed() {
        let mut totals = CounterCache::default();
        for n in 0..=METRIC_PERIODS_MAX {
            totals.metric_id(&format!("m{n}"));
        }
        assert!(totals.is_overgrown(1000));
        totals.forget();
        assert!(!totals.is_overgrown(1000));
    }
}
