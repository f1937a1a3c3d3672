//! The decisions of a worker, one at a time: what `events/session.rs` does on one connection, without connection, clock or tasks.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quotabell::events::batch_builder::{AddOutcome, BatchBounds, BatchBuilder, ReadEntry};
use quotabell::events::held_state::{HeldState, Missing};
use quotabell::ledger::{Batch, CommitOutcome, HeldTotals, SeenWindows};
use quotabell::subjects::{Plans, Profile, SettingsCache};
use quotabell::types::{Instance, Keys, StreamId, UnixMs};

use crate::simulated_store::{Entry, Store};

/// `stream.late_max` of the default configuration.
const LATE_MAX: Duration = Duration::from_secs(5 * 3_600);
/// So few subjects are held that some are let go all the time.
const SUBJECTS_HELD: usize = 40;
/// More than a history has.
pub const IDS_MAX: usize = 1_000_000;
/// Settings, then counters, then once more for what changed meanwhile.
const READ_STEPS_MAX: u32 = 8;

/// Settings of subjects by name, as they lie in Redis.
pub type Profiles = Rc<HashMap<String, Profile>>;

/// A worker, in a session or between two.
pub struct SimulatedWorker {
    builder: BatchBuilder,
    held: HeldState,
    profiles: Profiles,
    unknown: Profile,
    session: Option<Session>,
}

struct Session {
    instance: Instance,
    after: StreamId,
    reading: Option<Reading>,
    in_flight: InFlight,
}

struct Reading {
    server: UnixMs,
    added: usize,
    entries: Vec<Entry>,
}

/// The one commit that may be under way.
enum InFlight {
    None,
    Sent(Batch),
    Answered(CommitOutcome),
}

/// What a worker may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Read,
    Add,
    Commit,
    /// Hears what became of its commit.
    Hear,
}

impl SimulatedWorker {
    pub fn new(plans: &Plans, profiles: Profiles) -> Self {
        let held = HeldState {
            cache: SettingsCache::new(SUBJECTS_HELD, plans),
            totals: HeldTotals::default(),
            seen: SeenWindows::new(IDS_MAX),
        };
        let builder = BatchBuilder::new(Keys::new("usage"), LATE_MAX, BatchBounds { entries: 1, cost: 1 });
        Self { builder, held, profiles, unknown: Profile::of_unknown(plans), session: None }
    }

    pub fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    /// Ends the session, as a kill, a lost connection or a lost lease does. The commit that was sent may still arrive.
    pub fn end(&mut self) -> Option<Batch> {
        match self.session.take()?.in_flight {
            InFlight::Sent(batch) => Some(batch),
            InFlight::None | InFlight::Answered(_) => None,
        }
    }

    /// Begins at the checkpoint, with nothing held.
    pub async fn begin(&mut self, store: &mut impl Store, bounds: BatchBounds) {
        self.held.forget_totals();
        let start = store.start().await;
        self.held.seen = start.seen;
        self.builder.begin_session(start.instance.clone(), start.checkpoint, bounds);
        self.session = Some(Session {
            instance: start.instance,
            after: start.checkpoint,
            reading: None,
            in_flight: InFlight::None,
        });
    }

    /// What it could do now.
    pub fn decisions(&self) -> Vec<Decision> {
        let Some(session) = &self.session else { return Vec::new() };
        let mut decisions = Vec::new();
        match &session.reading {
            Some(_) if !self.builder.is_full() => decisions.push(Decision::Add),
            Some(_) => {}
            None => decisions.push(Decision::Read),
        }
        match session.in_flight {
            InFlight::None if self.builder.entries() > 0 => decisions.push(Decision::Commit),
            InFlight::Answered(_) => decisions.push(Decision::Hear),
            InFlight::None | InFlight::Sent(_) => {}
        }
        decisions
    }

    /// Takes the commit that was sent, as the network does; [`Self::answered`] brings its answer.
    pub fn sent(&mut self) -> Option<Batch> {
        let session = self.session.as_mut()?;
        match std::mem::replace(&mut session.in_flight, InFlight::None) {
            InFlight::Sent(batch) => Some(batch),
            other => {
                session.in_flight = other;
                None
            }
        }
    }

    pub fn answered(&mut self, outcome: CommitOutcome) {
        if let Some(session) = &mut self.session {
            session.in_flight = InFlight::Answered(outcome);
        }
    }

    /// Reads up to so many entries, which it takes for read at `server`. Some settings may have changed since the last time.
    pub async fn read(&mut self, store: &mut impl Store, count: usize, server: UnixMs, changed: Option<&str>) -> usize {
        let Some(session) = &mut self.session else { return 0 };
        let entries = store.read(session.after, count).await;
        let Some(last) = entries.last() else { return 0 };
        session.after = last.id;
        let read = entries.len();
        session.reading = Some(Reading { server, added: 0, entries });
        self.held.shrink(self.builder.live());
        if let Some(subject) = changed {
            self.held.cache.changed(subject.as_bytes());
        }
        read
    }

    /// Adds entries of the reading until the batch is full or the reading ends; how many.
    pub async fn add(&mut self, store: &mut impl Store) -> usize {
        let Some(mut reading) = self.session.as_mut().and_then(|session| session.reading.take()) else { return 0 };
        let before = reading.added;
        while reading.added < reading.entries.len() {
            let entries = reading.entries[reading.added..].iter().map(read_entry);
            let (some, outcome) = self.builder.add(&mut self.held, entries, reading.server);
            reading.added += some;
            match outcome {
                AddOutcome::Added => {}
                AddOutcome::Full => break,
                AddOutcome::Missing if self.read_missing(store, &reading).await => {}
                // Somebody else has committed.
                AddOutcome::Missing => {
                    self.session = None;
                    return 0;
                }
            }
        }
        let added = reading.added - before;
        if reading.added < reading.entries.len()
            && let Some(session) = &mut self.session
        {
            session.reading = Some(reading);
        }
        added
    }

    /// Reads what the rest of a reading needs; whether nobody else had committed by then.
    async fn read_missing(&mut self, store: &mut impl Store, reading: &Reading) -> bool {
        let mut missing = Missing::default();
        let mut unready: Vec<&Entry> = reading.entries[reading.added..].iter().collect();
        let server = reading.server;
        unready.retain(|entry| self.builder.needs(&mut self.held, &read_entry(entry), server, &mut missing));
        for _ in 0..READ_STEPS_MAX {
            if unready.is_empty() {
                return true;
            }
            let mut found = std::mem::take(&mut missing);
            for slot in std::mem::take(&mut found.settings) {
                let subject = self.held.cache.slot(slot).subject.clone();
                let profile = self.profiles.get(subject.as_str()).unwrap_or(&self.unknown);
                self.held.cache.keep(slot, Arc::new(profile.clone()));
            }
            found.arrange();
            let totals = store.counters(&self.held.counter_queries(&found)).await;
            let reached = self.held.take_totals(found, &totals, self.builder.live());
            let queries: Vec<_> = reached.iter().map(|row| self.held.record_query(row.key)).collect();
            let records = store.records(&queries).await;
            self.held.take_records(reached, &records, server);
            if !self.builder.follows(store.start().await.checkpoint) {
                return false;
            }
            unready.retain(|entry| self.builder.needs(&mut self.held, &read_entry(entry), server, &mut missing));
        }
        panic!("what is read is not held");
    }

    /// Closes the batch, sends it, and begins the next one.
    pub async fn commit(&mut self, store: &mut impl Store, bounds: BatchBounds) {
        let Some(session) = &mut self.session else { return };
        let next = self.builder.reached_entry();
        let reached = self.builder.reached(&self.held);
        let queries: Vec<_> = reached.iter().map(|key| self.held.record_query(*key)).collect();
        let records = store.records(&queries).await;
        if !self.builder.follows(store.start().await.checkpoint) {
            self.session = None;
            return;
        }
        session.in_flight = InFlight::Sent(self.builder.finish(&mut self.held, records));
        self.builder.begin(session.instance.clone(), next, bounds);
    }

    /// Hears what became of its commit: whatever was not committed ends the session. Whether it goes on.
    pub fn hear(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        match std::mem::replace(&mut session.in_flight, InFlight::None) {
            InFlight::Answered(CommitOutcome::Committed { .. }) => true,
            InFlight::Answered(_) => {
                self.session = None;
                false
            }
            other => {
                session.in_flight = other;
                true
            }
        }
    }
}

fn read_entry(entry: &Entry) -> ReadEntry<impl Iterator<Item = (&[u8], &[u8])> + Clone> {
    let fields = entry.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    ReadEntry { id: entry.id, fields }
}
