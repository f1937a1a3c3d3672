//! The store of a simulated worker: an in-memory model of the partition, or a real server.

use std::collections::HashMap;

use quotabell::events::parse::arrival_of;
use quotabell::ledger::batch::MetricPeriod;
use quotabell::ledger::commit::Drift;
use quotabell::ledger::commit_settings::READ_AGE_MAX_MS;
use quotabell::ledger::event_ids::window_of;
use quotabell::ledger::read_totals::{
    CounterQuery, RaisedRecords, RecordQuery, Replies, ask_counters, ask_records, counters_from, records_from,
};
use quotabell::ledger::{Batch, CommitReply, Committer, CountedEventIds};
use quotabell::redis_client::RedisClient;
use quotabell::types::{DeploymentId, Keys, RaisedRecord, StreamId, Subject, UnixMs};

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
    async fn commit(&mut self, batch: &Batch) -> CommitReply;
    /// The data that commits have written.
    async fn stored(&mut self) -> Stored;
    /// Advances the time, if the test controls it.
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
    keys: Keys,
    instance: DeploymentId,
    drifts: bool,
    faults: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct Kept {
    stream: Vec<Entry>,
    checkpoint: StreamId,
    entries_read: u64,
    counts: HashMap<Counter, u64>,
    records: HashMap<Reached, RaisedRecord>,
    flags: HashMap<String, String>,
    refused: Vec<(String, String)>,
    event_ids: HashMap<u64, Vec<Vec<u8>>>,
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
            keys: Keys::new("usage"),
            instance: DeploymentId::from_stored("0123456789abcdef0123456789abcdef"),
            drifts: false,
            faults: Vec::new(),
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
            let ms = u64::try_from(self.now_ms).expect("after 1970");
            let last = self.kept.stream.last().map_or(StreamId::ZERO, |entry| entry.id);
            let id = if last.ms == ms { StreamId { ms, seq: last.seq + 1 } } else { StreamId { ms, seq: 0 } };
            let fields = event.raw().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            self.kept.stream.push(Entry { id, fields });
        }
    }

    async fn start(&mut self) -> Start {
        let checkpoint = self.kept.checkpoint;
        let window = window_of(arrival_of(checkpoint, UnixMs(self.now_ms)));
        let mut event_ids = CountedEventIds::new(IDS_MAX);
        for window in [window.saturating_sub(1), window] {
            event_ids.insert_stored(window, self.kept.event_ids.get(&window).map_or(&[], Vec::as_slice));
        }
        Start { checkpoint, instance: self.instance.clone(), event_ids }
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

    async fn commit(&mut self, batch: &Batch) -> CommitReply {
        if self.kept.checkpoint != batch.from {
            return CommitReply::Stale(self.kept.checkpoint);
        }
        if self.kept.stream.binary_search_by_key(&batch.to, |entry| entry.id).is_err() {
            return CommitReply::Lost;
        }
        if self.now_ms - batch.read_at.0 > i64::try_from(READ_AGE_MAX_MS).expect("seconds") {
            return CommitReply::Old;
        }
        if std::mem::take(&mut self.drifts) {
            return CommitReply::Drift(Drift { key: "k".into(), subject: "s".into(), held: "0".into() });
        }
        self.compare(batch);
        CommitReply::Committed { not_raised: self.write(batch), ran: None, grants_due: None }
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
            counted: kept.counted,
            duplicates: kept.duplicates,
            raised: kept.raised,
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
    }

    fn replicate(&mut self) {
        self.replica = Some(self.kept.clone());
    }

    fn fail_over(&mut self) {
        if let Some(replica) = &self.replica {
            self.kept = replica.clone();
            // Later entries get ids after all entries that were ever read.
            self.now_ms += 1;
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
    client: RedisClient,
    keys: Keys,
    committer: Committer,
    instance: DeploymentId,
}

impl ServerStore {
    pub fn start() -> Self {
        let server = RedisServer::start();
        let keys = Keys::new("usage");
        let committer = Committer::new(keys.clone(), settings());
        let instance = DeploymentId::from_stored("0123456789abcdef0123456789abcdef");
        Self { client: server.client(), _server: server, keys, committer, instance }
    }
}

impl ServerStore {
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
        let arrival = arrival_of(checkpoint, self.now().await);
        let mut event_ids = CountedEventIds::new(IDS_MAX);
        assert!(
            event_ids.read(&self.client, &self.keys, arrival, checkpoint).await.expect("the ids"),
            "nobody commits"
        );
        Start { checkpoint, instance: self.instance.clone(), event_ids }
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

    async fn commit(&mut self, batch: &Batch) -> CommitReply {
        self.committer.commit(&self.client, batch).await.expect("the server answers")
    }

    async fn stored(&mut self) -> Stored {
        stored_of(&self.client, &self.keys).await
    }
}
