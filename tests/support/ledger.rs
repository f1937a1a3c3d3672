//! The ledger of one partition on its own server: tests build batches by hand, commit and inspect them.

use quotabell::channels::Sample;
use quotabell::config::Config;
use quotabell::ledger::batch::{CounterGroup, MetricPeriod, NewAlert};
use quotabell::ledger::commit_settings::{CommitSettings, TrimPolicy};
use quotabell::ledger::{Batch, CommitReply, Committer, RefusedEvent, Row};
use quotabell::redis_client::RedisClient;
use quotabell::subjects::Plans;
use quotabell::types::{
    Alert, AlertId, Day, DeploymentId, Keys, Metric, Percent, RaisedRecord, RefusalReason, StreamId, Subject, UnixMs,
    keys,
};

use super::redis_server::RedisServer;

/// The limit of alerts: 80 % are 8 units.
const LIMIT: &str = "10/day";

/// A partition and the operations of tests.
pub struct Ledger {
    pub server: RedisServer,
    pub client: RedisClient,
    pub keys: Keys,
    pub committer: Committer,
}

/// A change of a counter.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    pub subject: &'a str,
    pub before: u64,
    pub total: u64,
}

fn plans() -> Plans {
    let config = Config::defaults().expect("the defaults");
    Plans::new(&config.plans, &config.default_plan).expect("the plans of the defaults")
}

pub fn settings() -> CommitSettings {
    CommitSettings { trim: TrimPolicy::Consumed, partitions: 1, plans: plans(), children_days: 35 }
}

pub fn instance() -> DeploymentId {
    DeploymentId::from_stored("0123456789abcdef0123456789abcdef")
}

impl Ledger {
    pub fn open() -> Self {
        Self::open_with(&["--save", ""])
    }

    pub fn open_with(options: &[&str]) -> Self {
        let server = RedisServer::start_with(options);
        let keys = Keys::new("usage");
        Self { client: server.client(), server, committer: Committer::new(keys.clone(), settings()), keys }
    }

    pub async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub async fn add(&self, subject: &str) -> StreamId {
        self.run::<String>(&["XADD", "usage", "*", "subject", subject]).await.parse().expect("an id")
    }

    pub async fn now(&self) -> UnixMs {
        let (s, us): (i64, i64) = self.run(&["TIME"]).await;
        UnixMs(s * 1000 + us / 1000)
    }

    /// A batch of one new entry that changes one counter of today.
    pub async fn batch(&self, from: StreamId, change: Change<'_>) -> Batch {
        let to = self.add(change.subject).await;
        self.batch_to(from, to, &[change]).await
    }

    /// A batch that ends with this entry and changes counters of today in one hash.
    pub async fn batch_to(&self, from: StreamId, to: StreamId, changes: &[Change<'_>]) -> Batch {
        let now = self.now().await;
        let mut batch = Batch::new(instance(), from);
        (batch.to, batch.entries, batch.read_at, batch.counted) = (to, 1, now, 1);
        let of = MetricPeriod { metric: Metric::default(), period: Day::in_utc(now).expect("a day").into() };
        let bucket = keys::bucket(changes[0].subject);
        assert!(changes.iter().all(|change| keys::bucket(change.subject) == bucket), "one hash: {changes:?}");
        let row = |change: &Change<'_>| Row {
            subject: Subject::parse(change.subject.as_bytes()).expect("legal"),
            before: change.before,
            total: change.total,
        };
        batch.metrics.push(of.clone());
        let rows = changes.iter().map(row).collect();
        batch.groups.push(CounterGroup { of, bucket, ttl_s: Some(14 * 86_400 + 10 * u64::from(bucket)), rows });
        batch
    }

    pub async fn commit(&self, batch: &Batch) -> CommitReply {
        self.committer.commit(&self.client, batch).await.expect("the server answers")
    }

    /// Commits, and returns which alerts were not raised.
    pub async fn committed(&self, batch: &Batch) -> Vec<usize> {
        match self.commit(batch).await {
            CommitReply::Committed { not_raised, .. } => not_raised,
            answer => panic!("{answer:?}"),
        }
    }

    /// The value of the batch's first counter.
    pub async fn count(&self, batch: &Batch) -> Option<u64> {
        self.run(&["HGET", &self.counter(batch), batch.groups[0].rows[0].subject.as_str()]).await
    }

    /// The hash of the batch's first counter.
    pub fn counter(&self, batch: &Batch) -> String {
        let CounterGroup { of, bucket, .. } = &batch.groups[0];
        self.keys.usage(&of.metric, of.period, *bucket)
    }

    /// The hash of the records of its subject.
    pub fn records(&self, batch: &Batch) -> String {
        let CounterGroup { of, bucket, .. } = &batch.groups[0];
        self.keys.raised(&of.metric, of.period, *bucket)
    }

    /// Everything in the server, to prove that nothing was written.
    pub async fn dump(&self) -> Vec<(String, Vec<u8>)> {
        let mut names: Vec<String> = self.run(&["KEYS", "*"]).await;
        names.sort();
        let mut all = Vec::new();
        for name in names {
            let dump: Vec<u8> = self.run(&["DUMP", &name]).await;
            all.push((name, dump));
        }
        all
    }
}

/// The batch, with an alert for this percentage of a limit of 10 for its first counter.
pub fn raising(mut batch: Batch, percent: u16) -> Batch {
    let (group, row) = (&batch.groups[0], &batch.groups[0].rows[0]);
    let sample = Sample {
        zone: quotabell::zones::Zone::UTC,
        limit: LIMIT.parse().expect("a limit"),
        ..Sample::for_subject(row.subject.clone())
    };
    let facts = sample.alert(Percent::new(percent).expect("in range"), batch.read_at);
    let facts = Alert { period: group.of.period, used_before: row.before, used: row.total, ..facts };
    let alert = Alert { id: AlertId::derive(&batch.instance, &facts.key()), ..facts };
    batch.alerts.push(NewAlert { group: 0, row: 0, record: RaisedRecord::after(None, alert) });
    batch
}

/// A refused event in the batch's last entry.
pub fn refused(batch: &Batch) -> RefusedEvent {
    let detail = "units must be digits".to_owned();
    let fields = vec![b"units".to_vec(), b"\xff".to_vec()];
    RefusedEvent { entry: batch.to, reason: RefusalReason::BadUnits, detail, fields }
}

/// The flag of the batch's first alert.
pub fn flag(ledger: &Ledger, batch: &Batch) -> String {
    ledger.keys.flag(&batch.alerts[0].record.alert.key())
}
