//! `POST /v1/check` with `record` while the daemon is repeatedly killed with SIGKILL at random moments: a request that
//! a client repeats until it gets a response is counted once.
//!
//! A kill follows a random number of responses after the daemon was ready, and then a random number of round trips to
//! Redis, so it happens between request, script, response and commit. `QUOTABELL_TEST_SEED` repeats a run's choices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, READY, own_address};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::{Outbox, subject};
use quotabell::types::{DaySpan, Keys, Metric, Subject, UnixMs, keys};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::streams::StreamRangeReply;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "a-token-for-one-test-0123456789";
/// Number of kills.
const KILLS: u64 = 20;
const CLIENTS: u64 = 8;
/// Units of the largest request. Sums of different units reveal an event that was counted twice.
const UNITS_MAX: u64 = 1_000;
/// A subject whose limit is below any request.
const DENIED: &str = "denied";

/// An admitted request, repeated until its response arrived.
#[derive(Debug)]
struct Admitted {
    id: String,
    subject: String,
    units: u64,
    sends: u64,
}

/// State that the clients share.
struct CheckClients {
    address: SocketAddr,
    client: reqwest::Client,
    /// Number of daemons that have been ready: a disconnected client waits for the next one.
    starts: watch::Receiver<u64>,
    /// Number of responses.
    answers: watch::Sender<u64>,
    stop: CancellationToken,
}

/// An API node that repeats a request must not be charged twice, and a recorded event must not be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_is_sent_until_it_is_answered_counts_once_whenever_the_daemon_is_killed() {
    let seed = seed_of_run();
    let books = Outbox::start();
    let (started, starts) = watch::channel(0);
    let address = own_address();
    let setup = setup(&books, address);
    let (answers, answered) = watch::channel(0);
    // The daemon's own provider; a second test in this process finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A new connection per request, so that a failure belongs to the current daemon and not to a dead one.
    let client = reqwest::Client::builder().no_proxy().timeout(WAIT_MAX).pool_max_idle_per_host(0).build();
    let client = client.expect("a client");
    let clients_share = Arc::new(CheckClients { address, client, starts, answers, stop: CancellationToken::new() });
    let _: u64 =
        books.run("HSET", &[Keys::new("usage").subject(&subject(DENIED)).as_str(), "limit:requests", "1"]).await;

    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(Arc::clone(&clients_share).ask(seed, number))).collect();
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..KILLS {
        let daemon = begin(&setup, &started).await;
        let moment = *answered.borrow() + random.random_range(0..200);
        let come = async { answered.clone().wait_for(|answers| *answers >= moment).await.map(|_| ()) };
        tokio::time::timeout(WAIT_MAX, come).await.expect("answers in time").expect("clients ask");
        for _ in 0..random.random_range(0..20) {
            let _: String = books.run("PING", &[] as &[&str]).await;
        }
        daemon.kill().await;
    }
    let survivor = begin(&setup, &started).await;
    clients_share.stop.cancel();
    let mut admitted = Vec::new();
    for client in clients {
        admitted.extend(tokio::time::timeout(WAIT_MAX, client).await.expect("in time").expect("it ends well"));
    }
    compare(&books, &admitted).await;
    survivor.drain().await;
}

fn setup(books: &Outbox, address: SocketAddr) -> DaemonSetup {
    DaemonSetup::on(&books.server.url())
        .at(address)
        .env("QUOTABELL__HTTP__TOKEN", TOKEN)
        // Limits that are checked but never reached, except for one subject.
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":9007199254740991}"#)
        .env("QUOTABELL__PLANS__FREE__RATE", r#"{"requests":"9007199254740991/31d"}"#)
        .env("QUOTABELL__CHECK__ON_ERROR", "deny")
        .env("QUOTABELL__CHECK__TIMEOUT", "5s")
        .env("QUOTABELL__STREAM__TRIM", "never")
}

async fn begin(setup: &DaemonSetup, started: &watch::Sender<u64>) -> Daemon {
    let mut daemon = setup.spawn();
    daemon.says(READY).await;
    started.send_modify(|starts| *starts += 1);
    daemon
}

impl CheckClients {
    /// One client: sends requests with unique ids until told to stop.
    async fn ask(self: Arc<Self>, seed: u64, number: u64) -> Vec<Admitted> {
        let mut random = StdRng::seed_from_u64(seed ^ (number + 1));
        let mut admitted = Vec::new();
        for nth in 0_u64.. {
            if self.stop.is_cancelled() {
                break;
            }
            let of = if nth % 8 == 7 { DENIED.to_owned() } else { format!("s{}", random.random_range(0..4)) };
            let (id, units) = (format!("{number}-{nth}"), random.random_range(2..=UNITS_MAX));
            let body = json!({"subject": of, "units": units, "record": true, "id": id});
            let (status, answer, sends) = self.answer(&body).await;
            assert_eq!(answer["event_id"], id);
            assert_eq!((status == 200, status == 429), (of != DENIED, of == DENIED), "{answer}");
            assert_eq!(answer["recorded"], status == 200, "{answer}");
            if status == 200 {
                admitted.push(Admitted { id, subject: of, units, sends });
            }
            self.answers.send_modify(|answers| *answers += 1);
        }
        admitted
    }

    /// Sends a request to one daemon after another until one has decided it.
    async fn answer(&self, body: &Value) -> (u16, Value, u64) {
        let mut starts = self.starts.clone();
        for sends in 1.. {
            let start = *starts.borrow_and_update();
            match self.send(body).await {
                // The daemon has not reached Redis yet.
                Ok((503, _)) => {}
                Ok((status, answer)) => return (status, answer, sends),
                // Disconnected, or no daemon listens.
                Err(_) => {
                    let next = tokio::time::timeout(WAIT_MAX, starts.wait_for(|now| *now > start)).await;
                    next.expect("another daemon in time").expect("daemons are begun");
                }
            }
        }
        unreachable!("it sends until it is answered")
    }

    async fn send(&self, body: &Value) -> reqwest::Result<(u16, Value)> {
        let request = self.client.post(format!("http://{}/v1/check", self.address)).bearer_auth(TOKEN);
        let response = request.header("content-type", "application/json").body(body.to_string()).send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).expect("JSON")))
    }
}

/// Compares stream, counters, totals and windows with the responses that the clients got.
async fn compare(books: &Outbox, admitted: &[Admitted]) {
    let entries: StreamRangeReply = books.run("XRANGE", &[books.keys.stream(), "-", "+"]).await;
    let ids: BTreeSet<String> = entries.ids.iter().map(|entry| entry.get("id").expect("an id")).collect();
    let told: BTreeSet<String> = admitted.iter().map(|one| one.id.clone()).collect();
    let odd: Vec<&String> = ids.symmetric_difference(&told).collect();
    assert!(odd.is_empty(), "told to be recorded and not there, or there and not told: {odd:?}");
    assert_eq!(told.len(), admitted.len(), "each id is answered once");

    let (entries, ids) = (entries.ids.len() as u64, ids.len() as u64);
    let totals = eventually("everything is counted", || async {
        let totals = books.totals().await;
        (totals.counted + totals.duplicates + totals.refused == entries).then_some(totals)
    })
    .await;
    assert_eq!((totals.counted, totals.duplicates, totals.refused), (ids, entries - ids, 0));

    let (mut units, mut taken_max): (BTreeMap<&str, u64>, BTreeMap<&str, u64>) = Default::default();
    for one in admitted {
        *units.entry(&one.subject).or_default() += one.units;
        *taken_max.entry(&one.subject).or_default() += one.units * one.sends;
    }
    for (of, units) in &units {
        let of: Subject = subject(of);
        assert_eq!(counted(books, &of).await, *units, "{of}");
        let window: u64 = books.run("GET", books.keys.limiter("fixed", &Metric::default(), &of)).await;
        // A repeated request takes again, to its caller's disadvantage, but never less than was recorded.
        assert!((*units..=taken_max[of.as_str()]).contains(&window), "{of}: {units} units, {window} taken");
    }
    assert_eq!(counted(books, &subject(DENIED)).await, 0, "what is refused is not counted");
    let resent: u64 = admitted.iter().map(|one| one.sends - 1).sum();
    eprintln!("{KILLS} kills, {ids} requests recorded, {resent} sent again, {} of them recorded before", entries - ids);
    assert!(entries > ids && resent > KILLS && ids > 10 * KILLS, "too little happened");
}

/// Units counted for a subject on any day.
async fn counted(books: &Outbox, of: &Subject) -> u64 {
    let (seconds, _): (i64, i64) = books.run("TIME", &[] as &[&str]).await;
    let today = DaySpan::containing(quotabell::zones::Zone::UTC, UnixMs(seconds * 1000)).expect("in range");
    let yesterday = DaySpan::containing(quotabell::zones::Zone::UTC, today.start.plus(-1)).expect("in range");
    let mut units = 0;
    for day in [yesterday.day, today.day] {
        let key = Keys::new("usage").usage(&Metric::default(), day, keys::bucket(of.as_str()));
        units += books.run::<Option<u64>>("HGET", &[key.as_str(), of.as_str()]).await.unwrap_or(0);
    }
    units
}
