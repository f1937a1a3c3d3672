//! The store of a simulated worker: an in-memory model of the partition, or a real server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quotabell::events::parse::arrival_of;
use quotabell::ledger::RememberedWindows;
use quotabell::ledger::batch::MetricPeriod;
use quotabell::ledger::commit::Drift;
use quotabell::ledger::commit_settings::READ_AGE_MAX_MS;
use quotabell::ledger::grant_store::{self, GrantChange, GrantReply, StoredGrants};
use quotabell::ledger::grants_due;
use quotabell::ledger::read_totals::{
    CounterQuery, RaisedRecords, RecordQuery, Replies, ask_counters, ask_records, counters_from, records_from,
};
use quotabell::ledger::{Batch, CommitReply, Committer, CountedEventIds};
use quotabell::redis_client::{Partition, RedisClient};
use quotabell::types::{DeploymentId, GrantNotice, Keys, RaisedRecord, StreamId, Subject, UnixMs};

use crate::grant_model::{ArrivedEntry, HistoryLog, LogItem};
use crate::simulated_grants::{MemoryGrants, PendingChange, of_grants};
use crate::simulated_worker::IDS_MAX;
use crate::support::checker::{Stored, due_at, reached_of, stored_of};
use crate::support::ledger::settings;
use crate::support::redis_server::RedisServer;
use crate::support::stream_model::{Counter, Reached};
use crate::support::traffic::Event;

/// A time in this century, ms.
const BEGIN_MS: i64 = 1_795_250_000_000;

/// An entry for a reader.
#[derive(Debug, Clone)]
pub struct Entry {
    pub id: StreamId,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The stored state from which a worker starts.
pub struct Start {
    pub checkpoint: StreamId,
    pub instance: DeploymentId,
    pub event_ids: CountedEventIds,
    pub grants_due: Option<UnixMs>,
}

/// A batch on its way to the store.
#[derive(Debug, Clone)]
pub struct SentBatch {
    pub batch: Batch,
    /// All of its entries.
    pub entries: Vec<ArrivedEntry>,
}

/// The keys of the partition.
pub fn keys() -> Keys {
    Keys::new("usage").with_separator("/".parse().expect("a separator"))
}

/// A partition.
pub trait Store {
    async fn now(&mut self) -> UnixMs;
    async fn append(&mut self, events: &[Event]);
    async fn start(&mut self) -> Start;
    /// At most `count` entries after an id.
    async fn read(&mut self, after: StreamId, count: usize) -> Vec<Entry>;
    async fn counters(&mut self, queries: &[CounterQuery<'_>]) -> Vec<u64>;
    async fn records(&mut self, queries: &[RecordQuery<'_>]) -> Vec<RaisedRecords>;
    async fn commit(&mut self, sent: &SentBatch) -> CommitReply;
    /// When something of a grant is due next.
    async fn grants_due(&mut self) -> Option<UnixMs>;
    /// The subjects of which something is due until this time.
    async fn due_subjects(&mut self, until: UnixMs) -> Vec<Subject>;
    async fn grants(&mut self, subject: &Subject) -> StoredGrants;
    async fn change_grants(&mut self, change: &PendingChange) -> GrantReply;
    /// The notices in the outbox.
    async fn notices(&mut self) -> Vec<GrantNotice>;
    /// Everything that took effect.
    fn log(&self) -> &HistoryLog;
    /// The data that commits have written.
    async fn stored(&mut self) -> Stored;
    /// Advances the time, or sets it back, if the test controls it.
    fn pass(&mut self, _ms: i64) {}
    /// Copies the current state to a replica, to which a failover returns. A real server has none.
    fn replicate(&mut self) {}
    fn fail_over(&mut self) {}
    /// Makes the next commit find a counter that another program changed and later restored.
    fn drift_once(&mut self) {}
    /// Violations of invariants.
    fn faults(&self) -> &[String] {
        &[]
    }
}

/// A model of Redis' data and of commit.lua.
pub struct MemoryStore {
    kept: Kept,
    replica: Option<Kept>,
    now_ms: i64,
    /// The highest time that the clock has shown.
    highest_ms: i64,
    /// Later entries get ids after all entries that were ever read, because no server has a run id here.
    ids_from_ms: i64,
    keys: Keys,
    instance: DeploymentId,
    /// Number of changes of grants. Each has another version.
    changes: u64,
    drifts: bool,
    faults: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct Kept {
    stream: Vec<Entry>,
    /// The highest time that the clock had shown when each entry was appended.
    appended_ms: BTreeMap<StreamId, i64>,
    checkpoint: StreamId,
    entries_read: u64,
    counts: HashMap<Counter, u64>,
    records: HashMap<Reached, RaisedRecord>,
    flags: HashMap<String, String>,
    refused: Vec<(String, String)>,
    event_ids: HashMap<u64, Vec<Vec<u8>>>,
    children: BTreeSet<(String, String)>,
    grants: MemoryGrants,
    log: HistoryLog,
    counted: u64,
    duplicates: u64,
    raised: u64,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self {
            kept: Kept::default(),
            replica: None,
            now_ms: BEGIN_MS,
            highest_ms: BEGIN_MS,
            ids_from_ms: BEGIN_MS,
            keys: keys(),
            instance: DeploymentId::from_stored("0123456789abcdef0123456789abcdef"),
            changes: 0,
            drifts: false,
            faults: Vec::new(),
        }
    }

    /// A grant expires only when everything that arrived before is counted. `appended_ms` does not depend on how far
    /// the clock stepped back.
    fn judge_expiries(&mut self, change: &PendingChange) {
        let checkpoint = self.kept.checkpoint;
        for grant in change.expired() {
            let expiry = grant.expires_at.expect("it has expired").0;
            let mut later = self.kept.appended_ms.range(checkpoint..).skip_while(|(id, _)| **id <= checkpoint);
            if let Some((id, at)) = later.find(|(_, at)| **at < expiry.0) {
                let id_of_grant = &grant.id;
                self.faults.push(format!("{id_of_grant} of {expiry} has expired before {id} of {at} is counted"));
            }
        }
    }

    /// Every counter in a commit must have the value that the worker assumes, because nobody else has committed since
    /// its checkpoint.
    fn compare(&mut self, batch: &Batch) {
        for group in &batch.groups {
            for row in &group.rows {
                let counter = counter_of(&group.of, &row.subject);
                let held = self.kept.counts.get(&counter).copied().unwrap_or(0);
                if held != row.before {
                    self.faults.push(format!("{counter:?} holds {held}, the worker believes {}", row.before));
                }
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> Vec<usize> {
        let kept = &mut self.kept;
        for group in &batch.groups {
            let rows = group.rows.iter().map(|row| (counter_of(&group.of, &row.subject), row.total));
            kept.counts.extend(rows);
        }
        let mut not_raised = Vec::new();
        for (at, new) in batch.alerts.iter().enumerate() {
            let flag = self.keys.flag(&new.record.alert.key());
            if kept.flags.contains_key(&flag) {
                not_raised.push(at);
                continue;
            }
            kept.flags.insert(flag, new.record.alert.id.to_string());
            kept.records.insert(reached_of(&new.record.alert), new.record.clone());
            kept.raised += 1;
        }
        let refused = batch.refused.iter().map(|refused| (refused.entry.to_string(), refused.reason.to_string()));
        kept.refused.extend(refused);
        for (window, digests) in &batch.event_ids {
            kept.event_ids.entry(*window).or_default().push(digests.clone());
        }
        kept.children.extend(batch.children.iter().map(|(parent, child)| (parent.to_string(), child.to_string())));
        kept.counted += batch.counted;
        kept.duplicates += batch.duplicates;
        kept.entries_read += batch.entries;
        kept.checkpoint = batch.to;
        not_raised
    }
}

fn counter_of(of: &MetricPeriod, subject: &Subject) -> Counter {
    Counter { subject: subject.to_string(), metric: of.metric.to_string(), period: of.period.to_string() }
}

impl Store for MemoryStore {
    async fn now(&mut self) -> UnixMs {
        UnixMs(self.now_ms)
    }

    async fn append(&mut self, events: &[Event]) {
        for event in events {
            let ms = u64::try_from(self.now_ms.max(self.ids_from_ms)).expect("after 1970");
            let last = self.kept.stream.last().map_or(StreamId::ZERO, |entry| entry.id);
            // Ids never go back, even if the clock does.
            let id = if last.ms >= ms { StreamId { seq: last.seq + 1, ..last } } else { StreamId { ms, seq: 0 } };
            let fields = event.raw().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            self.kept.appended_ms.insert(id, self.highest_ms);
            self.kept.stream.push(Entry { id, fields });
        }
    }

    async fn start(&mut self) -> Start {
        let checkpoint = self.kept.checkpoint;
        let arrival = arrival_of(checkpoint, UnixMs(self.now_ms));
        let mut event_ids = CountedEventIds::new(IDS_MAX);
        for window in RememberedWindows::ONE.around(arrival, checkpoint) {
            let stored = self.kept.event_ids.get(&window).map_or(&[][..], Vec::as_slice);
            if !stored.is_empty() {
                event_ids.insert_stored(window, stored);
            }
        }
        Start { checkpoint, instance: self.instance.clone(), event_ids, grants_due: self.kept.grants.due() }
    }

    async fn read(&mut self, after: StreamId, count: usize) -> Vec<Entry> {
        let from = self.kept.stream.partition_point(|entry| entry.id <= after);
        self.kept.stream[from..].iter().take(count).cloned().collect()
    }

    async fn counters(&mut self, queries: &[CounterQuery<'_>]) -> Vec<u64> {
        let count = |query: &CounterQuery<'_>| self.kept.counts.get(&counter_of(query.of, query.subject)).copied();
        queries.iter().map(|query| count(query).unwrap_or(0)).collect()
    }

    async fn records(&mut self, queries: &[RecordQuery<'_>]) -> Vec<RaisedRecords> {
        let records = |query: &RecordQuery<'_>| {
            let counter = counter_of(query.counter.of, query.counter.subject);
            let reached = |threshold| Reached { counter: counter.clone(), due: due_at(threshold) };
            let found = query
                .thresholds
                .iter()
                .filter_map(|threshold| Some((*threshold, self.kept.records.get(&reached(*threshold))?.clone())));
            found.collect()
        };
        queries.iter().map(records).collect()
    }

    async fn commit(&mut self, SentBatch { batch, entries }: &SentBatch) -> CommitReply {
        if self.kept.checkpoint != batch.from {
            return CommitReply::Stale(self.kept.checkpoint);
        }
        if self.kept.stream.binary_search_by_key(&batch.to, |entry| entry.id).is_err() {
            return CommitReply::Lost;
        }
        let grants_due = self.kept.grants.due();
        if grants_due.is_some_and(|due| due <= batch.arrived) {
            return CommitReply::GrantsDue;
        }
        if self.now_ms - batch.read_at.0 > i64::try_from(READ_AGE_MAX_MS).expect("seconds") {
            return CommitReply::Old;
        }
        if std::mem::take(&mut self.drifts) {
            return CommitReply::Drift(Drift { key: "k".into(), subject: "s".into(), held: "0".into() });
        }
        self.compare(batch);
        self.kept.log.push(LogItem::Counted(entries.clone()));
        CommitReply::Committed { not_raised: self.write(batch), ran: None, grants_due }
    }

    async fn grants_due(&mut self) -> Option<UnixMs> {
        self.kept.grants.due()
    }

    async fn due_subjects(&mut self, until: UnixMs) -> Vec<Subject> {
        self.kept.grants.due_subjects(until)
    }

    async fn grants(&mut self, subject: &Subject) -> StoredGrants {
        let Kept { grants, counts, .. } = &self.kept;
        grants.read(subject, |of| counts.get(&counter_of(of, subject)).copied().unwrap_or(0))
    }

    async fn change_grants(&mut self, change: &PendingChange) -> GrantReply {
        self.changes += 1;
        let Kept { grants, counts, checkpoint, .. } = &mut self.kept;
        let used = |of: &MetricPeriod| counts.get(&counter_of(of, &change.before.subject)).copied().unwrap_or(0);
        let reply = grants.write(change, *checkpoint, &self.changes.to_string(), used);
        if reply == GrantReply::Written {
            self.judge_expiries(change);
            self.kept.log.push(change.item.clone());
        }
        reply
    }

    async fn notices(&mut self) -> Vec<GrantNotice> {
        self.kept.grants.notices.clone()
    }

    fn log(&self) -> &HistoryLog {
        &self.kept.log
    }

    async fn stored(&mut self) -> Stored {
        let kept = self.kept.clone();
        let field = |record: RaisedRecord| {
            let name = Keys::raised_field(record.alert.threshold, &record.alert.subject);
            (name, record)
        };
        Stored {
            instance: self.instance.to_string(),
            entries_read: kept.entries_read,
            counts: kept.counts.into_iter().collect(),
            refused_total: kept.refused.len() as u64,
            refused: kept.refused,
            records: kept.records.into_values().map(field).collect(),
            flags: kept.flags,
            children: kept.children.into_iter().collect(),
            counted: kept.counted,
            duplicates: kept.duplicates,
            raised: kept.raised,
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        self.highest_ms = self.highest_ms.max(self.now_ms);
    }

    fn replicate(&mut self) {
        self.replica = Some(self.kept.clone());
    }

    fn fail_over(&mut self) {
        if let Some(replica) = &self.replica {
            self.kept = replica.clone();
            self.highest_ms += 1;
            (self.now_ms, self.ids_from_ms) = (self.highest_ms, self.highest_ms);
        }
    }

    fn drift_once(&mut self) {
        self.drifts = true;
    }

    fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// A real server, with the daemon's scripts and reads.
pub struct ServerStore {
    _server: RedisServer,
    client: Arc<RedisClient>,
    keys: Keys,
    committer: Committer,
    instance: DeploymentId,
    log: HistoryLog,
}

impl ServerStore {
    pub fn start() -> Self {
        let server = RedisServer::start();
        let keys = keys();
        let committer = Committer::new(keys.clone(), settings());
        let instance = DeploymentId::from_stored("0123456789abcdef0123456789abcdef");
        Self { client: Arc::new(server.client()), _server: server, keys, committer, instance, log: Vec::new() }
    }

    fn partition(&self) -> Partition {
        Partition { client: Arc::clone(&self.client), keys: self.keys.clone() }
    }

    async fn ask(&self, commands: impl Fn(&mut redis::Pipeline, &Keys)) -> Replies {
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        commands(&mut pipeline, &self.keys);
        if pipeline.is_empty() {
            return Vec::new().into_iter();
        }
        self.client.pipe::<Vec<_>>(&pipeline).await.expect("the server answers").into_iter()
    }
}

impl Store for ServerStore {
    async fn now(&mut self) -> UnixMs {
        self.client.server_time().await.expect("the server answers")
    }

    async fn append(&mut self, events: &[Event]) {
        let mut pipeline = redis::pipe();
        for event in events {
            pipeline.cmd("XADD").arg(self.keys.stream()).arg("*");
            for (name, value) in event.raw() {
                pipeline.arg(name).arg(value);
            }
            pipeline.ignore();
        }
        let () = self.client.pipe(&pipeline).await.expect("added");
    }

    async fn start(&mut self) -> Start {
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.checkpoint()).arg("id");
        let id: Option<String> = self.client.query(&command).await.expect("the checkpoint");
        let checkpoint = id.map_or(StreamId::ZERO, |id| id.parse().expect("an id"));
        let windows = RememberedWindows::ONE.around(arrival_of(checkpoint, self.now().await), checkpoint);
        let mut event_ids = CountedEventIds::new(IDS_MAX);
        assert!(
            event_ids.read(&self.client, &self.keys, windows, checkpoint).await.expect("the ids"),
            "nobody commits"
        );
        Start { checkpoint, instance: self.instance.clone(), event_ids, grants_due: self.grants_due().await }
    }

    async fn read(&mut self, after: StreamId, count: usize) -> Vec<Entry> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.stream()).arg(format!("({after}")).arg("+").arg("COUNT").arg(count);
        let entries: Vec<(String, Vec<Vec<u8>>)> = self.client.query(&command).await.expect("entries");
        let entry = |(id, words): (String, Vec<Vec<u8>>)| {
            let fields = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            Entry { id: id.parse().expect("an id"), fields }
        };
        entries.into_iter().map(entry).collect()
    }

    async fn counters(&mut self, queries: &[CounterQuery<'_>]) -> Vec<u64> {
        let mut replies = self.ask(|pipeline, keys| ask_counters(pipeline, keys, queries)).await;
        counters_from(&mut replies, &self.keys, queries).expect("the counters")
    }

    async fn records(&mut self, queries: &[RecordQuery<'_>]) -> Vec<RaisedRecords> {
        let mut replies = self.ask(|pipeline, keys| ask_records(pipeline, keys, queries)).await;
        records_from(&mut replies, &self.keys, queries).expect("the records")
    }

    async fn commit(&mut self, SentBatch { batch, entries }: &SentBatch) -> CommitReply {
        let reply = self.committer.commit(&self.client, batch).await.expect("the server answers");
        if matches!(reply, CommitReply::Committed { .. }) {
            self.log.push(LogItem::Counted(entries.clone()));
        }
        reply
    }

    async fn grants_due(&mut self) -> Option<UnixMs> {
        grants_due::next(&self.partition()).await.expect("the server answers")
    }

    async fn due_subjects(&mut self, until: UnixMs) -> Vec<Subject> {
        grants_due::some_subjects(&self.partition(), until).await.expect("the server answers")
    }

    async fn grants(&mut self, subject: &Subject) -> StoredGrants {
        let read = grant_store::read(&self.partition(), subject.clone(), Some(&of_grants())).await;
        read.expect("the server answers")
    }

    async fn change_grants(&mut self, change: &PendingChange) -> GrantReply {
        let PendingChange { before, after, checkpoint, notices, item } = change;
        let written = GrantChange { before, after, checkpoint: *checkpoint, notices };
        let reply = grant_store::write(&self.partition(), written).await.expect("the server answers");
        if reply == GrantReply::Written {
            self.log.push(item.clone());
        }
        reply
    }

    async fn notices(&mut self) -> Vec<GrantNotice> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.outbox()).arg("-").arg("+");
        let entries: Vec<(String, Vec<String>)> = self.client.query(&command).await.expect("the outbox");
        let notices = entries.iter().filter(|(_, fields)| fields[0] == "grant_expires");
        notices.map(|(_, fields)| serde_json::from_str(&fields[1]).expect("a notice")).collect()
    }

    fn log(&self) -> &HistoryLog {
        &self.log
    }

    async fn stored(&mut self) -> Stored {
        stored_of(&self.client, &self.keys).await
    }
}
