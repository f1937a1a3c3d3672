//! The counters that a batch changes, and the alerts that it raises. Pure.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::ledger::CounterCache;
use crate::ledger::batch::{Batch, CounterGroup, GROUP_ROWS_MAX, NewAlert, Row};
use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::read_totals::RaisedRecords;
use crate::ledger::thresholds::{LimitThreshold, NO_THRESHOLD, PeriodState, ThresholdTransition, next_threshold};
use crate::ledger::totals::RowKey;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, AlertId, AlertKey, MetricUnit, RaisedRecord, Subject, TraceParent, Units, UnixMs};

use super::parse::{InvalidEvent, UsageDelta};
use super::worker_cache::{MissingRecords, Parent, ReadRecords, WorkerCache};

const DAY_MS: i64 = 86_400_000;

/// A new counter costs the server as much as three existing ones. An existing one takes about 0.2 us.
const NEW_ROW_COST: usize = 3;
/// Cost of a hash of counters: one of them is compared and others are written.
const HASH_COST: usize = 8;
/// Cost of an alert with its flag, its record and its entry in the outbox.
const ALERT_COST: usize = 40;

/// The counters that a batch changes.
#[derive(Debug, Default)]
pub(super) struct BatchChanges {
    /// Number of the batch; tells whether a row belongs to it.
    number: u64,
    rows: Vec<ChangedRow>,
    /// The changed counters that reached a threshold.
    reached: Vec<u32>,
    /// What was read for these, by the index among `rows`.
    records: HashMap<u32, ReadRecords, RandomState>,
    /// The [`RowKey::hash_id`] of the hashes of the changed counters.
    hashes: HashSet<u32, RandomState>,
    /// The thresholds that single events crossed: after a credit, the counts before and after the batch do not show
    /// them. With the trace context of the event, if it has one.
    crossings: HashMap<Crossing, Option<TraceParent>, RandomState>,
    /// See [`BatchChanges::cost`].
    cost: usize,
}

/// A counter that the batch changes.
#[derive(Debug, Clone, Copy)]
struct ChangedRow {
    row: u32,
    /// Number of alerts that the cost includes.
    alerts: u32,
    before: u64,
    /// The highest count that reached the next threshold; 0 if none did.
    highest: u64,
}

/// An event that moved a counter from below a threshold to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Crossing {
    /// The counter's index among the changed rows.
    index: u32,
    /// The threshold, units.
    units: u64,
}

/// The position of a counter in a batch.
#[derive(Debug, Clone, Copy, Default)]
struct BatchPosition {
    group: usize,
    row: usize,
}

impl BatchChanges {
    /// Begins a batch of this number.
    pub(super) fn begin(&mut self, number: u64) {
        self.number = number;
        self.rows.clear();
        self.reached.clear();
        self.records.clear();
        self.hashes.clear();
        self.crossings.clear();
        self.cost = 0;
    }

    /// Approximate time for which the commit blocks the server, in updates of existing counters.
    pub(super) const fn cost(&self) -> usize {
        self.cost
    }

    /// Counts an event in all rows of all levels of its subject, or in none.
    ///
    /// # Errors
    ///
    /// A counter would pass 2^53 - 1.
    pub(super) fn count(
        &mut self,
        held: &mut WorkerCache,
        levels: &[u32],
        amount: UsageDelta,
        trace: Option<&[u8]>,
    ) -> Result<(), InvalidEvent> {
        match amount {
            UsageDelta::Used(units) => {
                levels.iter().try_for_each(|level| held.check_fits(*level, units))?;
                levels.iter().for_each(|level| self.add(held, *level, units, trace));
            }
            UsageDelta::Credit(units) => levels.iter().for_each(|level| self.give_back(held, *level, units)),
            UsageDelta::Judge => levels.iter().for_each(|level| self.judge(held, *level)),
        }
        Ok(())
    }

    fn add(&mut self, held: &mut WorkerCache, subject_index: u32, units: Units, trace: Option<&[u8]>) {
        let WorkerCache { cache, totals, .. } = held;
        let mut is_due = false;
        for at in cache.subject(subject_index).extra.rows() {
            self.change(totals, *at);
            let row = totals.row_mut(*at);
            row.total += units.get();
            is_due |= row.total >= row.next_threshold_units;
        }
        if is_due {
            self.note_reached(held, subject_index, units.get(), trace);
        }
    }

    /// Judges the counts of a subject, which stay as they are.
    fn judge(&mut self, held: &mut WorkerCache, subject_index: u32) {
        let WorkerCache { cache, totals, .. } = held;
        let is_due = |row: &u32| totals.row(*row).total >= totals.row(*row).next_threshold_units;
        let due: Vec<u32> = cache.subject(subject_index).extra.rows().iter().copied().filter(is_due).collect();
        due.iter().for_each(|row| self.change(totals, *row));
        self.note_reached(held, subject_index, 0, None);
    }

    /// Notes which thresholds the rows of a subject reached with its last event of `units`.
    fn note_reached(&mut self, held: &mut WorkerCache, subject_index: u32, units: u64, trace: Option<&[u8]>) {
        let trace = trace.and_then(TraceParent::from_field);
        for at in held.cache.subject(subject_index).extra.rows().to_vec() {
            let thresholds = held.thresholds(held.totals.key_of(at));
            let row = held.totals.row_mut(at);
            if row.total < row.next_threshold_units {
                continue;
            }
            let (total, index) = (row.total, row.changed_index);
            let changed = &mut self.rows[index as usize];
            let is_first = changed.highest == 0;
            changed.highest = changed.highest.max(total);
            let reached = || thresholds.iter().filter(|threshold| threshold.units <= total);
            let crossed = reached().filter(|threshold| total - units < threshold.units);
            let before = self.crossings.len();
            for crossing in crossed.map(|threshold| Crossing { index, units: threshold.units }) {
                // The first crossing raises the alert, also if a credit makes the count cross again.
                self.crossings.entry(crossing).or_insert_with(|| trace.clone());
            }
            // Until the alert records are known, every reached threshold may raise an alert.
            let alerts = if is_first { reached().count() } else { self.crossings.len() - before };
            changed.alerts += u32::try_from(alerts).expect("a limit has few thresholds");
            self.cost += ALERT_COST * alerts;
            if is_first {
                self.reached.push(index);
            }
            row.next_threshold_units =
                thresholds.iter().map(|threshold| threshold.units).find(|ahead| *ahead > total).unwrap_or(NO_THRESHOLD);
        }
    }

    fn give_back(&mut self, held: &mut WorkerCache, subject_index: u32, units: Units) {
        let rows: Vec<u32> = held.cache.subject(subject_index).extra.rows().to_vec();
        for at in rows {
            let thresholds = held.thresholds(held.totals.key_of(at));
            self.change(&mut held.totals, at);
            let row = held.totals.row_mut(at);
            row.total = row.total.saturating_sub(units.get());
            // A threshold above the count may be crossed again; its alert records are read then.
            let ahead = thresholds.iter().map(|threshold| threshold.units).find(|units| *units > row.total);
            row.next_threshold_units =
                ahead.map_or(row.next_threshold_units, |ahead| ahead.min(row.next_threshold_units));
        }
    }

    /// Adds the row, with its present count, to the changed rows of the batch.
    fn change(&mut self, totals: &mut CounterCache, at: u32) {
        let row = totals.row_mut(at);
        if row.changed_in_batch != self.number {
            row.changed_in_batch = self.number;
            row.changed_index = u32::try_from(self.rows.len()).expect("a batch has fewer rows than u32 counts");
            self.cost += if row.total == 0 { NEW_ROW_COST } else { 1 };
            self.rows.push(ChangedRow { row: at, alerts: 0, before: row.total, highest: 0 });
            if self.hashes.insert(totals.key_of(at).hash_id) {
                self.cost += HASH_COST;
            }
        }
    }

    /// The counters that have reached a threshold, if their alert records are not known.
    pub(super) fn reached(&self, held: &WorkerCache) -> Vec<MissingRecords> {
        let unknown = self.reached.iter().filter(|index| !self.has_records(held, **index));
        let request = |index: &u32| {
            let ChangedRow { row, highest, .. } = self.rows[*index as usize];
            let key = held.totals.key_of(row);
            MissingRecords { key, thresholds: held.configured_thresholds(key).to_vec(), highest, batch: self.number }
        };
        unknown.map(request).collect()
    }

    /// Whether the alert records of every counter that has reached a threshold are known.
    pub(super) fn has_all_records(&self, held: &WorkerCache) -> bool {
        self.reached.iter().all(|index| self.has_records(held, *index))
    }

    /// Whether the records of a counter are known, for the present thresholds of its subject: another one may have been
    /// raised before. If a further threshold was reached since, the children must be known too, because it may raise an
    /// alert.
    fn has_records(&self, held: &WorkerCache, index: u32) -> bool {
        let Some(read) = self.records.get(&index) else { return false };
        let ReadRecords { request, children, .. } = read;
        let has_children = children.is_some() || request.highest >= self.rows[index as usize].highest;
        has_children && request.thresholds == held.configured_thresholds(request.key)
    }

    /// Takes alert records of [`Self::reached`], unless another batch asked for them. An alert that is not raised again
    /// costs nothing.
    pub(super) fn take_records(&mut self, held: &WorkerCache, read: Vec<ReadRecords>, now: UnixMs) {
        for read in read.into_iter().filter(|read| read.request.batch == self.number) {
            let key = read.request.key;
            let index = held.totals.row(held.totals.find(key).expect("the batch uses its row")).changed_index;
            let raised = self.raised(held, index, &held.thresholds(key), &read.records, now).count();
            let counted = &mut self.rows[index as usize].alerts;
            self.cost = self.cost + ALERT_COST * raised - ALERT_COST * *counted as usize;
            *counted = u32::try_from(raised).expect("a limit has few thresholds");
            self.records.insert(index, read);
        }
    }

    /// Puts counters and alerts into a batch, once [`Self::has_all_records`]. `now`: server time of the newest reading.
    pub(super) fn close(&mut self, held: &mut WorkerCache, batch: &mut Batch, now: UnixMs) {
        let positions = self.arrange(held, batch, now);
        for index in std::mem::take(&mut self.reached) {
            if let Some(read) = self.records.remove(&index) {
                self.raise_reached(held, batch, (index, positions[index as usize]), read, now);
            }
        }
    }

    /// The thresholds for which a changed counter raises an alert, given the `records` of earlier alerts.
    fn raised<'a>(
        &self,
        held: &WorkerCache,
        index: u32,
        thresholds: &'a [LimitThreshold],
        records: &RaisedRecords,
        now: UnixMs,
    ) -> impl Iterator<Item = &'a LimitThreshold> {
        let changed = &self.rows[index as usize];
        let row = held.totals.row(changed.row);
        let (total, used) = (row.total, changed.highest.max(row.total));
        let period = if now < row.end { PeriodState::Open } else { PeriodState::Over };
        thresholds.iter().filter(move |threshold| {
            let units = threshold.units;
            let transition = match units {
                _ if changed.before < units && units <= total => ThresholdTransition::Crossed,
                _ if self.crossings.contains_key(&Crossing { index, units }) => ThresholdTransition::Crossed,
                _ if units <= used => ThresholdTransition::ReachedBefore,
                _ => ThresholdTransition::NotReached,
            };
            threshold.is_raised_by(transition, period, records.get(&threshold.threshold))
        })
    }

    /// Groups the changed counters by hash, and returns the position of each.
    fn arrange(&self, held: &mut WorkerCache, batch: &mut Batch, now: UnixMs) -> Vec<BatchPosition> {
        let mut order: Vec<(u32, u32)> = Vec::with_capacity(self.rows.len());
        for (index, changed) in (0..).zip(&self.rows) {
            order.push((held.totals.key_of(changed.row).hash_id, index));
        }
        order.sort_unstable();
        self.list_children(held, batch, now);
        let mut positions = vec![BatchPosition::default(); self.rows.len()];
        for rows in order.chunk_by(|a, b| a.0 == b.0).flat_map(|rows| rows.chunks(GROUP_ROWS_MAX)) {
            let hash_id = rows[0].0;
            let of = held.totals.metric_period(hash_id).clone();
            if held.totals.is_to_be_listed(hash_id, now) {
                batch.metrics.push(of.clone());
            }
            let ttl_s = held.totals.ttl_s(hash_id, now);
            let group = batch.groups.len();
            let row = |(row, (_, index)): (usize, &(u32, u32))| {
                positions[*index as usize] = BatchPosition { group, row };
                let changed = &self.rows[*index as usize];
                let RowKey { subject_index, .. } = held.totals.key_of(changed.row);
                let (subject, total) =
                    (held.cache.subject(subject_index).subject.clone(), held.totals.row(changed.row).total);
                Row { subject, before: changed.before, total }
            };
            let rows = rows.iter().enumerate().map(row).collect();
            batch.groups.push(CounterGroup { of, bucket: CounterCache::bucket(hash_id), ttl_s, rows });
        }
        positions
    }

    /// Lists the changed subjects among the children of the levels above them, each once a day. A failed commit empties
    /// the cache, including the days.
    fn list_children(&self, held: &mut WorkerCache, batch: &mut Batch, now: UnixMs) {
        let today = now.0.div_euclid(DAY_MS);
        for changed in &self.rows {
            let RowKey { subject_index, .. } = held.totals.key_of(changed.row);
            let child = held.cache.subject_mut(subject_index);
            if let Parent::At(parent) = child.extra.parent
                && child.extra.listed_on != today
            {
                child.extra.listed_on = today;
                let child = child.subject.clone();
                batch.children.push((held.cache.subject(parent).subject.clone(), child));
            }
        }
    }

    /// The children of a subject: those whose counts were read, and those that this batch changes, which may be new.
    fn children(&self, held: &WorkerCache, parent: u32, read: Vec<SubjectCount>) -> Vec<SubjectCount> {
        let mut children: HashMap<Subject, u64> = read.into_iter().map(|count| (count.subject, count.used)).collect();
        for changed in &self.rows {
            let child = held.cache.subject(held.totals.key_of(changed.row).subject_index);
            if child.extra.parent == Parent::At(parent) {
                // What it used in the period of the alert is looked up for all of them.
                children.entry(child.subject.clone()).or_default();
            }
        }
        children.into_iter().map(|(subject, used)| SubjectCount { subject, used }).collect()
    }

    /// Raises the alerts of a counter, and sets the count at which it is judged next.
    fn raise_reached(
        &self,
        held: &mut WorkerCache,
        batch: &mut Batch,
        (index, at): (u32, BatchPosition),
        ReadRecords { mut records, children, .. }: ReadRecords,
        now: UnixMs,
    ) {
        let changed = &self.rows[index as usize];
        let RowKey { subject_index, hash_id } = held.totals.key_of(changed.row);
        let thresholds = held.thresholds(RowKey { subject_index, hash_id });
        let row = *held.totals.row(changed.row);
        let raised: Vec<LimitThreshold> = self.raised(held, index, &thresholds, &records, now).copied().collect();
        let subject = held.cache.subject(subject_index);
        let of = held.totals.metric_period(hash_id);
        let (metric, period, window) = (&of.metric, of.period, of.period.window());
        let profile = subject.extra.profile.as_ref();
        let limit = profile.and_then(|of| of.limit_of(metric, period));
        if let (Some(profile), Some(limit)) = (profile, limit) {
            let used = changed.highest.max(row.total);
            let largest = match children {
                Some(read) if !raised.is_empty() => held.largest(self.children(held, subject_index, read), of, used),
                _ => Vec::new(),
            };
            for (at_threshold, LimitThreshold { units, threshold }) in raised.iter().copied().enumerate() {
                let key = AlertKey { subject: &subject.subject, metric, period, threshold, units };
                let alert = Alert {
                    id: AlertId::derive(&batch.instance, &key),
                    subject: subject.subject.clone(),
                    metric: metric.clone(),
                    window,
                    period,
                    threshold,
                    threshold_units: units,
                    limit: limit.get(),
                    plan: profile.plan().to_string(),
                    timezone: profile.zone().name().to_owned(),
                    resets_at: period.has_end().then_some(Rfc3339(row.end)),
                    used_before: changed.before,
                    used,
                    first_entry: batch.first_entry,
                    last_entry: batch.to,
                    raised_at_ms: now,
                    higher_thresholds: raised[at_threshold + 1..].iter().map(|higher| higher.threshold).collect(),
                    largest: largest.clone(),
                    traceparent: self.crossings.get(&Crossing { index, units }).cloned().flatten(),
                    status: None,
                    unit: MetricUnit::default(),
                };
                let record = RaisedRecord::after(records.remove(&threshold), alert);
                records.insert(threshold, record.clone());
                batch.alerts.push(NewAlert { group: at.group, row: at.row, record });
            }
        }
        // Every reached threshold has raised its alert or has its flag, so only higher ones can raise one.
        held.totals.row_mut(changed.row).next_threshold_units =
            next_threshold(&thresholds, row.total, |threshold| records.get(&threshold));
    }
}
