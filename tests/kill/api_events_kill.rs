//! `POST /v1/events` while the daemon, Redis or both are repeatedly killed with SIGKILL at random moments: events with
//! ids that a client sends until it gets a 202 are counted once.
//!
//! A kill follows a random number of answers after the one before, and then a random number of round trips to Redis, so
//! it happens between request, append, answer and commit. `QUOTABELL_TEST_SEED` repeats a run's choices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, READY, own_address};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::{Outbox, subject};
use crate::support::redis_server::RedisServer;
use quotabell::types::{DaySpan, Keys, Metric, PartitionNumber, UnixMs, keys};
use quotabell::zones::Zone;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::streams::StreamRangeReply;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "a-token-for-one-test-0123456789";
/// Number of kills.
const KILLS: u64 = 20;
const CLIENTS: u64 = 6;
const PARTITIONS: u32 = 2;
/// Events of the largest request.
const EVENTS_MAX: usize = 200;
/// Units of the largest event. Sums of different units reveal an event that was counted twice.
const UNITS_MAX: u64 = 1_000;

/// An acknowledged event.
#[derive(Debug)]
struct Acknowledged {
    id: String,
    subject: String,
    units: u64,
}

/// State that the clients share.
struct EventClients {
    address: SocketAddr,
    client: reqwest::Client,
    /// Number of daemons that have been ready: a disconnected client waits for the next one.
    starts: watch::Receiver<u64>,
    /// Number of answers.
    answers: watch::Sender<u64>,
    stop: CancellationToken,
}

/// A producer that sends again until it is acknowledged must neither lose an event nor pay for it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_sent_until_they_are_acknowledged_count_once_whenever_the_daemon_and_redis_are_killed() {
    let seed = seed_of_run();
    let mut books = Outbox::on(RedisServer::start_durable());
    let (started, starts) = watch::channel(0);
    let address = own_address();
    let setup = DaemonSetup::on(&books.server.url())
        .at(address)
        .env("QUOTABELL__HTTP__TOKEN", TOKEN)
        .env("QUOTABELL__STREAM__PARTITIONS", &PARTITIONS.to_string())
        .env("QUOTABELL__STREAM__TRIM", "never");
    let (answers, answered) = watch::channel(0);
    // The daemon's own provider; a second test in this process finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A new connection per request, so that a failure belongs to the current daemon and not to a dead one.
    let client = reqwest::Client::builder().no_proxy().timeout(WAIT_MAX).pool_max_idle_per_host(0).build();
    let client = client.expect("a client");
    let shared = Arc::new(EventClients { address, client, starts, answers, stop: CancellationToken::new() });
    let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(Arc::clone(&shared).send_all(seed, number))).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let mut daemon = begin(&setup, &started).await;
    for kill in 0..KILLS {
        let moment = *answered.borrow() + random.random_range(1..100);
        let come = async { answered.clone().wait_for(|answers| *answers >= moment).await.map(|_| ()) };
        tokio::time::timeout(WAIT_MAX, come).await.expect("answers in time").expect("clients send");
        for _ in 0..random.random_range(0..20) {
            let _: String = books.run("PING", &[] as &[&str]).await;
        }
        let (of_redis, of_daemon) = (kill % 3 != 0, kill % 3 != 1);
        if of_redis {
            books.server.kill();
        }
        let survivor = match of_daemon {
            true => {
                daemon.kill().await;
                None
            }
            false => Some(daemon),
        };
        if of_redis {
            books.server.restart();
            let ping = redis::cmd("PING");
            eventually("Redis answers", || async { books.client.query::<String>(&ping).await.ok() }).await;
        }
        daemon = match survivor {
            Some(daemon) => daemon,
            None => begin(&setup, &started).await,
        };
    }
    shared.stop.cancel();
    let (mut acknowledged, mut resent) = (Vec::new(), 0);
    for client in clients {
        let (more, again) = tokio::time::timeout(WAIT_MAX, client).await.expect("in time").expect("it ends well");
        acknowledged.extend(more);
        resent += again;
    }
    compare(&books, &acknowledged, resent).await;
    daemon.drain().await;
}

async fn begin(setup: &DaemonSetup, started: &watch::Sender<u64>) -> Daemon {
    let mut daemon = setup.spawn();
    daemon.says(READY).await;
    started.send_modify(|starts| *starts += 1);
    daemon
}

impl EventClients {
    /// One client: sends requests until told to stop. Returns the acknowledged events, and how many requests it sent
    /// again.
    async fn send_all(self: Arc<Self>, seed: u64, number: u64) -> (Vec<Acknowledged>, u64) {
        let mut random = StdRng::seed_from_u64(seed ^ (number + 1));
        let (mut acknowledged, mut resent) = (Vec::new(), 0);
        for nth in 0_u64.. {
            if self.stop.is_cancelled() {
                break;
            }
            let count = random.random_range(1..=EVENTS_MAX);
            let events: Vec<Acknowledged> = (0..count)
                .map(|at| Acknowledged {
                    id: format!("{number}-{nth}/{at}"),
                    subject: format!("s{}", random.random_range(0..6)),
                    units: random.random_range(1..=UNITS_MAX),
                })
                .collect();
            // Half of the requests name their events by the key of the request.
            let is_keyed = nth % 2 == 0;
            let event = |one: &Acknowledged| match is_keyed {
                true => json!({"subject": one.subject, "units": one.units}),
                false => json!({"subject": one.subject, "units": one.units, "id": one.id}),
            };
            let body = Value::from(events.iter().map(event).collect::<Vec<_>>()).to_string();
            let answer = self.acknowledged(&body, &format!("{number}-{nth}"), &mut resent).await;
            assert_eq!(answer, json!({"accepted": count, "refused": []}));
            acknowledged.extend(events);
            self.answers.send_modify(|answers| *answers += 1);
        }
        (acknowledged, resent)
    }

    /// Sends a request to one daemon after another until one has acknowledged it.
    async fn acknowledged(&self, body: &str, key: &str, resent: &mut u64) -> Value {
        let mut starts = self.starts.clone();
        loop {
            let start = *starts.borrow_and_update();
            match self.send(body, key).await {
                Ok((202, answer)) => return answer,
                // Redis is away.
                Ok((503, _)) => {}
                Ok((status, answer)) => panic!("{status}: {answer}"),
                // Disconnected, or no daemon listens.
                Err(_) => {
                    let next = tokio::time::timeout(WAIT_MAX, starts.wait_for(|now| *now > start)).await;
                    next.expect("another daemon in time").expect("daemons are begun");
                }
            }
            *resent += 1;
        }
    }

    async fn send(&self, body: &str, key: &str) -> reqwest::Result<(u16, Value)> {
        let request = self.client.post(format!("http://{}/v1/events", self.address)).bearer_auth(TOKEN);
        let request = request.header("content-type", "application/json").header("idempotency-key", key);
        let response = request.body(body.to_owned()).send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).expect("JSON")))
    }
}

/// Compares streams, counters and totals with the answers that the clients got.
async fn compare(books: &Outbox, acknowledged: &[Acknowledged], resent: u64) {
    let all: Vec<Keys> = PartitionNumber::all(PARTITIONS).map(|number| Keys::of_partition("usage", number)).collect();
    let (mut entries, mut ids) = (0, BTreeSet::new());
    for keys in &all {
        let stream: StreamRangeReply = books.run("XRANGE", &[keys.stream(), "-", "+"]).await;
        entries += stream.ids.len() as u64;
        ids.extend(stream.ids.iter().map(|entry| entry.get::<String>("id").expect("an id")));
    }
    let told: BTreeSet<String> = acknowledged.iter().map(|one| one.id.clone()).collect();
    let odd: Vec<&String> = ids.symmetric_difference(&told).take(9).collect();
    assert!(odd.is_empty(), "acknowledged and not there, or there and not acknowledged: {odd:?}");
    assert_eq!(told.len(), acknowledged.len(), "each id is acknowledged once");
    let total = async |field: &str| {
        let mut sum = 0;
        for keys in &all {
            sum += books.run::<Option<u64>>("HGET", &[keys.totals().as_str(), field]).await.unwrap_or(0);
        }
        sum
    };
    eventually("everything is counted", || async {
        (total("counted").await + total("duplicates").await + total("refused").await == entries).then_some(())
    })
    .await;
    let ids = ids.len() as u64;
    assert_eq!((total("counted").await, total("refused").await), (ids, 0));
    let mut units: BTreeMap<&str, u64> = BTreeMap::new();
    for one in acknowledged {
        *units.entry(&one.subject).or_default() += one.units;
    }
    for (of, units) in units {
        assert_eq!(counted(books, &all[0], of).await, units, "{of}");
    }
    eprintln!(
        "{KILLS} kills, {ids} events acknowledged, {resent} requests sent again, {} events twice in the stream",
        entries - ids
    );
    assert!(entries > ids && resent > KILLS && ids > 100 * KILLS, "too little happened");
}

/// Units counted for a subject on any day.
async fn counted(books: &Outbox, first: &Keys, of: &str) -> u64 {
    let (seconds, _): (i64, i64) = books.run("TIME", &[] as &[&str]).await;
    let today = DaySpan::containing(Zone::UTC, UnixMs(seconds * 1000)).expect("in range");
    let yesterday = DaySpan::containing(Zone::UTC, today.start.plus(-1)).expect("in range");
    let keys = first.of_sibling(first.partition_of(subject(of).as_str().as_bytes()));
    let mut units = 0;
    for day in [yesterday.day, today.day] {
        let key = keys.usage(&Metric::default(), day, keys::bucket(of));
        units += books.run::<Option<u64>>("HGET", &[key.as_str(), of]).await.unwrap_or(0);
    }
    units
}
