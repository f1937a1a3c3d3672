//! What a worker holds between batches: settings of subjects, totals of counters, ids of events. All of it can be read again.

use std::sync::Arc;

use redis::RedisResult;

use crate::ledger::read_totals::{CounterQuery, RaisedRecords, ReadAsOf, RecordQuery, read_counters, read_records};
use crate::ledger::thresholds::{NEVER, PeriodState, Threshold, next_threshold, thresholds_of};
use crate::ledger::totals::RowKey;
use crate::ledger::{HeldTotals, SeenWindows};
use crate::subjects::{Profile, SettingsCache};
use crate::types::{Keys, StreamId, UnixMs};
use crate::wire::RedisClient;

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
    /// HeldTotals of counters.
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

/// What has to be read before events can be added.
#[derive(Debug, Default)]
pub struct Missing {
    /// Subjects without settings.
    pub settings: Vec<u32>,
    /// Counters that are not held.
    pub counters: Vec<MissingCounter>,
    /// Rows whose next threshold is unknown since their settings changed.
    pub thresholds: Vec<u32>,
}

impl Missing {
    /// Whether nothing is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.counters.is_empty() && self.thresholds.is_empty()
    }

    /// Puts counters of one hash beside one another, each once.
    pub fn arrange(&mut self) {
        self.counters.sort_unstable_by_key(|counter| (counter.key.counter, counter.key.slot));
        self.counters.dedup_by_key(|counter| counter.key);
        self.thresholds.sort_unstable();
        self.thresholds.dedup();
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

    /// Reads counters, and what was raised of those that have reached a threshold; `now` is server time, `live` the oldest batch in use.
    /// Says which checkpoints were stored meanwhile.
    pub async fn read(
        &mut self,
        client: &RedisClient,
        keys: &Keys,
        mut missing: Missing,
        now: UnixMs,
        live: u32,
    ) -> RedisResult<Vec<StreamId>> {
        missing.arrange();
        let totals = read_counters(client, keys, &self.counter_queries(&missing)).await?;
        let reached = self.take_totals(missing, &totals.values, live);
        let records = self.records(client, keys, reached.iter().map(|row| row.key)).await?;
        self.take_records(reached, &records.values, now);
        Ok([totals.checkpoint, records.checkpoint].into_iter().flatten().collect())
    }

    /// The counters that are missing, as they are to be read.
    #[must_use]
    pub fn counter_queries(&self, missing: &Missing) -> Vec<CounterQuery<'_>> {
        missing.counters.iter().map(|counter| self.query(counter.key)).collect()
    }

    /// Takes what the counters hold, in the order of [`Self::counter_queries`]. Says which rows have reached a threshold: what was
    /// raised of them is to be read.
    pub fn take_totals(&mut self, missing: Missing, totals: &[u64], live: u32) -> Vec<ReachedRow> {
        let mut rows = missing.thresholds;
        for (counter, total) in missing.counters.iter().zip(totals) {
            rows.push(self.totals.insert(counter.key, *total, counter.end, live));
        }
        let mut reached: Vec<ReachedRow> = Vec::new();
        for at in rows {
            let key = self.totals.place_of(at);
            let thresholds = self.thresholds(key);
            let settings = self.cache.slot(key.slot).extra.settings;
            let row = self.totals.row_mut(at);
            row.settings = settings;
            row.next = thresholds.first().map_or(NEVER, |lowest| lowest.units);
            if row.total >= row.next {
                reached.push(ReachedRow { at, key, thresholds });
            }
        }
        reached
    }

    /// Takes what was raised of the rows that have reached a threshold, and says when each is to be judged next.
    pub fn take_records(&mut self, reached: Vec<ReachedRow>, records: &[RaisedRecords], now: UnixMs) {
        for (ReachedRow { at, thresholds, .. }, records) in reached.into_iter().zip(records) {
            let row = self.totals.row_mut(at);
            let period = if now < row.end { PeriodState::Open } else { PeriodState::Over };
            row.next = next_threshold(&thresholds, row.total, period, |percent| records.get(&percent));
        }
    }

    /// Reads what was raised of these rows.
    pub async fn records(
        &self,
        client: &RedisClient,
        keys: &Keys,
        rows: impl Iterator<Item = RowKey>,
    ) -> RedisResult<ReadAsOf<RaisedRecords>> {
        let queries: Vec<RecordQuery<'_>> = rows.map(|key| self.record_query(key)).collect();
        read_records(client, keys, &queries).await
    }

    /// The records of a row, as they are to be read.
    #[must_use]
    pub fn record_query(&self, key: RowKey) -> RecordQuery<'_> {
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

/// A row that was read and has reached a threshold.
#[derive(Debug)]
pub struct ReachedRow {
    at: u32,
    /// Which.
    pub key: RowKey,
    thresholds: Vec<Threshold>,
}
