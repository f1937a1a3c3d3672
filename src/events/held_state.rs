//! What a worker holds between batches: settings of subjects, totals of counters, ids of events. All of it can be read again.

use std::sync::Arc;

use crate::ledger::read_totals::{CounterQuery, RecordQuery};
use crate::ledger::thresholds::{NEVER, Threshold, thresholds_of};
use crate::ledger::totals::RowKey;
use crate::ledger::{HeldTotals, SeenWindows};
use crate::subjects::{Profile, SettingsCache};
use crate::types::UnixMs;

/// The most counters of one event: one a window.
pub const ROWS_MAX: usize = 4;

/// Beside a subject's settings: the rows that its last event was counted in.
#[derive(Debug, Clone, Default)]
pub struct SubjectRows {
    /// By which settings the rows were found.
    pub profile: Option<Arc<Profile>>,
    /// Number of these settings: rows that bear another one are to be judged anew.
    pub settings: u32,
    /// Of which [`HeldTotals::epoch`] the positions are.
    pub epoch: u32,
    /// The metric.
    pub metric: u32,
    /// From when on these rows are the right ones.
    pub start: UnixMs,
    /// Until when they are.
    pub end: UnixMs,
    /// When the subject's day ends.
    pub day_end: UnixMs,
    rows: [u32; ROWS_MAX],
    count: u8,
}

impl SubjectRows {
    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows[..usize::from(self.count)]
    }

    /// No rows yet.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// One row more.
    pub fn push(&mut self, row: u32) {
        self.rows[usize::from(self.count)] = row;
        self.count += 1;
    }
}

/// Everything that is held.
#[derive(Debug)]
pub struct HeldState {
    /// Settings of subjects, with the rows of each.
    pub cache: SettingsCache<SubjectRows>,
    /// Totals of counters.
    pub totals: HeldTotals,
    /// Ids of events.
    pub seen: SeenWindows,
}

/// A counter that is not held yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingCounter {
    /// Which.
    pub key: RowKey,
    /// When its period ends for its subject.
    pub end: UnixMs,
}

/// What has to be read: before entries can be added, or before the batch can be closed.
#[derive(Debug, Default)]
pub struct Missing {
    /// Subjects without settings.
    pub settings: Vec<u32>,
    /// Counters that are not held.
    pub counters: Vec<MissingCounter>,
    /// Counters that have reached a threshold: what was raised of them.
    pub records: Vec<RowKey>,
}

impl Missing {
    /// Whether nothing is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.counters.is_empty() && self.records.is_empty()
    }
}

impl HeldState {
    /// Forgets totals and ids; another worker may have committed.
    pub fn forget_totals(&mut self) {
        self.totals.forget();
        self.seen.forget();
    }

    /// Lets subjects go that were not used lately, with their rows.
    pub fn shrink(&mut self, live: u32) {
        for slot in self.cache.shrink(live) {
            self.totals.let_subject_go(slot);
        }
    }

    /// The thresholds of a row, by the settings that its subject has now.
    #[must_use]
    pub fn thresholds(&self, key: RowKey) -> Vec<Threshold> {
        let Some(profile) = &self.cache.slot(key.slot).extra.profile else { return Vec::new() };
        if !profile.is_judged() {
            return Vec::new();
        }
        let of = self.totals.metric_period(key.counter);
        let window = of.period.window();
        let limit = profile.limits_of(&of.metric).iter().find(|limit| limit.window == window);
        limit.map_or(Vec::new(), |limit| thresholds_of(limit.units, profile.thresholds()))
    }

    /// The counters that are missing, as they are to be read.
    #[must_use]
    pub fn counter_queries(&self, missing: &Missing) -> Vec<CounterQuery<'_>> {
        missing.counters.iter().map(|counter| self.query(counter.key)).collect()
    }

    /// Leaves out what is held by now; puts counters of one hash beside one another, and each once.
    pub fn arrange(&self, missing: &mut Missing) {
        let Missing { settings, counters, .. } = missing;
        settings.retain(|slot| self.cache.slot(*slot).profile().is_none());
        settings.sort_unstable();
        settings.dedup();
        counters.retain(|counter| self.totals.find(counter.key).is_none());
        counters.sort_unstable_by_key(|counter| (counter.key.counter, counter.key.slot));
        counters.dedup_by_key(|counter| counter.key);
    }

    /// Keeps the subjects of what is to be read from being let go: batch `number` uses them.
    pub fn touch(&mut self, missing: &Missing, number: u32) {
        let Missing { settings, counters, records } = missing;
        let keys = counters.iter().map(|counter| &counter.key).chain(records);
        for slot in settings.iter().copied().chain(keys.map(|key| key.slot)) {
            self.cache.slot_mut(slot).used = number;
        }
    }

    /// Takes what counters hold, in the order of [`Self::counter_queries`]; `live` is the oldest batch in use.
    pub fn take_totals(&mut self, missing: &Missing, totals: &[u64], live: u32) {
        for (counter, total) in missing.counters.iter().zip(totals) {
            self.totals.insert(counter.key, *total, counter.end, live);
        }
    }

    /// The records that are missing, as they are to be read.
    #[must_use]
    pub fn record_queries(&self, missing: &Missing) -> Vec<RecordQuery<'_>> {
        missing.records.iter().map(|key| self.record_query(*key)).collect()
    }

    /// From which count on a row is to be judged, as far as its subject's settings say. What was raised is looked at then.
    #[must_use]
    pub fn lowest_threshold(&self, key: RowKey) -> u64 {
        self.thresholds(key).first().map_or(NEVER, |lowest| lowest.units)
    }

    fn record_query(&self, key: RowKey) -> RecordQuery<'_> {
        let percents = self.cache.slot(key.slot).extra.profile.as_ref().map_or(&[][..], |p| p.thresholds());
        RecordQuery { counter: self.query(key), percents }
    }

    fn query(&self, key: RowKey) -> CounterQuery<'_> {
        CounterQuery {
            of: self.totals.metric_period(key.counter),
            bucket: HeldTotals::bucket(key.counter),
            subject: &self.cache.slot(key.slot).subject,
        }
    }
}
