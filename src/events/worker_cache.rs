//! The state that a session keeps between batches: settings of subjects, totals of counters, ids of events. All of it
//! can be read again.

use std::sync::Arc;

use crate::ledger::batch::MetricPeriod;
use crate::ledger::children;
use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::read_totals::{CounterQuery, RaisedRecords, RecordQuery};
use crate::ledger::thresholds::{LimitThreshold, NO_THRESHOLD, thresholds_of};
use crate::ledger::totals::RowKey;
use crate::ledger::{CountedEventIds, CounterCache};
use crate::subjects::{Profile, SettingsCache};
use crate::types::alert::{LARGEST_MAX, LargestChild};
use crate::types::subject::LEVELS_MAX;
use crate::types::{Day, Separator, Threshold, UnixMs, Window};

use super::day_metrics::DayMetrics;
use super::largest_children::ParentCounter;

/// Maximum number of counters of one event: one for each window.
pub const ROWS_MAX: usize = Window::ALL.len();

/// The level above a cached subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Parent {
    /// Not looked up yet.
    #[default]
    Unknown,
    /// There is none.
    Missing,
    /// The index of the level above. A use of the subject also counts as a use of this level (`used_by`), so the level
    /// is evicted no earlier than the subject.
    At(u32),
}

/// The rows of a subject's last event, stored with its settings.
#[derive(Debug, Clone, Default)]
pub struct SubjectRows {
    /// The settings with which the rows were found: those of the subject, with what it inherits.
    pub profile: Option<Arc<Profile>>,
    /// The subject's own settings, and those of the level above, from which `profile` was made.
    pub(super) own: Option<Arc<Profile>>,
    pub(super) above: Option<Arc<Profile>>,
    /// The last settings of a subject below, and what was made of them: most subjects below have the same ones.
    pub(super) below: Option<[Arc<Profile>; 2]>,
    /// The level above.
    pub(super) parent: Parent,
    /// The day on which it was listed among the children of that level, as days since 1970-01-01.
    pub(super) listed_on: i64,
    /// Number of these settings. Rows with another number must be judged again.
    pub settings: u32,
    /// The metric.
    pub metric: u32,
    /// Start of the time for which these rows are valid.
    pub start: UnixMs,
    /// End of that time.
    pub end: UnixMs,
    /// When the subject's day ends.
    pub day_end: UnixMs,
    rows: [u32; ROWS_MAX],
    count: u8,
}

impl SubjectRows {
    /// The rows.
    pub fn rows(&self) -> &[u32] {
        &self.rows[..usize::from(self.count)]
    }

    /// No rows yet.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether `profile` was made from these settings.
    pub fn is_made_from(&self, own: &Arc<Profile>, above: Option<&Arc<Profile>>) -> bool {
        let is_same = |held: &Option<Arc<Profile>>, other: Option<&Arc<Profile>>| match (held, other) {
            (Some(held), Some(other)) => Arc::ptr_eq(held, other),
            (None, None) => true,
            _ => false,
        };
        is_same(&self.own, Some(own)) && is_same(&self.above, above)
    }

    /// Adds a row.
    pub fn push(&mut self, row: u32) {
        self.rows[usize::from(self.count)] = row;
        self.count += 1;
    }
}

/// The whole cache.
#[derive(Debug)]
pub struct WorkerCache {
    /// Settings of subjects, with the rows of each subject.
    pub cache: SettingsCache<SubjectRows>,
    /// Totals of counters.
    pub totals: CounterCache,
    /// Ids of events.
    pub event_ids: CountedEventIds,
    /// Metrics by day.
    pub(super) day_metrics: DayMetrics,
}

/// A counter that is not in memory yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingCounter {
    /// The counter.
    pub key: RowKey,
    /// When its period ends for its subject.
    pub end: UnixMs,
}

/// The alert records of a counter that has reached a threshold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRecords {
    /// The counter.
    pub key: RowKey,
    /// The thresholds of its subject when the records are requested. They may have changed when the reply arrives.
    pub thresholds: Vec<Threshold>,
    /// The highest count so far.
    pub highest: u64,
    /// The batch that needs them. The commit of a batch may change them.
    pub batch: u64,
}

/// What was read for a counter that has reached a threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRecords {
    /// What was asked for.
    pub request: MissingRecords,
    /// The records of these thresholds.
    pub records: RaisedRecords,
    /// The counts of the children of its subject; `None` if they were not read.
    pub children: Option<Vec<SubjectCount>>,
}

/// The state that must be read before entries can be added or the batch can be closed.
#[derive(Debug, Default)]
pub struct LoadRequest {
    /// Subjects without settings.
    pub settings: Vec<u32>,
    /// Days without metrics in memory.
    pub days: Vec<Day>,
    /// Counters that are not in memory.
    pub counters: Vec<MissingCounter>,
    /// Alert records of counters that have reached a threshold.
    pub records: Vec<MissingRecords>,
}

impl LoadRequest {
    /// Whether nothing must be read.
    pub const fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.days.is_empty() && self.counters.is_empty() && self.records.is_empty()
    }
}

impl WorkerCache {
    /// Creates a cache with the settings of an earlier session and the stored ids, without counters.
    pub fn new(mut settings: SettingsCache<SubjectRows>, event_ids: CountedEventIds) -> Self {
        settings.forget_extras();
        Self { cache: settings, totals: CounterCache::default(), event_ids, day_metrics: DayMetrics::default() }
    }

    /// Sets the maximum number of metrics of a day.
    #[must_use]
    pub fn with_metrics_max(self, metrics_max: usize) -> Self {
        Self { day_metrics: DayMetrics::new(metrics_max), ..self }
    }

    /// Drops subjects that were not used lately, with their rows.
    pub fn shrink(&mut self, oldest_batch_in_use: u64) {
        for subject_index in self.cache.shrink(oldest_batch_in_use) {
            self.totals.drop_subject(subject_index);
        }
    }

    /// The thresholds of a row, by the present settings of its subject.
    pub fn thresholds(&self, key: RowKey) -> Vec<LimitThreshold> {
        let Some(profile) = &self.cache.subject(key.subject_index).extra.profile else { return Vec::new() };
        if !profile.has_known_limits() {
            return Vec::new();
        }
        let of = self.totals.metric_period(key.hash_id);
        let limit = profile.limit_of(&of.metric, of.period);
        limit.map_or(Vec::new(), |limit| thresholds_of(limit, profile.thresholds()))
    }

    /// The queries for the missing counters.
    pub fn counter_queries(&self, missing: &LoadRequest) -> Vec<CounterQuery<'_>> {
        missing.counters.iter().map(|counter| self.query(counter.key)).collect()
    }

    /// Removes items that are in memory by now, groups counters by hash and removes duplicates.
    pub fn sort_and_dedup(&self, missing: &mut LoadRequest) {
        let LoadRequest { settings, days, counters, .. } = missing;
        days.retain(|day| !self.day_metrics.holds(*day));
        days.sort_unstable();
        days.dedup();
        settings.retain(|subject_index| self.cache.subject(*subject_index).profile().is_none());
        settings.sort_unstable();
        settings.dedup();
        counters.retain(|counter| self.totals.find(counter.key).is_none());
        counters.sort_unstable_by_key(|counter| (counter.key.hash_id, counter.key.subject_index));
        counters.dedup_by_key(|counter| counter.key);
    }

    /// Keeps the subjects of a load in the cache: batch `number` uses them.
    pub fn touch(&mut self, missing: &LoadRequest, number: u64) {
        let LoadRequest { settings, counters, records, .. } = missing;
        let keys = counters.iter().map(|counter| counter.key).chain(records.iter().map(|records| records.key));
        for subject_index in settings.iter().copied().chain(keys.map(|key| key.subject_index)) {
            self.used_by(subject_index, number);
        }
    }

    /// Stores the totals of counters, in the order of [`Self::counter_queries`].
    pub fn take_totals(&mut self, missing: &LoadRequest, totals: &[u64], oldest_batch_in_use: u64) {
        for (counter, total) in missing.counters.iter().zip(totals) {
            self.totals.insert(counter.key, *total, counter.end, oldest_batch_in_use);
        }
    }

    /// The thresholds in the present settings of a row's subject.
    pub(super) fn configured_thresholds(&self, key: RowKey) -> &[Threshold] {
        self.cache.subject(key.subject_index).extra.profile.as_ref().map_or(&[], |profile| profile.thresholds())
    }

    /// The counters of the missing records; `None` for a subject that has no children.
    pub(super) fn parent_counters(&self, missing: &LoadRequest, separator: Separator) -> Vec<Option<ParentCounter>> {
        let counter = |MissingRecords { key, thresholds, highest, .. }: &MissingRecords| {
            let subject = self.cache.subject(key.subject_index).subject.clone();
            if separator.is_none() || separator.depth(subject.as_str()) + 1 == LEVELS_MAX {
                return None;
            }
            let of_limit = self.thresholds(*key);
            let units_of = |threshold: &Threshold| {
                let found = of_limit.iter().find(|of_limit| of_limit.threshold == *threshold);
                found.map(|of_limit| of_limit.units).filter(|units| units <= highest)
            };
            let reached = thresholds.iter().map(units_of).collect();
            Some(ParentCounter { subject, of: self.totals.metric_period(key.hash_id).clone(), reached })
        };
        missing.records.iter().map(counter).collect()
    }

    /// The largest children of a subject: of these counts, or of what is in memory if that is newer.
    pub(super) fn largest(&self, counts: Vec<SubjectCount>, of: &MetricPeriod, used: u64) -> Vec<LargestChild> {
        let newest = |count: SubjectCount| {
            let held = self.cache.find(count.subject.as_str().as_bytes()).and_then(|subject_index| {
                let bucket = self.cache.subject(subject_index).bucket;
                let key = RowKey { subject_index, hash_id: self.totals.known_hash_id(of, bucket)? };
                Some(self.totals.row(self.totals.find(key)?).total)
            });
            SubjectCount { used: held.unwrap_or(count.used), ..count }
        };
        let mut newest: Vec<SubjectCount> = counts.into_iter().map(newest).filter(|count| count.used > 0).collect();
        children::sort(&mut newest);
        newest.truncate(LARGEST_MAX);
        newest.into_iter().map(|child| LargestChild::new(child.subject, child.used, used)).collect()
    }

    /// The queries for the missing records.
    pub fn record_queries<'a>(&'a self, missing: &'a LoadRequest) -> Vec<RecordQuery<'a>> {
        let query = |MissingRecords { key, thresholds, .. }: &'a MissingRecords| RecordQuery {
            counter: self.query(*key),
            thresholds,
        };
        missing.records.iter().map(query).collect()
    }

    /// The count at which a row must be judged next, by its subject's settings. Alert records are read then.
    pub fn lowest_threshold(&self, key: RowKey) -> u64 {
        self.thresholds(key).first().map_or(NO_THRESHOLD, |lowest| lowest.units)
    }

    fn query(&self, key: RowKey) -> CounterQuery<'_> {
        CounterQuery {
            of: self.totals.metric_period(key.hash_id),
            bucket: CounterCache::bucket(key.hash_id),
            subject: &self.cache.subject(key.subject_index).subject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::Plans;
    use crate::types::{Period, Separator, Subject};

    fn held(subjects_max: usize) -> WorkerCache {
        WorkerCache::new(SettingsCache::new(subjects_max, &Plans::without_limits()), CountedEventIds::new(10))
    }

    fn add(held: &mut WorkerCache, name: &str) -> u32 {
        held.cache.add(Subject::parse(name.as_bytes()).expect("legal"))
    }

    /// If a place belonged to another subject when the reply arrives, that subject would get the settings of the first.
    #[test]
    fn a_subject_of_which_something_is_read_is_not_let_go() {
        let mut held = held(2);
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| add(&mut held, name));
        held.cache.subject_mut(carol).used = 4;
        held.touch(&LoadRequest { settings: vec![alice], ..LoadRequest::default() }, 5);
        held.shrink(4);
        let is_held = [b"alice".as_slice(), b"bob", b"carol"].map(|name| held.cache.find(name).is_some());
        assert_eq!(is_held, [true, false, true], "{bob}");
    }

    /// If a level was let go before a subject below it, its place could belong to another subject, and events would
    /// count there.
    #[test]
    fn a_level_is_not_let_go_before_a_subject_below_it() {
        let separator: Separator = "/".parse().expect("a separator");
        let mut held = held(2);
        let [below, _, _] = ["acme/x/y", "bob", "carol"].map(|name| add(&mut held, name));
        held.used_by(below, 5);
        assert_eq!(held.levels(separator, below, true).map(|levels| levels.as_slice().len()), Some(3));
        held.used_by(below, 4);
        held.shrink(5);
        let is_held = [b"acme".as_slice(), b"acme/x", b"acme/x/y", b"bob"].map(|name| held.cache.find(name).is_some());
        assert_eq!(is_held, [true, true, true, false]);
    }

    /// A counter that is read again would lose what the batch has added to it.
    #[test]
    fn what_is_held_by_now_is_not_read_again() {
        let mut held = held(2);
        let subject_index = add(&mut held, "alice");
        let metric = held.totals.metric_id("requests");
        let hash_id = held.totals.hash_id(metric, Period::parse("2026-11-21").expect("legal"), 7);
        let key = RowKey { subject_index, hash_id };
        let missing = MissingCounter { key, end: UnixMs(0) };
        let mut twice =
            LoadRequest { settings: vec![subject_index; 2], counters: vec![missing; 2], ..LoadRequest::default() };
        held.sort_and_dedup(&mut twice);
        assert_eq!((twice.settings, twice.counters), (vec![subject_index], vec![missing]));
        held.totals.insert(key, 5, UnixMs(0), 1);
        let mut read = LoadRequest { counters: vec![missing], ..LoadRequest::default() };
        held.sort_and_dedup(&mut read);
        assert!(read.is_empty());
    }

    /// With other thresholds, the records of one threshold would be taken for those of another.
    #[test]
    fn records_are_of_the_thresholds_that_were_asked_for() {
        let mut held = held(2);
        let subject_index = add(&mut held, "alice");
        let metric = held.totals.metric_id("requests");
        let hash_id = held.totals.hash_id(metric, Period::parse("2026-11-21").expect("legal"), 7);
        let thresholds: Vec<Threshold> = vec!["80".parse().expect("legal")];
        let key = RowKey { subject_index, hash_id };
        let records = vec![MissingRecords { key, thresholds: thresholds.clone(), highest: 0, batch: 1 }];
        let missing = LoadRequest { records, ..LoadRequest::default() };
        let asked: Vec<_> = held.record_queries(&missing).iter().map(|query| query.thresholds.to_vec()).collect();
        assert_eq!(asked, [thresholds], "a subject whose settings are not held any more");
    }
}
