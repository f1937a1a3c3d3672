//! The parameters and the result of a scenario, and its deployment: customers, a producer, the final comparison.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::{Partitions, RedisClient, RedisEndpoint};
use quotabell::types::{Keys, PartitionNumber, Separator};
use quotabell::zones::Zone;
use redis::FromRedisValue;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::checker::{Findings, compare, enter_stream};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::stream_model::{Customer, StreamModel};
use crate::support::traffic::{FREE_LIMIT, Traffic};
use crate::support::usual_usage::zone_at_noon;

use crate::load::{Load, LoadKind};
use crate::messages::{self, RunningMessages};
use crate::notices::{self, Notices};
use crate::top_ups::TopUps;

/// Maximum time for a backlog after the last fault.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

/// The parameters of a scenario.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    pub seed: u64,
    pub partitions: u32,
    /// Number of rounds, unless the time ends earlier.
    pub rounds: u64,
    pub deadline: Instant,
}

impl Trial {
    /// Half of the remaining time.
    pub fn half_time(&self) -> Instant {
        let now = Instant::now();
        now + self.deadline.saturating_duration_since(now) / 2
    }

    /// Whether one more round fits.
    pub fn goes_on(&self, done: u64) -> bool {
        done < self.rounds && Instant::now() < self.deadline
    }
}

/// The result of a scenario.
#[derive(Debug, Default)]
pub struct Told {
    /// What was done, such as `40 kills`.
    pub tried: String,
    pub entries: u64,
    /// Entries that were acknowledged to producers but are not in the surviving stream.
    pub absent: u64,
    pub alerts: u64,
    pub findings: Findings,
}

impl Told {
    /// Adds the comparison of another stream.
    pub fn extend(&mut self, other: Self) {
        self.entries += other.entries;
        self.absent += other.absent;
        self.alerts += other.alerts;
        self.findings.extend(other.findings);
    }
}

/// Customers and streams of one deployment.
pub struct Deployment {
    url: String,
    trial: Trial,
    /// Of the subjects.
    separator: Separator,
    customers: Vec<Customer>,
    /// Of the subjects of [`notices`] and [`messages`].
    zone: Zone,
    partitions: Vec<Partition>,
}

/// One stream.
struct Partition {
    keys: Keys,
    client: RedisClient,
}

impl Deployment {
    /// Writes the settings of the customers. Only those of [`messages`] get contacts: other alerts become waiting
    /// deliveries.
    pub async fn open(url: &str, trial: Trial) -> Self {
        Self::with_customers(url, trial, Traffic::new(trial.seed).customers, Separator::NONE).await
    }

    /// The same for customers of which some form trees ([`LoadKind::Trees`]).
    pub async fn of_trees(url: &str, trial: Trial) -> Self {
        Self::with_customers(url, trial, Traffic::of_trees(trial.seed).customers, slash()).await
    }

    async fn with_customers(url: &str, trial: Trial, mut customers: Vec<Customer>, separator: Separator) -> Self {
        let first = client(url, Keys::new("usage").stream());
        let now = eventually("Redis tells the time", || async { first.server_time().await.ok() }).await;
        let zone = zone_at_noon(now);
        customers.extend(notices::customers(zone).chain(messages::customers(zone)));
        let partitions = PartitionNumber::all(trial.partitions).map(|number| {
            let keys = Keys::of_partition("usage", number).with_separator(separator);
            Partition { client: client(url, keys.stream()), keys }
        });
        let partitions = partitions.collect();
        let deployment = Self { url: url.to_owned(), trial, separator, customers, zone, partitions };
        for customer in deployment.customers.iter().filter(|customer| customer.known) {
            let subject = customer.subject.parse().expect("a legal subject");
            let mut command = redis::cmd("HSET");
            command.arg(deployment.partitions[0].keys.subject(&subject)).arg(customer.settings());
            let client = &deployment.partitions[0].client;
            // Sentinels and nodes may not answer in time after a start on a busy machine.
            eventually("the settings are written", || async { client.query::<()>(&command).await.ok() }).await;
        }
        deployment
    }

    /// The daemons of this deployment, with this URL of Redis.
    pub fn daemon(&self, url: &str) -> DaemonSetup {
        let setup = DaemonSetup::on(url)
            .env("QUOTABELL__STREAM__TRIM", "never")
            .env("QUOTABELL__SUBJECTS__SEPARATOR", &self.separator.to_string())
            .env("QUOTABELL__PLANS__FREE__LIMITS", &format!("{{\"requests\":{FREE_LIMIT}}}"))
            .env("QUOTABELL__PLANS__FREE__FORECAST", notices::FORECAST)
            .env("QUOTABELL__PLANS__FREE__SPIKE", notices::SPIKE)
            .env("QUOTABELL__PLANS__FREE__SILENCE", notices::SILENCE)
            // The lease of a killed daemon is not much longer.
            .env("QUOTABELL__WEBHOOK__TIMEOUT", "1s");
        match self.trial.partitions {
            1 => setup,
            more => setup.env("QUOTABELL__STREAM__PARTITIONS", &more.to_string()),
        }
    }

    /// Starts appending events.
    pub fn produce(&self, kind: LoadKind) -> Load {
        let streams = self.partitions.iter().map(|partition| {
            let stream = partition.keys.stream();
            (stream.to_owned(), client(&self.url, stream))
        });
        Load::start(streams.collect(), self.trial.seed, kind)
    }

    /// Starts a client that adds grants.
    pub async fn top_up(&self) -> TopUps {
        TopUps::start(self.for_clients()).await
    }

    /// Starts a client that has notices raised.
    pub async fn raise_notices(&self) -> Notices {
        Notices::start(self.for_clients(), self.zone).await
    }

    /// Starts a client that has ends and digests told.
    pub async fn tell(&self) -> RunningMessages {
        RunningMessages::start(self.for_clients()).await
    }

    fn for_clients(&self) -> Partitions {
        let keys = &self.partitions[0].keys;
        Partitions::new(&client(&self.url, keys.stream()), keys)
    }

    /// Runs a command on a partition; `None` if Redis does not answer.
    async fn ask<T: FromRedisValue>(partition: &Partition, words: &[&str]) -> Option<T> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        partition.client.query_within(Duration::from_secs(1), &command).await.ok()
    }

    /// Number of entries read in all partitions; `None` if Redis does not answer.
    pub async fn read(&self) -> Option<u64> {
        let mut entries = 0;
        for partition in &self.partitions {
            let read: Option<u64> =
                Self::ask(partition, &["HGET", &partition.keys.checkpoint(), "entries_read"]).await?;
            entries += read.unwrap_or(0);
        }
        Some(entries)
    }

    /// Waits at most this long until this number of further entries is read; returns whether they were.
    pub async fn reads_on(&self, entries: u64, within: Duration) -> bool {
        let reading = async {
            let mut before = None;
            loop {
                let read = self.read().await;
                before = before.or(read);
                if read.zip(before).is_some_and(|(now, before)| now >= before + entries) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(within, reading).await.is_ok()
    }

    /// The readers of partitions, by the names in the leases.
    pub async fn holders(&self) -> Vec<String> {
        let mut holders = Vec::new();
        for partition in &self.partitions {
            let holder: Option<Option<String>> = Self::ask(partition, &["GET", &partition.keys.lease()]).await;
            holders.extend(holder.flatten());
        }
        holders
    }

    /// Makes this number of round trips to Redis.
    pub async fn round_trips(&self, count: u32) {
        for _ in 0..count {
            let _: Option<String> = Self::ask(&self.partitions[0], &["PING"]).await;
        }
    }

    /// Waits until everything is counted and fanned out, and compares it with the model of the streams. `load` has the
    /// expected entries. A daemon must be running.
    pub async fn compare(&self, load: Load) -> Told {
        let produced = load.end().await;
        let mut told = Told::default();
        for (number, partition) in self.partitions.iter().enumerate() {
            let settled = tokio::time::timeout(SETTLES_WITHIN, async {
                while Self::is_settled(partition).await != Some(true) {
                    tokio::task::yield_now().await;
                }
            });
            if settled.await.is_err() {
                let what = format!("{}: not everything is counted within {SETTLES_WITHIN:?}", partition.keys.stream());
                told.findings.lost.push(what);
            }
            let mut model = StreamModel::new(&self.customers, FREE_LIMIT);
            if !self.separator.is_none() {
                model = model.with_separator('/');
            }
            let ids: HashSet<String> = enter_stream(&partition.client, partition.keys.stream(), &mut model).await;
            let compared = compare(&partition.client, &partition.keys, &model).await;
            let absent = produced.acknowledged[number].iter().filter(|id| !ids.contains(*id)).count();
            told.extend(Told {
                tried: String::new(),
                entries: model.entries,
                absent: absent as u64,
                alerts: compared.alerts.len() as u64,
                findings: compared.findings,
            });
        }
        told
    }

    /// Whether a partition is read to its end and its outbox is empty.
    async fn is_settled(partition: &Partition) -> Option<bool> {
        let keys = &partition.keys;
        let length: u64 = Self::ask(partition, &["XLEN", keys.stream()]).await?;
        let read: Option<u64> = Self::ask(partition, &["HGET", &keys.checkpoint(), "entries_read"]).await?;
        let outbox: u64 = Self::ask(partition, &["XLEN", &keys.outbox()]).await?;
        Some(read.unwrap_or(0) == length && outbox == 0)
    }
}

/// The separator of subjects that form trees.
pub fn slash() -> Separator {
    "/".parse().expect("a separator")
}

/// A client like the daemon's for this stream.
pub fn client(url: &str, stream: &str) -> RedisClient {
    let config =
        RedisConfig { url: url.into(), url_file: None, data_dir: "unused".into(), embedded_port: 1, ca_file: None };
    RedisEndpoint::from_config(&config).expect("a good URL").client(stream).expect("a client")
}

/// A task that can be stopped.
pub struct Background<T> {
    pub stop: CancellationToken,
    pub task: JoinHandle<T>,
}

impl<T> Background<T> {
    pub async fn end(self) -> T {
        self.stop.cancel();
        self.task.await.expect("it ends well")
    }
}
