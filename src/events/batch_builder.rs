//! Adding up: the entries of one reading become sums per subject, metric and day. No Redis here.
//!
//! The same subject comes again and again, so each keeps a hint of the row it was added to last; most events are then one look
//! into the table of subjects and one addition.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::time::Duration;

use chrono_tz::Tz;

use crate::ledger::batch::{AppliedLimit, REFUSED_BYTES_MAX, REFUSED_FIELDS_MAX, window_of};
use crate::ledger::{Batch, RefusedEvent, Row, SeenId, Thresholds};
use crate::subjects::{Profile, SettingsCache};
use crate::types::units::UNITS_MAX;
use crate::types::{Day, DaySpan, Metric, RefusalReason, StreamId, Subject, Units, UnixMs};

use super::parse::{InvalidEvent, RawEvent, UsageEvent, arrival_of, broken_subject};

/// What a subject's slot remembers of the batch in which it was added to last.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastRow {
    batch: u32,
    row: u32,
    metric: u32,
    start: UnixMs,
    end: UnixMs,
    expected: ExpectedTotal,
}

/// What was added up of a subject on one metric_day, over all batches since it is held. Less than its counter where others counted before,
/// more where a batch had to be read again: good enough to foresee which alerts a batch will raise. Only of the metric_day used last.
#[derive(Debug, Clone, Copy, Default)]
struct ExpectedTotal {
    /// Stands for metric and day; a mix-up would only foresee badly.
    metric_day: u64,
    units: u64,
}

/// Adds up one batch.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Events later than this after their day's end are refused.
    late_max_ms: i64,
    /// Number of the batch; tells whether a hint is of this one.
    number: u32,
    batch: Batch,
    metrics: Vec<Metric>,
    zones: Vec<(Tz, DaySpan)>,
    rows: HashMap<RowKey, u32, foldhash::fast::RandomState>,
    /// Whose each row is, and of which metric_day, by the row's position before the batch is arranged.
    owners: Vec<Owner>,
    limits: HashMap<LimitKey, Option<u32>, foldhash::fast::RandomState>,
    identified: Vec<IdentifiedEvent>,
    headroom: CounterHeadroom,
    random: foldhash::fast::RandomState,
}

/// How many units still fit into counters that are nearly full, by subject, metric and day. Empty but after an overflow.
pub type CounterHeadroom = HashMap<(Subject, Metric, Day), u64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RowKey {
    slot: u32,
    metric: u32,
    day: Day,
}

/// Whose a row is.
#[derive(Debug, Clone, Copy)]
struct Owner {
    slot: u32,
    metric_day: u64,
}

/// Subjects with the same settings share the thresholds of a metric and day; the address of the shared settings tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LimitKey {
    profile: usize,
    metric_day: u32,
}

/// An event with an id: counted only once it is known that its id was not counted before.
#[derive(Debug, Clone)]
pub struct IdentifiedEvent {
    /// Position of the entry in the reading.
    pub entry: usize,
    /// The id, with subject and metric.
    pub seen: SeenId,
    id: StreamId,
    row: u32,
    units: Units,
    fields: Vec<Vec<u8>>,
}

/// One entry as the reader has it.
#[derive(Debug, Clone)]
pub struct ReadEntry<F> {
    /// Position in the reading.
    pub at: usize,
    /// Its id.
    pub id: StreamId,
    /// Its fields and values.
    pub fields: F,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOutcome {
    /// It is counted, refused, or waits for the look-up of its id.
    Done,
    /// The settings of the subject in this slot have to be read first; then the entry is to be added again.
    Needs(u32),
}

impl BatchBuilder {
    /// Nothing added yet.
    #[must_use]
    pub fn new(late_max: Duration) -> Self {
        Self {
            late_max_ms: i64::try_from(late_max.as_millis()).unwrap_or(i64::MAX),
            number: 0,
            batch: Batch::default(),
            metrics: Vec::new(),
            zones: Vec::new(),
            rows: HashMap::default(),
            owners: Vec::new(),
            limits: HashMap::default(),
            identified: Vec::new(),
            headroom: CounterHeadroom::new(),
            random: foldhash::fast::RandomState::default(),
        }
    }

    /// Begins a batch of `entries` entries read after `from`, the last of them `to`, at `read_at` server time.
    pub fn begin(&mut self, from: StreamId, to: StreamId, entries: u64, read_at: UnixMs) {
        self.number = self.number.wrapping_add(1).max(1);
        self.batch = Batch { from, to, entries, read_at, ..Batch::default() };
        self.metrics.clear();
        self.metrics.push(Metric::default());
        self.zones.clear();
        self.rows.clear();
        self.owners.clear();
        self.limits.clear();
        self.identified.clear();
    }

    /// After an overflow: how much still fits, for the batches until one is committed.
    pub fn set_headroom(&mut self, headroom: CounterHeadroom) {
        self.headroom = headroom;
    }

    /// Adds one entry.
    pub fn add<'a, F>(&mut self, cache: &mut SettingsCache<LastRow>, entry: ReadEntry<F>) -> AddOutcome
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let raw = RawEvent::of(entry.fields.clone());
        match self.judge(cache, &raw, &entry) {
            Ok(outcome) => outcome,
            Err(broken) => {
                self.batch.refused.push(refused(entry.id, broken, kept(entry.fields)));
                AddOutcome::Done
            }
        }
    }

    fn judge<'a, F>(
        &mut self,
        cache: &mut SettingsCache<LastRow>,
        raw: &RawEvent<'a>,
        entry: &ReadEntry<F>,
    ) -> Result<AddOutcome, InvalidEvent>
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let bytes = raw.subject.ok_or_else(RawEvent::missing_subject)?;
        let slot = match cache.find(bytes) {
            Some(slot) => slot,
            None => cache.add(Subject::parse(bytes).map_err(broken_subject)?),
        };
        let arrival = arrival_of(entry.id, self.batch.read_at);
        let event = raw.event(arrival)?;
        let metric = self.metric(event.metric);
        let held = cache.slot_mut(slot);
        held.used = self.number;
        let last = held.extra;
        let row = if last.batch == self.number && last.metric == metric && last.start <= event.at && event.at < last.end
        {
            last.row
        } else {
            let Some(profile) = held.profile() else { return Ok(AddOutcome::Needs(slot)) };
            let profile = std::sync::Arc::clone(profile);
            let span = self.span(&profile, event.at, arrival)?;
            let row = self.row(cache, slot, &profile, metric, span);
            let last = &mut cache.slot_mut(slot).extra;
            *last =
                LastRow { batch: self.number, row, metric, start: span.start, end: span.end, expected: last.expected };
            row
        };
        // The hint may be of an older event of a day that is over meanwhile; lateness is the event's own.
        let day_end = cache.slot(slot).extra.end;
        if arrival > day_end.plus(self.late_max_ms) {
            return Err(too_late(event.at, arrival));
        }
        match event.id {
            Some(_) => self.identify(row, &event, entry),
            None => self.count(row, event.units)?,
        }
        Ok(AddOutcome::Done)
    }

    /// The day of the subject's zone that holds the instant.
    fn span(&mut self, profile: &Profile, at: UnixMs, arrival: UnixMs) -> Result<DaySpan, InvalidEvent> {
        let zone = profile.zone();
        if let Some((_, span)) = self.zones.iter().find(|(known, span)| *known == zone && span.contains(at)) {
            return Ok(*span);
        }
        // No calendar of four-digit years holds it; what lies ahead of the arrival was refused before.
        let span = DaySpan::containing(zone, at).ok_or_else(|| too_late(at, arrival))?;
        self.zones.push((zone, span));
        Ok(span)
    }

    fn metric(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name else { return 0 };
        let at = self.metrics.iter().position(|metric| metric.as_str() == name).unwrap_or_else(|| {
            self.metrics.push(Metric::parse(name.as_bytes()).expect("the event's metric was checked"));
            self.metrics.len() - 1
        });
        u32::try_from(at).expect("a batch has fewer metrics than u32 counts")
    }

    fn row(
        &mut self,
        cache: &SettingsCache<LastRow>,
        slot: u32,
        profile: &std::sync::Arc<Profile>,
        metric: u32,
        span: DaySpan,
    ) -> u32 {
        let key = RowKey { slot, metric, day: span.day };
        if let Some(row) = self.rows.get(&key) {
            return *row;
        }
        let metric_day = self.batch.metric_day(&self.metrics[metric as usize], span.day);
        let limit_key = LimitKey { profile: std::sync::Arc::as_ptr(profile) as usize, metric_day };
        let limit = match self.limits.get(&limit_key) {
            Some(limit) => *limit,
            None => {
                let limit = self.applied_limit(profile, metric, span);
                self.limits.insert(limit_key, limit);
                limit
            }
        };
        let row = u32::try_from(self.batch.rows.len()).expect("a batch has fewer rows than u32 counts");
        let held = cache.slot(slot);
        let owner = Owner { slot, metric_day: self.random.hash_one((&self.metrics[metric as usize], span.day)) };
        let expected = held.extra.expected;
        let expected_before = if expected.metric_day == owner.metric_day { expected.units } else { 0 };
        self.batch.rows.push(Row {
            subject: held.subject.clone(),
            bucket: held.bucket,
            metric_day,
            limit,
            expected_before,
            sum: 0,
        });
        self.owners.push(owner);
        self.rows.insert(key, row);
        row
    }

    fn applied_limit(&mut self, profile: &Profile, metric: u32, span: DaySpan) -> Option<u32> {
        let limit = profile.limit(&self.metrics[metric as usize]).filter(|_| profile.is_judged())?;
        let thresholds = Thresholds::new(limit, profile.thresholds(), span.end)?;
        let plan = std::sync::Arc::clone(profile.plan());
        self.batch.limits.push(AppliedLimit { thresholds, limit: limit.get(), plan, timezone: profile.zone().name() });
        u32::try_from(self.batch.limits.len() - 1).ok()
    }

    fn count(&mut self, row: u32, units: Units) -> Result<(), InvalidEvent> {
        if !self.headroom.is_empty() {
            self.take_headroom(row, units)?;
        }
        let row = &mut self.batch.rows[row as usize];
        // Above 2^53 - 1 the script answers `overflow` whatever the counter holds, so the exact sum does not matter there.
        row.sum = (row.sum + units.get()).min(UNITS_MAX + 1);
        self.batch.counted += 1;
        Ok(())
    }

    fn take_headroom(&mut self, row: u32, units: Units) -> Result<(), InvalidEvent> {
        let row = &self.batch.rows[row as usize];
        let metric_day = &self.batch.metric_days[row.metric_day as usize];
        let key = (row.subject.clone(), metric_day.metric.clone(), metric_day.day);
        let Some(left) = self.headroom.get_mut(&key) else { return Ok(()) };
        *left = left.checked_sub(units.get()).ok_or_else(|| {
            InvalidEvent::new(
                RefusalReason::CounterOverflow,
                format!("the counter would pass {UNITS_MAX}, {left} units fit"),
            )
        })?;
        Ok(())
    }

    fn identify<'a, F>(&mut self, row: u32, event: &UsageEvent<'_>, entry: &ReadEntry<F>)
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let of = &self.batch.rows[row as usize];
        let metric = &self.batch.metric_days[of.metric_day as usize].metric;
        let member = SeenId::member(&of.subject, metric, event.id.unwrap_or_default());
        let seen = SeenId { window: window_of(entry.id), member };
        let fields = kept(entry.fields.clone());
        self.identified.push(IdentifiedEvent { entry: entry.at, seen, id: entry.id, row, units: event.units, fields });
    }

    /// The events whose ids have to be looked up, in the order of the stream.
    pub fn identified(&mut self) -> &[IdentifiedEvent] {
        self.identified.sort_by_key(|event| event.entry);
        &self.identified
    }

    /// Counts the events with ids that are new, given which ids of [`Self::identified`] were counted by earlier commits.
    pub fn resolve(&mut self, counted_before: &[bool]) {
        let events = std::mem::take(&mut self.identified);
        let mut newest: HashMap<Vec<u8>, u64> = HashMap::new();
        for (event, before) in events.into_iter().zip(counted_before) {
            let in_batch = newest.get(&event.seen.member).is_some_and(|window| event.seen.window <= window + 1);
            if *before || in_batch {
                self.batch.duplicates += 1;
                continue;
            }
            match self.count(event.row, event.units) {
                Ok(()) => {
                    newest.insert(event.seen.member.clone(), event.seen.window);
                    self.batch.seen.push(event.seen);
                }
                Err(broken) => self.batch.refused.push(refused(event.id, broken, event.fields)),
            }
        }
    }

    /// The batch, ready to be committed.
    #[must_use]
    pub fn finish(&mut self, cache: &mut SettingsCache<LastRow>) -> Batch {
        let mut batch = std::mem::take(&mut self.batch);
        for (row, owner) in batch.rows.iter().zip(&self.owners) {
            let units = row.expected_before.saturating_add(row.sum);
            cache.slot_mut(owner.slot).extra.expected = ExpectedTotal { metric_day: owner.metric_day, units };
        }
        batch.refused.sort_by_key(|refused| refused.entry);
        batch.arrange();
        batch
    }
}

fn too_late(at: UnixMs, arrival: UnixMs) -> InvalidEvent {
    InvalidEvent::new(
        RefusalReason::TooLate,
        format!("ts {at} lies in a day that was over too long at its arrival {arrival}"),
    )
}

fn refused(entry: StreamId, broken: InvalidEvent, fields: Vec<Vec<u8>>) -> RefusedEvent {
    RefusedEvent { entry, reason: broken.reason, detail: broken.detail, fields }
}

fn kept<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Vec<u8>> {
    let cut = |bytes: &[u8]| bytes[..bytes.len().min(REFUSED_BYTES_MAX)].to_vec();
    fields.take(REFUSED_FIELDS_MAX).flat_map(|(name, value)| [cut(name), cut(value)]).collect()
}
