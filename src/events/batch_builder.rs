//! Turns entries into new totals of counters. Does not call Redis.
//!
//! The same subjects occur again and again, so each subject remembers the rows of its last event. Most events then cost
//! one lookup of the subject and one addition per window. Entries are added in stream order, each completely or not at
//! all, so a full batch ends between two entries.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::batch::{Batch, RefusedEvent};
use crate::ledger::event_ids::{EventIdDigest, window_of};
use crate::redis_client::{TruncatedEntry, raw::ENTRY_BYTES_MAX};
use crate::types::{DeploymentId, Keys, RefusalReason, StreamId, Subject, UnixMs};

use super::batch_changes::BatchChanges;
use super::parse::{InvalidEvent, RawEvent, UsageDelta, arrival_of, check_arrival, check_subject};
use super::row_finder::RowFinder;
use super::stream_entry::{LOOKED_UP_AT_ONCE, LookedUpEntry, StreamEntry, look_up};
use super::worker_cache::{LoadRequest, MissingRecords, ReadRecords, WorkerCache};

/// Maximum time between the readings of a batch's first and last entry. A longer batch would apply limits late.
const SPAN_MAX_MS: i64 = 1_000;
/// The number of the first batch. Rows that belong to no batch have number 0, which is older than this batch and the
/// one before it.
const NUMBER_FIRST: u64 = 2;
/// What a refused event costs the server, in counters: it becomes an entry of a stream.
const REFUSED_COST: usize = 15;
/// Number of event ids that cost the server as much as one counter.
const IDS_OF_A_COUNTER: usize = 4;
/// Approximate maximum number of bytes of refused events in one commit.
const REFUSED_BYTES_BATCH: usize = 1 << 20;

/// Bounds of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// Maximum number of entries.
    pub entries: u64,
    /// Approximate maximum cost of the commit for the server, in updates of existing counters.
    pub cost: usize,
}

/// Builds one batch.
#[derive(Debug)]
pub struct BatchBuilder {
    /// The keys of the partition that the events belong to.
    keys: Keys,
    bounds: BatchBounds,
    /// Events that arrived longer ago than this are refused.
    age_max: Duration,
    /// When grants must be settled before later events are added.
    grants_due: Option<UnixMs>,
    /// When the next event arrived, if that was at this time or later.
    stopped_at: Option<UnixMs>,
    /// Number of the batch; tells whether a row belongs to it.
    number: u64,
    batch: Batch,
    /// The checkpoint that the previous batch follows. That batch may still be on its way to Redis.
    closed_from: Option<StreamId>,
    /// Server time of the newest reading.
    newest_read: UnixMs,
    /// Server time since which all readings were full: the stream had more entries than a reading takes.
    full_since: Option<UnixMs>,
    changes: BatchChanges,
    rows: RowFinder,
    refused_bytes: usize,
    /// Number of event ids that the batch remembers.
    ids: usize,
    judged: JudgedEntry,
}

/// The last entry with the field `judge`. The settings of its subject are read again for it, because the worker may not
/// know the change of settings that caused the entry.
#[derive(Debug, Default)]
struct JudgedEntry {
    id: StreamId,
    /// The subject whose settings must be read again.
    subject: Option<Vec<u8>>,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddResult {
    /// It is in the batch: counted, dropped as a duplicate, or refused.
    Added,
    /// Something must be read first ([`BatchBuilder::needs`]); then the entry must be added again.
    Missing,
    /// The batch is full.
    Full,
}

impl BatchBuilder {
    /// The first batch of a session, which is empty.
    pub fn new(keys: Keys, late_max: Duration, batch: Batch, bounds: BatchBounds) -> Self {
        let mut changes = BatchChanges::default();
        changes.begin(NUMBER_FIRST);
        let separator = keys.separator();
        Self {
            keys,
            bounds,
            age_max: Duration::MAX,
            grants_due: None,
            stopped_at: None,
            number: NUMBER_FIRST,
            batch,
            closed_from: None,
            newest_read: UnixMs(0),
            full_since: None,
            changes,
            rows: RowFinder::new(late_max, separator),
            refused_bytes: 0,
            ids: 0,
            judged: JudgedEntry::default(),
        }
    }

    /// Sets the age above which events are refused.
    #[must_use]
    pub fn with_age_max(self, age_max: Duration) -> Self {
        Self { age_max, ..self }
    }

    /// Sets when grants must be settled; `None` for never.
    pub const fn set_grants_due(&mut self, due: Option<UnixMs>) {
        (self.grants_due, self.stopped_at) = (due, None);
    }

    /// The time until which grants must be settled before the next event, if all events before it are in an earlier
    /// batch: when that event arrived.
    pub fn stopped_at_grants(&self) -> Option<UnixMs> {
        self.stopped_at.filter(|_| self.batch.entries == 0)
    }

    /// Takes the subject whose settings must be read again before the next entry is added.
    pub const fn take_unsure(&mut self) -> Option<Vec<u8>> {
        self.judged.subject.take()
    }

    /// The deployment that commits.
    pub const fn instance(&self) -> &DeploymentId {
        &self.batch.instance
    }

    /// The checkpoint that the batch follows.
    pub const fn from(&self) -> StreamId {
        self.batch.from
    }

    /// Whether entries that were read from the server process with this run id may be added.
    pub fn reads_from(&self, server: Option<&Arc<str>>) -> bool {
        self.batch.server.as_ref() == server
    }

    /// Notes a reading that was made at this server time.
    pub fn note_reading(&mut self, is_full: bool, server: UnixMs) {
        self.full_since = is_full.then(|| self.full_since.unwrap_or(server));
        self.batch.behind_for = self.full_since.map_or(Duration::ZERO, |since| server.since(since));
    }

    /// The number of the batch.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The oldest batch with rows in use: the previous batch may still be on its way to Redis.
    pub const fn oldest_batch_in_use(&self) -> u64 {
        self.number - 1
    }

    /// Whether the batch may build on data that was read while this checkpoint was stored: the batch's own checkpoint,
    /// or that of the previous batch, which may be on its way to Redis.
    ///
    /// If another worker has committed in the meantime, the batch is stale. But a failover can undo that commit; the
    /// batch would then be accepted and count on top of units that no longer exist.
    pub fn follows(&self, checkpoint: StreamId) -> bool {
        checkpoint == self.batch.from || self.closed_from == Some(checkpoint)
    }

    /// How many entries were added.
    pub const fn entries(&self) -> u64 {
        self.batch.entries
    }

    /// Approximate time for which the commit blocks the server, in updates of existing counters.
    pub const fn cost(&self) -> usize {
        self.changes.cost() + REFUSED_COST * self.batch.refused.len() + self.ids / IDS_OF_A_COUNTER
    }

    /// Whether no more entries may be added.
    pub fn is_full(&self) -> bool {
        self.stopped_at.is_some()
            || self.batch.entries >= self.bounds.entries
            || self.cost() >= self.bounds.cost
            || self.refused_bytes >= REFUSED_BYTES_BATCH
            || self.newest_read.0 - self.batch.read_at.0 >= SPAN_MAX_MS && self.batch.entries > 0
    }

    /// Adds entries that were read at `server` in order, until the batch is full or an entry needs something that must
    /// be read first. Returns the number of added entries, and the result of the next one.
    pub fn add<'a, F>(
        &mut self,
        held: &mut WorkerCache,
        mut entries: impl Iterator<Item = StreamEntry<F>>,
        server: UnixMs,
    ) -> (usize, AddResult)
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let (mut added, mut some) = (0, Vec::with_capacity(LOOKED_UP_AT_ONCE));
        loop {
            some.extend(entries.by_ref().take(LOOKED_UP_AT_ONCE).map(|entry| {
                let raw = RawEvent::from_fields(entry.fields.clone());
                LookedUpEntry { entry, raw, subject_index: None }
            }));
            if some.is_empty() {
                return (added, AddResult::Added);
            }
            look_up(held, &mut some);
            for found in &some {
                match self.add_one(held, found, server) {
                    AddResult::Added => added += 1,
                    other => return (added, other),
                }
            }
            some.clear();
        }
    }

    fn add_one<'a, F>(&mut self, held: &mut WorkerCache, found: &LookedUpEntry<'a, F>, server: UnixMs) -> AddResult
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let arrival = arrival_of(found.entry.id, server);
        self.stopped_at = self.grants_due.filter(|due| arrival >= *due).map(|_| arrival);
        if self.is_full() {
            return AddResult::Full;
        }
        match self.add_event(held, found, server) {
            Ok(AddResult::Added) => {}
            Ok(other) => return other,
            Err(broken) => self.refuse(&found.entry, broken),
        }
        self.added(found.entry.id, server);
        AddResult::Added
    }

    /// Refuses an entry that is too long, so that the reader has not read all of it. It was read at `server`.
    pub fn add_truncated(&mut self, entry: &TruncatedEntry, server: UnixMs) {
        let detail = format!("an entry must have at most {ENTRY_BYTES_MAX} bytes, with all its fields");
        let broken = InvalidEvent::new(RefusalReason::TooLarge, detail);
        self.refuse(&StreamEntry { id: entry.id, fields: entry.fields() }, broken);
        self.added(entry.id, server);
    }

    fn added(&mut self, entry: StreamId, server: UnixMs) {
        if self.batch.entries == 0 {
            self.batch.read_at = server;
            self.batch.first_entry = entry;
        }
        // The oldest reading decides, even if the server's clock was set back between two readings.
        self.batch.read_at = self.batch.read_at.min(server);
        self.batch.arrived = self.batch.arrived.max(arrival_of(entry, server));
        self.newest_read = server;
        self.batch.entries += 1;
        self.batch.to = entry;
    }

    fn add_event<F>(
        &mut self,
        held: &mut WorkerCache,
        LookedUpEntry { entry, raw, subject_index }: &LookedUpEntry<'_, F>,
        server: UnixMs,
    ) -> Result<AddResult, InvalidEvent> {
        raw.check_fields()?;
        let arrival = arrival_of(entry.id, server);
        check_arrival(arrival, server, self.age_max)?;
        let bytes = raw.subject.ok_or_else(RawEvent::missing_subject)?;
        let Some(subject_index) = *subject_index else {
            // A subject in memory was judged when it was added.
            check_subject(&self.keys, bytes)?;
            return Ok(AddResult::Missing);
        };
        let event = raw.parse(arrival)?;
        held.used_by(subject_index, self.number);
        if event.amount == UsageDelta::Judge && self.judged.id != entry.id {
            self.judged = JudgedEntry { id: entry.id, subject: Some(bytes.to_vec()) };
            return Ok(AddResult::Missing);
        }
        let Some(levels) = self.rows.find(held, subject_index, &event, None)? else { return Ok(AddResult::Missing) };
        let id = event.id.map(|id| {
            let metric = held.totals.metric(held.cache.subject(subject_index).extra.metric);
            EventIdDigest::derive(&held.cache.subject(subject_index).subject, metric, id)
        });
        let window = window_of(arrival);
        if id.is_some_and(|id| held.event_ids.contains(window, id)) {
            self.batch.duplicates += 1;
            return Ok(AddResult::Added);
        }
        self.changes.count(held, levels.as_slice(), event.amount, event.traceparent)?;
        if let Some(id) = id {
            held.event_ids.insert(id);
            self.ids += 1;
            let digests = self.batch.event_ids.entry(held.event_ids.window()).or_default();
            digests.extend_from_slice(id.as_bytes());
        }
        self.batch.counted += 1;
        Ok(AddResult::Added)
    }

    /// Adds to `missing` what must be read before the entry can be added. Returns whether that is anything. Invalid
    /// entries need nothing.
    pub fn needs<'a, F>(
        &mut self,
        held: &mut WorkerCache,
        entry: &StreamEntry<F>,
        server: UnixMs,
        missing: &mut LoadRequest,
    ) -> bool
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let raw = RawEvent::from_fields(entry.fields.clone());
        let arrival = arrival_of(entry.id, server);
        let is_broken = raw.check_fields().is_err() || check_arrival(arrival, server, self.age_max).is_err();
        let Some(bytes) = raw.subject.filter(|_| !is_broken) else { return false };
        let subject_index = match held.cache.find(bytes) {
            Some(subject_index) => subject_index,
            None => match Subject::parse(bytes) {
                Ok(subject) if check_subject(&self.keys, bytes).is_ok() => held.cache.add(subject),
                _ => return false,
            },
        };
        // With the levels above it, which are then kept too.
        held.levels(self.keys.separator(), subject_index, true);
        held.used_by(subject_index, self.number);
        let Ok(event) = raw.parse(arrival) else { return false };
        // `add` refuses an invalid event.
        matches!(self.rows.find(held, subject_index, &event, Some(missing)), Ok(None))
    }

    fn refuse<'a, F>(&mut self, entry: &StreamEntry<F>, broken: InvalidEvent)
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let fields = RefusedEvent::kept(entry.fields.clone());
        self.refused_bytes += fields.iter().map(Vec::len).sum::<usize>();
        let InvalidEvent { reason, detail } = broken;
        self.batch.refused.push(RefusedEvent { entry: entry.id, reason, detail, fields });
    }

    /// The counters that have reached a threshold, if their alert records are not known.
    pub fn reached(&self, held: &WorkerCache) -> Vec<MissingRecords> {
        self.changes.reached(held)
    }

    /// Takes the alert records of counters of [`Self::reached`].
    pub fn take_records(&mut self, held: &WorkerCache, read: Vec<ReadRecords>) {
        self.changes.take_records(held, read, self.newest_read);
    }

    /// Whether the batch can be closed: the alert records of every counter that has reached a threshold are known.
    pub fn is_ready(&self, held: &WorkerCache) -> bool {
        self.changes.has_all_records(held)
    }

    /// Closes the batch, once it [is ready](Self::is_ready), and begins the next one.
    #[must_use]
    pub fn finish(&mut self, held: &mut WorkerCache, next: BatchBounds) -> Batch {
        let Batch { instance, erasure_epoch, server, to, behind_for, .. } = &self.batch;
        let (erasure_epoch, server, behind_for) = (*erasure_epoch, server.clone(), *behind_for);
        let following = Batch { erasure_epoch, server, behind_for, ..Batch::new(instance.clone(), *to) };
        let mut batch = std::mem::replace(&mut self.batch, following);
        self.closed_from = Some(batch.from);
        self.changes.close(held, &mut batch, self.newest_read);
        self.number += 1;
        self.bounds = next;
        self.changes.begin(self.number);
        self.rows.clear();
        (self.refused_bytes, self.ids) = (0, 0);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::CountedEventIds;
    use crate::ledger::read_totals::RaisedRecords;
    use crate::subjects::config::PlanConfig;
    use crate::subjects::{Plans, Profile, SettingsCache};
    use crate::types::{DeploymentId, Metric};

    fn held(plans: &Plans) -> WorkerCache {
        WorkerCache::new(SettingsCache::new(10, plans), CountedEventIds::new(100))
    }

    fn builder(bounds: BatchBounds) -> BatchBuilder {
        let first = Batch::new(DeploymentId::from_stored("x"), StreamId::ZERO);
        BatchBuilder::new(Keys::new("usage"), Duration::ZERO, first, bounds)
    }

    /// Remembering 45,000 ids blocks the server for milliseconds more, however few counters the batch writes.
    #[test]
    fn event_ids_are_part_of_the_cost() {
        let plans = Plans::without_limits();
        let mut held = held(&plans);
        let bounds = BatchBounds { entries: 100, cost: 100 };
        let mut builder = builder(bounds);
        let subject_index = held.cache.add("alice".parse().expect("legal"));
        held.cache.keep(subject_index, Arc::new(Profile::of_unknown(&plans, 0)));
        for ms in 1..=8 {
            let number = ms.to_string();
            let fields = [(b"subject".as_slice(), b"alice".as_slice()), (b"id", number.as_bytes())];
            let entry = StreamEntry { id: StreamId { ms, seq: 0 }, fields: fields.into_iter() };
            let mut missing = LoadRequest::default();
            if builder.needs(&mut held, &entry, UnixMs(1), &mut missing) {
                held.take_totals(&missing, &[0], builder.oldest_batch_in_use());
            }
            assert_eq!(builder.add(&mut held, [entry].into_iter(), UnixMs(1)), (1, AddResult::Added));
        }
        let (new, hash) = (3, 8);
        assert_eq!(builder.cost(), new + hash + 8 / 4);
    }

    /// A threshold whose alert was raised costs the server nothing. Otherwise batches of subjects above their limits
    /// would be a fraction of what a commit may hold.
    #[test]
    fn what_was_raised_before_is_not_part_of_the_cost() {
        let thresholds = ["80", "100"].map(|text| text.parse().expect("legal"));
        let limits = [(Metric::default(), "100".parse().expect("a limit"))].into();
        let plan = PlanConfig { limits, thresholds: thresholds.to_vec(), ..PlanConfig::default() };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let mut held = held(&plans);
        let bounds = BatchBounds { entries: 100, cost: 200 };
        let mut builder = builder(bounds);
        let subject_index = held.cache.add("alice".parse().expect("legal"));
        held.cache.keep(subject_index, Arc::new(Profile::of_unknown(&plans, 0)));
        let add = |builder: &mut BatchBuilder, held: &mut WorkerCache, ms: u64, units: &str| {
            let id = StreamId { ms, seq: 0 };
            let fields = [(b"subject".as_slice(), b"alice".as_slice()), (b"units", units.as_bytes())];
            let entry = StreamEntry { id, fields: fields.into_iter() };
            let mut missing = LoadRequest::default();
            if builder.needs(held, &entry, UnixMs(1), &mut missing) {
                held.take_totals(&missing, &[0], builder.oldest_batch_in_use());
            }
            assert_eq!(builder.add(held, [entry].into_iter(), UnixMs(1)), (1, AddResult::Added));
        };
        add(&mut builder, &mut held, 1, "80");
        let (new, known, hash) = (3, 1, 8);
        let alert = builder.cost() - new - hash;
        add(&mut builder, &mut held, 1, "20");
        let two_alerts = builder.cost() - new - hash;
        assert_eq!(two_alerts, 2 * alert, "a threshold costs as soon as it is reached");
        take(&mut builder, &held, RaisedRecords::new());
        assert_eq!(builder.cost(), new + hash + two_alerts, "a new counter and what is raised");
        let raised = builder.finish(&mut held, bounds).alerts;
        let records: RaisedRecords =
            raised.into_iter().map(|alert| (alert.record.alert.threshold, alert.record)).collect();
        assert_eq!(records.len(), 2);
        // Other settings: their thresholds must be compared with the raised alerts.
        held.cache.keep(subject_index, Arc::new(Profile::of_unknown(&plans, 0)));
        add(&mut builder, &mut held, 2, "1");
        assert_eq!(builder.cost(), known + hash + two_alerts, "until it is known what was raised, each may be");
        take(&mut builder, &held, records);
        assert_eq!(builder.cost(), known + hash);
    }

    /// Takes these records for the only counter that has reached a threshold; children were not read.
    fn take(builder: &mut BatchBuilder, held: &WorkerCache, records: RaisedRecords) {
        let [request] = builder.reached(held).try_into().expect("one counter");
        builder.take_records(held, vec![ReadRecords { request, records, children: None }]);
    }

    /// Adds an event of so many units; what is missing is read as zero.
    fn add_units(builder: &mut BatchBuilder, held: &mut WorkerCache, (ms, subject): (u64, &str), units: &str) {
        let fields = [(b"subject".as_slice(), subject.as_bytes()), (b"units", units.as_bytes())];
        let entry = StreamEntry { id: StreamId { ms, seq: 0 }, fields: fields.into_iter() };
        let mut missing = LoadRequest::default();
        if builder.needs(held, &entry, UnixMs(1), &mut missing) {
            let totals = vec![0; missing.counters.len()];
            held.take_totals(&missing, &totals, builder.oldest_batch_in_use());
        }
        assert_eq!(builder.add(held, [entry].into_iter(), UnixMs(1)), (1, AddResult::Added));
    }

    fn profile_with(plans: &Plans, fields: &[(&str, &str)]) -> Arc<Profile> {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        Arc::new(Profile::read(&fields.collect::<Vec<_>>(), plans, 0, None).0)
    }

    /// A threshold that comes with new settings while the batch grows may have been raised before: without its record
    /// it would be raised again, without a crossing.
    #[test]
    fn a_threshold_that_comes_while_the_batch_grows_is_not_judged_without_its_record() {
        let plans = Plans::without_limits();
        let mut held = held(&plans);
        let mut builder = builder(BatchBounds { entries: 100, cost: 1000 });
        let subject_index = held.cache.add("alice".parse().expect("legal"));
        held.cache.keep(subject_index, profile_with(&plans, &[("limit:requests", "100"), ("thresholds", "50")]));
        add_units(&mut builder, &mut held, (1, "alice"), "90");
        take(&mut builder, &held, RaisedRecords::new());
        assert!(builder.is_ready(&held));
        held.cache.keep(subject_index, profile_with(&plans, &[("limit:requests", "100"), ("thresholds", "50,80")]));
        add_units(&mut builder, &mut held, (2, "alice"), "1");
        assert!(!builder.is_ready(&held), "the record of 80 % is not known");
        let read = builder.reached(&held);
        assert_eq!(read.iter().map(|read| read.thresholds.len()).collect::<Vec<_>>(), [2]);
        take(&mut builder, &held, RaisedRecords::new());
        assert!(builder.is_ready(&held));
    }

    /// Children that were not read are not the largest: an alert without names is better than one with wrong ones. A
    /// threshold that is reached after the records were read makes the worker read the children.
    #[test]
    fn an_alert_names_the_largest_of_all_children_or_none() {
        let plans = Plans::without_limits();
        let separator = "/".parse().expect("a separator");
        let mut held = held(&plans);
        let first = Batch::new(DeploymentId::from_stored("x"), StreamId::ZERO);
        let bounds = BatchBounds { entries: 100, cost: 1000 };
        let mut builder =
            BatchBuilder::new(Keys::new("usage").with_separator(separator), Duration::ZERO, first, bounds);
        let settings = [("acme", profile_with(&plans, &[("limit:requests", "100"), ("thresholds", "50,80")]))];
        for (name, profile) in settings.into_iter().chain([("acme/small", Arc::new(Profile::of_unknown(&plans, 1)))]) {
            let subject_index = held.cache.add(name.parse().expect("legal"));
            held.cache.keep(subject_index, profile);
        }
        add_units(&mut builder, &mut held, (1, "acme/small"), "60");
        take(&mut builder, &held, RaisedRecords::new());
        assert!(builder.is_ready(&held));
        add_units(&mut builder, &mut held, (2, "acme/small"), "30");
        assert!(!builder.is_ready(&held), "the children are not known");
        take(&mut builder, &held, RaisedRecords::new());
        let alerts = builder.finish(&mut held, bounds).alerts;
        let largest: Vec<usize> = alerts.iter().map(|alert| alert.record.alert.largest.len()).collect();
        assert_eq!(largest, [0, 0]);
    }

    /// Fan-out and sending leave the server to counting only while counting is behind.
    #[test]
    fn a_batch_says_for_how_long_readings_have_been_full() {
        let mut held = held(&Plans::without_limits());
        let bounds = BatchBounds { entries: 9, cost: 9 };
        let mut builder = builder(bounds);
        let mut behind_ms = |readings: &[(bool, i64)]| {
            readings.iter().for_each(|(is_full, at)| builder.note_reading(*is_full, UnixMs(*at)));
            builder.finish(&mut held, bounds).behind_for.as_millis()
        };
        assert_eq!(behind_ms(&[(true, 100)]), 0);
        assert_eq!(behind_ms(&[(true, 400), (true, 700)]), 600, "it goes on over several batches");
        assert_eq!(behind_ms(&[(true, 800), (false, 900)]), 0, "nothing more is there");
        assert_eq!(behind_ms(&[(true, 1000), (true, 1001)]), 1);
    }
}
