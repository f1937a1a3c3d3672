//! The stream's worker on a real server, alone or several at once.

use std::sync::Arc;
use std::time::Duration;

use quotabell::events::config::StreamConfig;
use quotabell::events::worker::{EventWorker, EventWorkerParts};
use quotabell::events::{CountingStatus, PartitionLease};
use quotabell::ledger::Committer;
use quotabell::ledger::commit_settings::{CommitSettings, TrimPolicy};
use quotabell::ledger::history::HistoryConfig;
use quotabell::redis_client::{RedisClient, RedisConfig, RedisEndpoint};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::subjects::watch::{ChangeFeed, ChangeListener};
use quotabell::types::{Alert, Day, Keys, Metric, Period, Units, UnixMs, keys};
use tokio_util::sync::CancellationToken;

use super::eventually::eventually;
use super::redis_server::RedisServer;

/// A server with the workers of one partition.
pub struct Partition {
    pub server: RedisServer,
    pub client: Arc<RedisClient>,
    pub keys: Keys,
    pub stop: CancellationToken,
}

/// A running worker; it ends when it is stopped or its partition is dropped.
pub struct Worker {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// Settings of a worker in a test.
pub struct WorkerSettings {
    pub lease: Option<PartitionLease>,
    pub batch_entries: u32,
    pub age_max: std::time::Duration,
    pub event_ids_window: Duration,
    pub event_ids_max: usize,
    pub metrics_max: usize,
    /// The user of Redis and its password, `name:password`; else the default user.
    pub user: Option<&'static str>,
}

impl Default for WorkerSettings {
    /// A worker that needs no lease.
    fn default() -> Self {
        let age_max = std::time::Duration::from_secs(100 * 365 * 86_400);
        Self {
            lease: None,
            batch_entries: 500,
            age_max,
            event_ids_window: Duration::from_secs(600),
            event_ids_max: 1_000_000,
            metrics_max: 10_000,
            user: None,
        }
    }
}

/// A field and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);
impl Partition {
    pub async fn with_worker() -> Self {
        let partition = Self::without_worker();
        partition.start_worker().await;
        partition
    }

    /// A partition whose subjects are paths with slashes, without a worker.
    pub fn of_trees() -> Self {
        let mut partition = Self::without_worker();
        partition.keys = partition.keys.clone().with_separator("/".parse().expect("a separator"));
        partition
    }

    pub fn without_worker() -> Self {
        let server = RedisServer::start();
        let client = Arc::new(server.client());
        Self { client, server, keys: Keys::new("usage"), stop: CancellationToken::new() }
    }

    /// Starts one more worker.
    pub async fn start_worker(&self) -> Worker {
        self.start_worker_with(WorkerSettings::default()).await
    }

    pub async fn start_worker_with(&self, settings: WorkerSettings) -> Worker {
        let stop = self.stop.child_token();
        let user = settings.user.map(|user| format!("{user}@")).unwrap_or_default();
        let url = self.server.url().replace("redis://", &format!("redis://{user}"));
        let client = Arc::new(RedisClient::new(redis::Client::open(url.as_str()).expect("a valid URL")));
        let config =
            RedisConfig { url: url.into(), url_file: None, data_dir: "unused".into(), embedded_port: 0, ca_file: None };
        let endpoint = RedisEndpoint::from_config(&config).expect("an endpoint");
        let limits = [("requests", 5000), ("tokens", 100)];
        let limits =
            limits.map(|(m, n)| (m.parse::<Metric>().expect("legal"), Units::new(n).expect("in range").into()));
        let thresholds = ["80", "100"].map(|text| text.parse().expect("legal")).to_vec();
        let plan = PlanConfig { limits: limits.into(), thresholds, ..PlanConfig::default() };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let plans = plans.by_level(self.keys.separator(), &[]).expect("no plan of a level");
        let commits =
            CommitSettings { trim: TrimPolicy::Consumed, partitions: 1, plans: plans.clone(), children_days: 35 };
        let changes = ChangeFeed::default();
        let watch = ChangeListener::new(endpoint.clone(), &self.keys, vec![changes.clone()]);
        tokio::spawn(watch.run(stop.clone()));
        // The promise of one second starts when the daemon listens; a test should not have to wait for that.
        eventually("the watch listens", || async { changes.is_live().then_some(()) }).await;
        let worker = EventWorker::new(EventWorkerParts {
            endpoint,
            client,
            lease: settings.lease,
            keys: self.keys.clone(),
            config: StreamConfig {
                key: "usage".into(),
                partitions: 1,
                trim: TrimPolicy::Consumed,
                late_max: std::time::Duration::from_secs(5 * 3600),
                // Tests use events of 2023.
                age_max: settings.age_max,
                batch_entries: settings.batch_entries,
                event_ids_window: settings.event_ids_window,
                event_ids_max: settings.event_ids_max,
                metrics_max: settings.metrics_max,
            },
            history: HistoryConfig { days: 90, alerts_days: 400 },
            committer: Arc::new(Committer::new(self.keys.clone(), commits)),
            plans,
            cache_entries: 1000,
            changes,
            judged: Default::default(),
            new_alerts: Arc::default(),
            status: CountingStatus::default(),
        });
        let task = tokio::spawn(worker.run(stop.clone()));
        Worker { stop, task }
    }

    pub async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub async fn add(&self, fields: &[Pair<'_>]) -> String {
        let mut command = redis::cmd("XADD");
        command.arg("usage").arg("*");
        for (name, value) in fields {
            command.arg(*name).arg(*value);
        }
        self.client.query(&command).await.expect("added")
    }

    /// Adds entries at once, so that one read returns all of them.
    pub async fn add_at_once(&self, events: &[&[&str]]) {
        let mut transaction = redis::pipe();
        transaction.atomic();
        for fields in events {
            transaction.cmd("XADD").arg("usage").arg("*").arg(*fields).ignore();
        }
        let () = self.client.pipe(&transaction).await.expect("added");
    }

    /// Adds an entry with this arrival time, RFC 3339, after all earlier ones.
    pub async fn add_at(&self, time: &str, fields: &[&str]) {
        let ms = chrono::DateTime::parse_from_rfc3339(time).expect("RFC 3339").timestamp_millis();
        let entry = format!("{ms}-*");
        self.run::<String>(&[&["XADD", "usage", &entry], fields].concat()).await;
    }

    /// Writes a subject's settings with HSET, and waits until the worker knows them: it notices changes in order.
    pub async fn set(&self, subject: &str, settings: &[&str]) {
        let marker = format!("marker {}", rand::random::<u64>());
        let marker_key = format!("quota_subject:{marker}");
        self.add(&[(b"subject", marker.as_bytes())]).await;
        self.caught_up().await;
        self.run::<u64>(&[&["HSET", &format!("quota_subject:{subject}")], settings].concat()).await;
        self.run::<u64>(&["HSET", &marker_key, "limit:requests", "1", "thresholds", "100"]).await;
        eventually("the change is noticed", || async {
            self.add(&[(b"subject", marker.as_bytes())]).await;
            self.caught_up().await;
            self.facts().await.iter().any(|alert| alert.subject.as_str() == marker).then_some(())
        })
        .await;
    }

    pub async fn now(&self) -> UnixMs {
        let (s, us): (i64, i64) = self.run(&["TIME"]).await;
        UnixMs(s * 1000 + us / 1000)
    }

    pub async fn today(&self) -> Day {
        Day::in_utc(self.now().await).expect("a day")
    }

    /// Waits until the checkpoint is the stream's newest id.
    pub async fn caught_up(&self) {
        eventually("the worker has caught up", || async {
            let newest: Vec<(String, Vec<Vec<u8>>)> = self.run(&["XREVRANGE", "usage", "+", "-", "COUNT", "1"]).await;
            let read: Option<String> = self.run(&["HGET", &self.keys.checkpoint(), "id"]).await;
            (newest.first().map(|entry| entry.0.clone()) == read).then_some(())
        })
        .await;
    }

    pub async fn count(&self, subject: &str, metric: &str, period: impl Into<Period>) -> Option<u64> {
        let metric: Metric = metric.parse().expect("legal");
        self.run(&["HGET", &self.keys.usage(&metric, period, keys::bucket(subject)), subject]).await
    }

    pub async fn refused(&self) -> Vec<(String, Vec<Vec<u8>>)> {
        self.run(&["XRANGE", &self.keys.refused(), "-", "+"]).await
    }

    pub async fn alerts(&self) -> Vec<(String, u64)> {
        self.facts().await.iter().map(|a| (a.subject.to_string(), a.threshold_share())).collect()
    }

    /// Percent and threshold units of a subject's alerts, in the order in which they were raised.
    pub async fn raised(&self, subject: &str) -> Vec<(u64, u64)> {
        let of = |alert: &Alert| alert.subject.as_str() == subject;
        let facts = self.facts().await;
        facts.iter().filter(|a| of(a)).map(|a| (a.threshold_share(), a.threshold_units)).collect()
    }

    /// The alerts in the outbox.
    pub async fn facts(&self) -> Vec<Alert> {
        let entries: Vec<(String, Vec<String>)> = self.run(&["XRANGE", &self.keys.outbox(), "-", "+"]).await;
        entries.iter().map(|entry| serde_json::from_str(&entry.1[1]).expect("an alert")).collect()
    }
}

impl Worker {
    /// Stops it and waits for its end.
    pub async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("the worker ends well");
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
