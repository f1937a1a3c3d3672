//! Adding up: entries become new totals of counters. No Redis here.
//!
//! The same subject comes again and again, so each keeps the rows that its last event was counted in; most events are then one look
//! into the table of subjects and one addition a window. Entries are added in the order of the stream, each whole or not at all, and
//! a batch that is full ends between two of them.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::HeldTotals;
use crate::ledger::batch::{
    Batch, GROUP_ROWS_MAX, Group, NewAlert, REFUSED_BYTES_MAX, REFUSED_FIELDS_MAX, RefusedEvent, Row,
};
use crate::ledger::read_totals::RaisedRecords;
use crate::ledger::seen::{SeenId, SeenIds, window_of};
use crate::ledger::thresholds::{CounterMove, PeriodState, next_threshold};
use crate::ledger::totals::RowKey;
use crate::subjects::Profile;
use crate::types::metric::METRIC_DEFAULT;
use crate::types::units::UNITS_MAX;
use crate::types::{
    Alert, AlertId, AlertKey, BillingDay, Instance, Metric, PeriodSpan, RaisedRecord, RefusalReason, StreamId, Subject,
    UnixMs, Window,
};
use chrono_tz::Tz;

use super::held_state::{HeldState, Missing, MissingCounter};
use super::parse::{Amount, InvalidEvent, RawEvent, UsageEvent, arrival_of, broken_subject};

/// About the most alerts of one commit: each costs the server as much as many counters.
const ALERTS_MAX: usize = 200;
/// About the most bytes of refused events of one commit.
const REFUSED_BYTES_BATCH: usize = 1 << 20;

/// Bounds of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// Entries.
    pub entries: u64,
    /// Counters.
    pub rows: usize,
}

/// Adds up one batch.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Events later than this after their day's end are refused.
    late_max_ms: i64,
    bounds: BatchBounds,
    /// Number of the batch; tells whether a row is in it.
    number: u32,
    batch: Batch,
    first_entry: StreamId,
    /// Server time of the newest reading.
    newest_read: UnixMs,
    changed: Vec<ChangedRow>,
    /// Those of them that reached a threshold.
    reached: Vec<u32>,
    alerts_due: usize,
    refused_bytes: usize,
    spans: Vec<KnownSpan>,
}

/// A counter that the batch changes.
#[derive(Debug, Clone, Copy)]
struct ChangedRow {
    row: u32,
    before: u64,
    lowest: u64,
    /// The highest that was at or above the next threshold; 0 where none was.
    highest: u64,
}

#[derive(Debug)]
struct KnownSpan {
    window: Window,
    zone: Tz,
    billing_day: BillingDay,
    span: PeriodSpan,
}

/// One entry as the reader has it.
#[derive(Debug, Clone)]
pub struct ReadEntry<F> {
    /// Its id.
    pub id: StreamId,
    /// Its fields and values.
    pub fields: F,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOutcome {
    /// It is in the batch: counted, a duplicate, or refused.
    Added,
    /// Something has to be read first ([`BatchBuilder::missing`]); then it is to be added again.
    Missing,
    /// The batch is full.
    Full,
}

impl BatchBuilder {
    /// Nothing added yet.
    #[must_use]
    pub fn new(late_max: Duration, bounds: BatchBounds) -> Self {
        Self {
            late_max_ms: i64::try_from(late_max.as_millis()).unwrap_or(i64::MAX),
            bounds,
            // Batches are told apart from those before them, so that rows of none are older than both.
            number: 2,
            batch: Batch::new(Instance::from_stored(""), StreamId::ZERO),
            first_entry: StreamId::ZERO,
            newest_read: UnixMs(0),
            changed: Vec::new(),
            reached: Vec::new(),
            alerts_due: 0,
            refused_bytes: 0,
            spans: Vec::new(),
        }
    }

    /// Begins a batch that follows `from`, whatever was added before.
    pub fn begin(&mut self, instance: Instance, from: StreamId, bounds: BatchBounds) {
        self.number = self.number.wrapping_add(1).max(2);
        self.bounds = bounds;
        self.batch = Batch::new(instance, from);
        self.changed.clear();
        self.reached.clear();
        self.alerts_due = 0;
        self.refused_bytes = 0;
        self.spans.clear();
    }

    /// The oldest batch whose rows are in use: the one before this may be on its way to Redis.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.number - 1
    }

    /// How many entries were added.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.batch.entries
    }

    /// The checkpoint that the next entry follows.
    #[must_use]
    pub const fn reached_entry(&self) -> StreamId {
        self.batch.to
    }

    /// Whether no more may be added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.batch.entries >= self.bounds.entries
            || self.changed.len() >= self.bounds.rows
            || self.alerts_due >= ALERTS_MAX
            || self.refused_bytes >= REFUSED_BYTES_BATCH
    }

    /// Adds one entry, which was read at `server`, unless the batch is full or something has to be read first.
    pub fn add<'a, F>(&mut self, held: &mut HeldState, entry: &ReadEntry<F>, server: UnixMs) -> AddOutcome
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        if self.is_full() {
            return AddOutcome::Full;
        }
        match self.add_event(held, entry, server) {
            Ok(AddOutcome::Added) => {}
            Ok(other) => return other,
            Err(broken) => self.refuse(entry, broken),
        }
        if self.batch.entries == 0 {
            self.batch.read_at = server;
            self.first_entry = entry.id;
        }
        self.newest_read = server;
        self.batch.entries += 1;
        self.batch.to = entry.id;
        AddOutcome::Added
    }

    fn add_event<'a, F>(
        &mut self,
        held: &mut HeldState,
        entry: &ReadEntry<F>,
        server: UnixMs,
    ) -> Result<AddOutcome, InvalidEvent>
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let raw = RawEvent::of(entry.fields.clone());
        let bytes = raw.subject.ok_or_else(RawEvent::missing_subject)?;
        let Some(slot) = held.cache.find(bytes) else {
            crate::types::subject::check(bytes).map_err(broken_subject)?;
            return Ok(AddOutcome::Missing);
        };
        let arrival = arrival_of(entry.id, server);
        let event = raw.event(arrival)?;
        held.cache.slot_mut(slot).used = self.number;
        if !is_ready(held, slot, &event) && self.resolve(held, slot, &event, arrival, None)? == AddOutcome::Missing {
            return Ok(AddOutcome::Missing);
        }
        // The rows may have been found by an older event of a day that is over meanwhile; lateness is the event's own.
        if arrival > held.cache.slot(slot).extra.day_end.plus(self.late_max_ms) {
            return Err(too_late(event.at, arrival));
        }
        let id = event.id.map(|id| {
            let metric = held.totals.metric(held.cache.slot(slot).extra.metric);
            SeenId::of(&held.cache.slot(slot).subject, metric, id)
        });
        let window = window_of(arrival);
        if id.is_some_and(|id| held.seen.contains(window, id)) {
            self.batch.duplicates += 1;
            return Ok(AddOutcome::Added);
        }
        self.count(held, slot, event.amount)?;
        if let Some(id) = id {
            held.seen.insert(id);
            self.remember(held.seen.window(), id);
        }
        self.batch.counted += 1;
        Ok(AddOutcome::Added)
    }

    fn remember(&mut self, window: u64, id: SeenId) {
        match self.batch.seen.last_mut() {
            Some(ids) if ids.window == window => ids.push(id),
            _ => {
                let mut ids = SeenIds::new(window);
                ids.push(id);
                self.batch.seen.push(ids);
            }
        }
    }

    /// Adds what an entry needs, and does not find held, to `missing`. Broken entries need nothing.
    pub fn missing<'a, F>(&mut self, held: &mut HeldState, entry: &ReadEntry<F>, server: UnixMs, missing: &mut Missing)
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let raw = RawEvent::of(entry.fields.clone());
        let Some(bytes) = raw.subject else { return };
        let slot = match held.cache.find(bytes) {
            Some(slot) => slot,
            None => match Subject::parse(bytes) {
                Ok(subject) => held.cache.add(subject),
                Err(_) => return,
            },
        };
        held.cache.slot_mut(slot).used = self.number;
        let arrival = arrival_of(entry.id, server);
        let Ok(event) = raw.event(arrival) else { return };
        if !is_ready(held, slot, &event) {
            // What is broken is said when the entry is added.
            let _ = self.resolve(held, slot, &event, arrival, Some(missing));
        }
    }

    /// Finds the rows that an event is to be counted in, or notes what is missing of them.
    fn resolve(
        &mut self,
        held: &mut HeldState,
        slot: u32,
        event: &UsageEvent<'_>,
        arrival: UnixMs,
        mut missing: Option<&mut Missing>,
    ) -> Result<AddOutcome, InvalidEvent> {
        let subject = held.cache.slot_mut(slot);
        let Some(profile) = subject.profile().map(Arc::clone) else {
            if let Some(missing) = missing {
                missing.settings.push(slot);
            }
            return Ok(AddOutcome::Missing);
        };
        let bucket = subject.bucket;
        let rows = &mut subject.extra;
        rows.clear();
        rows.epoch = held.totals.epoch();
        rows.metric = held.totals.metric_id(event.metric.unwrap_or(METRIC_DEFAULT));
        if !rows.profile.as_ref().is_some_and(|known| Arc::ptr_eq(known, &profile)) {
            rows.profile = Some(Arc::clone(&profile));
            rows.settings = rows.settings.wrapping_add(1);
        }
        (rows.start, rows.end) = (UnixMs(i64::MIN), UnixMs(i64::MAX));
        let (metric_id, settings) = (rows.metric, rows.settings);
        let metric = held.totals.metric(metric_id).clone();
        let mut outcome = AddOutcome::Added;
        for window in windows_of(&profile, &metric) {
            // No calendar of four-digit years holds it; what lies ahead of the arrival was refused before.
            let span = self.span(window, &profile, event.at).ok_or_else(|| too_late(event.at, arrival))?;
            let key = RowKey { slot, counter: held.totals.counter(metric_id, span.period, bucket) };
            let found = held.totals.find(key);
            let is_judged = found.is_some_and(|row| held.totals.row(row).settings == settings);
            let rows = &mut held.cache.slot_mut(slot).extra;
            (rows.start, rows.end) = (rows.start.max(span.start), rows.end.min(span.end));
            if window == Window::Day {
                rows.day_end = span.end;
            }
            match found {
                Some(row) if is_judged => rows.push(row),
                _ => outcome = AddOutcome::Missing,
            }
            if let (Some(missing), false) = (missing.as_deref_mut(), is_judged) {
                match found {
                    Some(row) => missing.thresholds.push(row),
                    None => missing.counters.push(MissingCounter { key, end: span.end }),
                }
            }
        }
        if outcome == AddOutcome::Missing {
            held.cache.slot_mut(slot).extra.clear();
        }
        Ok(outcome)
    }

    /// The period of the subject's calendar that holds the instant.
    fn span(&mut self, window: Window, profile: &Profile, at: UnixMs) -> Option<PeriodSpan> {
        let (zone, billing_day) = (profile.zone(), profile.billing_day());
        let is = |known: &&KnownSpan| {
            known.window == window && known.zone == zone && known.billing_day == billing_day && known.span.contains(at)
        };
        if let Some(known) = self.spans.iter().find(is) {
            return Some(known.span);
        }
        let span = PeriodSpan::containing(window, zone, billing_day, at)?;
        self.spans.push(KnownSpan { window, zone, billing_day, span });
        Some(span)
    }

    fn count(&mut self, held: &mut HeldState, slot: u32, amount: Amount) -> Result<(), InvalidEvent> {
        let HeldState { cache, totals, .. } = held;
        let subject = cache.slot(slot);
        let rows = subject.extra.rows();
        match amount {
            Amount::Used(units) => {
                let full = rows.iter().find(|row| totals.row(**row).total > UNITS_MAX - units.get());
                if let Some(row) = full {
                    let left = UNITS_MAX - totals.row(*row).total;
                    let detail = format!("the counter would pass {UNITS_MAX}, {left} units fit");
                    return Err(InvalidEvent::new(RefusalReason::CounterOverflow, detail));
                }
                for at in rows {
                    let place = self.change(totals.row_mut(*at), *at);
                    let row = totals.row_mut(*at);
                    row.total += units.get();
                    if row.total >= row.next {
                        let changed = &mut self.changed[place];
                        if changed.highest == 0 {
                            self.reached.push(row.place);
                            let thresholds = subject.extra.profile.as_ref().map_or(0, |p| p.thresholds().len());
                            self.alerts_due += thresholds;
                        }
                        changed.highest = changed.highest.max(row.total);
                    }
                }
            }
            Amount::Credit(units) => {
                for at in rows.to_vec() {
                    let place = self.change(held.totals.row_mut(at), at);
                    let thresholds = held.thresholds(held.totals.place_of(at));
                    let row = held.totals.row_mut(at);
                    row.total = row.total.saturating_sub(units.get());
                    let changed = &mut self.changed[place];
                    changed.lowest = changed.lowest.min(row.total);
                    // A threshold that lies ahead again may be crossed again; what was raised of it is looked at then.
                    let ahead = thresholds.iter().map(|threshold| threshold.units).find(|units| *units > row.total);
                    row.next = ahead.map_or(row.next, |ahead| ahead.min(row.next));
                }
            }
        }
        Ok(())
    }

    /// The place of a row among those that the batch changes.
    fn change(&mut self, row: &mut crate::ledger::totals::TotalRow, at: u32) -> usize {
        if row.batch != self.number {
            row.batch = self.number;
            row.place = u32::try_from(self.changed.len()).expect("a batch has fewer rows than u32 counts");
            self.changed.push(ChangedRow { row: at, before: row.total, lowest: row.total, highest: 0 });
        }
        row.place as usize
    }

    fn refuse<'a, F>(&mut self, entry: &ReadEntry<F>, broken: InvalidEvent)
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let fields = kept(entry.fields.clone());
        self.refused_bytes += fields.iter().map(Vec::len).sum::<usize>();
        let InvalidEvent { reason, detail } = broken;
        self.batch.refused.push(RefusedEvent { entry: entry.id, reason, detail, fields });
    }

    /// The counters that have reached a threshold: what was raised of each is to be read.
    #[must_use]
    pub fn reached(&self, held: &HeldState) -> Vec<RowKey> {
        self.reached.iter().map(|place| held.totals.place_of(self.changed[*place as usize].row)).collect()
    }

    /// Closes the batch; `records` tells what was raised of [`Self::reached`].
    #[must_use]
    pub fn finish(&mut self, held: &mut HeldState, records: Vec<RaisedRecords>) -> Batch {
        let mut batch = std::mem::replace(&mut self.batch, Batch::new(Instance::from_stored(""), StreamId::ZERO));
        let places = self.arrange(held, &mut batch);
        let reached = std::mem::take(&mut self.reached);
        for (place, records) in reached.into_iter().zip(records) {
            self.judge(held, &mut batch, place, places[place as usize], records);
        }
        batch
    }

    /// Puts the changed counters into groups, by the hash in which they lie; says where each is.
    fn arrange(&self, held: &mut HeldState, batch: &mut Batch) -> Vec<Place> {
        let mut order: Vec<(u32, u32)> = Vec::with_capacity(self.changed.len());
        for (place, changed) in (0..).zip(&self.changed) {
            order.push((held.totals.place_of(changed.row).counter, place));
        }
        order.sort_unstable();
        let mut places = vec![Place::default(); self.changed.len()];
        for rows in order.chunk_by(|a, b| a.0 == b.0).flat_map(|rows| rows.chunks(GROUP_ROWS_MAX)) {
            let counter = rows[0].0;
            let of = held.totals.metric_period(counter).clone();
            if held.totals.is_to_be_listed(counter, self.newest_read) {
                batch.metrics.push(of.clone());
            }
            let ttl_s = held.totals.ttl_s(counter, self.newest_read);
            let group = batch.groups.len();
            let row = |(row, (_, place)): (usize, &(u32, u32))| {
                places[*place as usize] = Place { group, row };
                let changed = &self.changed[*place as usize];
                let RowKey { slot, .. } = held.totals.place_of(changed.row);
                let (subject, total) = (held.cache.slot(slot).subject.clone(), held.totals.row(changed.row).total);
                Row { subject, before: changed.before, total }
            };
            let rows = rows.iter().enumerate().map(row).collect();
            batch.groups.push(Group { of, bucket: HeldTotals::bucket(counter), ttl_s, rows });
        }
        places
    }

    /// Raises what a counter has reached, and says when it is to be judged next.
    fn judge(&self, held: &mut HeldState, batch: &mut Batch, place: u32, at: Place, mut records: RaisedRecords) {
        let changed = &self.changed[place as usize];
        let key = held.totals.place_of(changed.row);
        let thresholds = held.thresholds(key);
        let row = held.totals.row(changed.row);
        let period = if self.newest_read < row.end { PeriodState::Open } else { PeriodState::Over };
        let counter = CounterMove { lowest: changed.lowest, highest: changed.highest };
        for threshold in &thresholds {
            if !threshold.is_raised_by(counter, period, records.get(&threshold.percent)) {
                continue;
            }
            let Some(alert) = self.alert(held, batch, changed, threshold.percent, threshold.units) else { continue };
            let record = RaisedRecord::after(records.remove(&threshold.percent), alert);
            records.insert(threshold.percent, record.clone());
            batch.alerts.push(NewAlert { group: at.group, row: at.row, record });
        }
        let row = held.totals.row_mut(changed.row);
        // What was due is raised, or its flag is there: from now on only what lies ahead is.
        row.next = next_threshold(&thresholds, row.total, PeriodState::Over, |percent| records.get(&percent));
    }

    fn alert(
        &self,
        held: &HeldState,
        batch: &Batch,
        changed: &ChangedRow,
        percent: crate::types::Percent,
        units: u64,
    ) -> Option<Alert> {
        let RowKey { slot, counter } = held.totals.place_of(changed.row);
        let subject = held.cache.slot(slot);
        let profile = subject.extra.profile.as_ref()?;
        let of = held.totals.metric_period(counter);
        let window = of.period.window();
        let limit = profile.limits_of(&of.metric).iter().find(|limit| limit.window == window)?;
        let key = AlertKey { subject: &subject.subject, metric: &of.metric, period: of.period, percent, units };
        Some(Alert {
            id: AlertId::of(&batch.instance, &key),
            subject: subject.subject.clone(),
            metric: of.metric.clone(),
            window,
            period: of.period,
            threshold_percent: percent,
            threshold_units: units,
            limit: limit.units.get(),
            plan: profile.plan().to_string(),
            timezone: profile.zone().name().to_owned(),
            resets_at_ms: held.totals.row(changed.row).end,
            used_before: changed.before,
            used: changed.highest,
            first_entry: self.first_entry,
            last_entry: batch.to,
            raised_at_ms: self.newest_read,
        })
    }
}

/// Where a counter lies in a batch.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    group: usize,
    row: usize,
}

/// Whether the rows that the subject's last event was counted in are those of this one.
fn is_ready(held: &HeldState, slot: u32, event: &UsageEvent<'_>) -> bool {
    let subject = held.cache.slot(slot);
    let rows = &subject.extra;
    let is_current = match (subject.profile(), &rows.profile) {
        (Some(profile), Some(known)) => Arc::ptr_eq(profile, known),
        _ => false,
    };
    is_current
        && !rows.rows().is_empty()
        && rows.epoch == held.totals.epoch()
        && rows.start <= event.at
        && event.at < rows.end
        && held.totals.metric(rows.metric).as_str() == event.metric.unwrap_or(METRIC_DEFAULT)
}

/// The windows over which a metric is counted: the day always, others where a limit asks for them.
fn windows_of(profile: &Profile, metric: &Metric) -> impl Iterator<Item = Window> {
    let limits = profile.limits_of(metric);
    let asked = Window::ALL.map(|window| window == Window::Day || limits.iter().any(|limit| limit.window == window));
    Window::ALL.into_iter().zip(asked).filter_map(|(window, asked)| asked.then_some(window))
}

fn too_late(at: UnixMs, arrival: UnixMs) -> InvalidEvent {
    InvalidEvent::new(
        RefusalReason::TooLate,
        format!("ts {at} lies in a day that was over too long at its arrival {arrival}"),
    )
}

fn kept<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Vec<u8>> {
    let cut = |bytes: &[u8]| bytes[..bytes.len().min(REFUSED_BYTES_MAX)].to_vec();
    fields.take(REFUSED_FIELDS_MAX).flat_map(|(name, value)| [cut(name), cut(value)]).collect()
}
