//! The decisions of a worker, one at a time: the logic of `events/session.rs` without connection, clock or tasks.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quotabell::events::batch_builder::{BatchBounds, BatchBuilder};
use quotabell::events::read_ahead::ReadAhead;
use quotabell::events::worker_cache::{LoadRequest, ReadRecords, SubjectRows, WorkerCache};
use quotabell::ledger::grant_store::GrantReply;
use quotabell::ledger::read_totals::RaisedRecords;
use quotabell::ledger::{Batch, CommitReply};
use quotabell::redis_client::XreadReply;
use quotabell::subjects::{Plans, Profile, SettingsCache};
use quotabell::types::subject::LEVELS_MAX;
use quotabell::types::{StreamId, UnixMs};

use crate::grant_model::ArrivedEntry;
use crate::simulated_grants::{PendingChange, SettlementOf};
use crate::simulated_store::{Entry, SentBatch, Store, keys};
use crate::support::xread_reply::xread_reply;

/// `stream.late_max` of the default configuration.
const LATE_MAX: Duration = Duration::from_secs(5 * 3_600);
/// Few cached subjects, so that evictions are frequent.
const SUBJECTS_HELD: usize = 40;
/// More ids than a history has.
pub const IDS_MAX: usize = 1_000_000;
/// Maximum number of reads: settings and then counters for each waiting reply, and raised alerts.
const READS_MAX: u32 = 12;

/// Settings of subjects by name, as stored in Redis.
pub type Profiles = Rc<HashMap<String, Profile>>;

/// A worker, in a session or between two sessions.
pub struct SimulatedWorker {
    /// Of the sessions that have ended.
    settings: SettingsCache<SubjectRows>,
    plans: Plans,
    profiles: Profiles,
    /// Of subjects without settings, by their level.
    unknown: [Profile; LEVELS_MAX],
    session: Option<Session>,
}

struct Session {
    builder: BatchBuilder,
    held: WorkerCache,
    after: StreamId,
    ahead: ReadAhead,
    /// The missing data that was read.
    read: Option<ReadMissing>,
    in_flight: InFlight,
    settling: Option<Settling>,
    /// The entries that were read and are not in a closed batch.
    arrived: VecDeque<ArrivedEntry>,
}

/// A settlement of grants that has begun: nothing else is done until it ends.
struct Settling {
    until: UnixMs,
    /// Computed and not written.
    changes: Vec<PendingChange>,
}

/// What a session had sent when it ended: it may still arrive.
#[derive(Debug)]
pub enum Late {
    Commit(Box<SentBatch>),
    Settlement(Box<PendingChange>),
}

/// Data that was read while other entries were added.
struct ReadMissing {
    missing: LoadRequest,
    profiles: Vec<Profile>,
    totals: Vec<u64>,
    records: Vec<RaisedRecords>,
    checkpoint: StreamId,
}

/// The only commit in flight.
enum InFlight {
    None,
    Sent(Box<SentBatch>),
    Answered(CommitReply),
}

/// A possible next action of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Read,
    Add,
    /// Reads the missing data.
    ReadMissing,
    /// Applies the missing data.
    TakeMissing,
    Commit,
    /// Receives the reply of its commit.
    Hear,
    /// Takes the next step of settling grants.
    Settle,
}

impl SimulatedWorker {
    pub fn new(plans: &Plans, profiles: Profiles) -> Self {
        let unknown = std::array::from_fn(|depth| Profile::of_unknown(plans, depth));
        Self { settings: no_settings(plans), plans: plans.clone(), profiles, unknown, session: None }
    }

    pub fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    /// Ends the session, as a kill, a lost connection or a lost lease does. What it sent may still arrive.
    pub fn end(&mut self) -> Vec<Late> {
        let Some(session) = self.session.take() else { return Vec::new() };
        self.settings = session.held.cache;
        let changes = session.settling.into_iter().flat_map(|settling| settling.changes);
        let mut late: Vec<Late> = changes.map(|change| Late::Settlement(Box::new(change))).collect();
        if let InFlight::Sent(batch) = session.in_flight {
            late.push(Late::Commit(batch));
        }
        late
    }

    /// Starts at the checkpoint with an empty cache.
    pub async fn begin(&mut self, store: &mut impl Store, bounds: BatchBounds) {
        drop(self.end());
        let start = store.start().await;
        let settings = std::mem::replace(&mut self.settings, no_settings(&self.plans));
        let first = Batch::new(start.instance, start.checkpoint);
        let mut builder = BatchBuilder::new(keys(), LATE_MAX, first, bounds);
        builder.set_grants_due(start.grants_due);
        self.session = Some(Session {
            builder,
            held: WorkerCache::new(settings, start.event_ids),
            after: start.checkpoint,
            ahead: ReadAhead::default(),
            read: None,
            in_flight: InFlight::None,
            settling: None,
            arrived: VecDeque::new(),
        });
    }

    /// The actions that are possible now.
    pub fn decisions(&self) -> Vec<Decision> {
        let Some(session) = &self.session else { return Vec::new() };
        if session.settling.is_some() {
            return vec![Decision::Settle];
        }
        let mut decisions = Vec::new();
        if !session.ahead.is_full() {
            decisions.push(Decision::Read);
        }
        if !session.ahead.is_empty() && !session.builder.is_full() {
            decisions.push(Decision::Add);
        }
        match session.read {
            Some(_) => decisions.push(Decision::TakeMissing),
            None if session.ahead.missing().is_empty() && session.builder.is_ready(&session.held) => {}
            None => decisions.push(Decision::ReadMissing),
        }
        match session.in_flight {
            InFlight::None if session.builder.entries() > 0 && session.builder.is_ready(&session.held) => {
                decisions.push(Decision::Commit)
            }
            InFlight::None if session.builder.stopped_at_grants().is_some() => decisions.push(Decision::Settle),
            InFlight::Answered(_) => decisions.push(Decision::Hear),
            InFlight::None | InFlight::Sent(_) => {}
        }
        decisions
    }

    /// Takes the sent commit for the network; [`Self::answered`] delivers its reply.
    pub fn sent(&mut self) -> Option<SentBatch> {
        let session = self.session.as_mut()?;
        match std::mem::replace(&mut session.in_flight, InFlight::None) {
            InFlight::Sent(batch) => Some(*batch),
            other => {
                session.in_flight = other;
                None
            }
        }
    }

    pub fn answered(&mut self, answer: CommitReply) {
        if let Some(session) = &mut self.session {
            session.in_flight = InFlight::Answered(answer);
        }
    }

    /// Reads up to `count` entries, as read at the server time `server`. Settings may have changed since the last read.
    pub async fn read(&mut self, store: &mut impl Store, count: usize, server: UnixMs, changed: Option<&str>) -> usize {
        let Some(session) = &mut self.session else { return 0 };
        let entries = store.read(session.after, count).await;
        let Some(last) = entries.last() else {
            let is_idle = session.builder.entries() == 0 && session.ahead.is_empty();
            if is_idle && matches!(session.in_flight, InFlight::None) {
                session.settling = Some(Settling { until: server, changes: Vec::new() });
            }
            return 0;
        };
        session.after = last.id;
        let arrival = |id: StreamId| UnixMs(i64::try_from(id.ms).expect("a time").min(server.0));
        let arrived = entries.iter().map(|entry| ArrivedEntry { id: entry.id, arrival: arrival(entry.id) });
        session.arrived.extend(arrived);
        if let Some(read) = &session.read {
            session.held.touch(&read.missing, session.builder.number());
        }
        session.held.touch(session.ahead.missing(), session.builder.number());
        session.held.shrink(session.builder.oldest_batch_in_use());
        if let Some(subject) = changed {
            session.held.cache.changed(subject.as_bytes());
        }
        session.ahead.push(reply(&entries, server), &mut session.builder, &mut session.held);
        entries.len()
    }

    /// Adds read entries until the batch is full or an entry needs missing data.
    pub fn add(&mut self) {
        if let Some(session) = &mut self.session {
            session.ahead.add_some(&mut session.builder, &mut session.held);
        }
    }

    /// Reads the missing data; it is applied later.
    pub async fn read_missing(&mut self, store: &mut impl Store) {
        let Some(session) = &mut self.session else { return };
        let mut missing =
            LoadRequest { records: session.builder.reached(&session.held), ..session.ahead.take_missing() };
        session.held.sort_and_dedup(&mut missing);
        let profile = |subject_index: &u32| {
            let subject = session.held.cache.subject(*subject_index).subject.as_str();
            let unknown = &self.unknown[keys().separator().depth(subject)];
            self.profiles.get(subject).unwrap_or(unknown).clone()
        };
        session.read = Some(ReadMissing {
            profiles: missing.settings.iter().map(profile).collect(),
            totals: store.counters(&session.held.counter_queries(&missing)).await,
            records: store.records(&session.held.record_queries(&missing)).await,
            checkpoint: store.start().await.checkpoint,
            missing,
        });
    }

    /// Applies the missing data, unless somebody else has committed meanwhile, which ends the session.
    pub fn take_missing(&mut self) {
        let Some(session) = &mut self.session else { return };
        let Some(ReadMissing { missing, profiles, totals, records, checkpoint }) = session.read.take() else { return };
        if !session.builder.follows(checkpoint) {
            drop(self.end());
            return;
        }
        for (subject_index, profile) in missing.settings.iter().zip(profiles) {
            session.held.cache.keep(*subject_index, Arc::new(profile));
        }
        session.held.take_totals(&missing, &totals, session.builder.oldest_batch_in_use());
        let read = missing.records.into_iter().zip(records);
        let read = read.map(|(request, records)| ReadRecords { request, records, children: Some(Vec::new()) });
        session.builder.take_records(&session.held, read.collect());
        session.ahead.look_again(&mut session.builder, &mut session.held);
    }

    /// Adds read entries until the batch is full or all are added, and reads missing data; or the session ends.
    pub async fn make_ready(&mut self, store: &mut impl Store) {
        for _ in 0..READS_MAX {
            self.take_missing();
            let Some(session) = &mut self.session else { return };
            while session.ahead.add_some(&mut session.builder, &mut session.held) {}
            if session.builder.is_ready(&session.held) && (session.builder.is_full() || session.ahead.is_empty()) {
                return;
            }
            self.read_missing(store).await;
        }
        panic!("what is read is not held");
    }

    /// Closes the batch, sends it, and starts the next one.
    pub fn commit(&mut self, bounds: BatchBounds) {
        let Some(session) = &mut self.session else { return };
        let batch = session.builder.finish(&mut session.held, bounds);
        let is_of_batch = session.arrived.iter().take_while(|entry| entry.id <= batch.to).count();
        let entries = session.arrived.drain(..is_of_batch).collect();
        session.in_flight = InFlight::Sent(Box::new(SentBatch { batch, entries }));
    }

    /// Takes the next step of settling grants, as `events/grant_expiry.rs` does: reads what is due, or writes the
    /// grants of one subject, or ends.
    pub async fn settle(&mut self, store: &mut impl Store) {
        let Some(session) = &mut self.session else { return };
        let stopped_at = session.builder.stopped_at_grants();
        let begun = stopped_at.map(|until| Settling { until, changes: Vec::new() });
        let Some(mut settling) = session.settling.take().or(begun) else { return };
        if let Some(change) = settling.changes.pop() {
            if store.change_grants(&change).await == GrantReply::Stale {
                drop(self.end());
                return;
            }
            session.held.cache.changed(change.before.subject.as_str().as_bytes());
            session.settling = Some(settling);
            return;
        }
        let until = settling.until;
        let subjects = store.due_subjects(until).await;
        if subjects.is_empty() {
            let due = store.grants_due().await;
            session.builder.set_grants_due(due);
            return;
        }
        let now = store.now().await;
        for subject in subjects {
            let (checkpoint, instance) = (session.builder.from(), session.builder.instance());
            let profile = &self.profiles[subject.as_str()];
            let before = store.grants(&subject).await;
            let of = SettlementOf { profile, until, now, checkpoint, instance };
            settling.changes.push(PendingChange::settlement(before, &of));
        }
        session.settling = Some(settling);
    }

    /// Settles everything that stops it.
    pub async fn settle_all(&mut self, store: &mut impl Store) {
        while self.decisions().contains(&Decision::Settle) {
            self.settle(store).await;
        }
    }

    /// Receives the reply of its commit. Any reply other than success ends the session. Returns whether the session
    /// continues.
    pub fn hear(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        match std::mem::replace(&mut session.in_flight, InFlight::None) {
            InFlight::Answered(CommitReply::Committed { grants_due, .. }) => {
                session.builder.set_grants_due(grants_due);
                true
            }
            InFlight::Answered(_) => {
                drop(self.end());
                false
            }
            other => {
                session.in_flight = other;
                true
            }
        }
    }
}

fn no_settings(plans: &Plans) -> SettingsCache<SubjectRows> {
    SettingsCache::new(SUBJECTS_HELD, plans)
}

fn reply(entries: &[Entry], server: UnixMs) -> XreadReply {
    let time = Duration::from_millis(server.0.unsigned_abs());
    let entries = entries.iter().map(|entry| (entry.id.to_string(), entry.fields.as_slice()));
    XreadReply::parse(xread_reply(entries, time)).expect("a reply")
}
