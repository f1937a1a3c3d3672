//! Alerts to many receivers while daemons are killed; three in ten receivers misbehave at random. Each alert arrives
//! with one id, never again after it was delivered, and never before it is due.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use quotabell::redis_client::RedisClient;
use quotabell::types::Keys;
use quotabell::types::keys::SUBJECT_PREFIX_DEFAULT;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::delivery_attempts::{self, Deaths, Fault, Promised, Repeats, ServerClock, stored_deliveries};
use crate::misbehaving_receiver::{MisbehavingReceiver, Post};
use crate::support::checker::Findings;
use crate::support::daemon::{Daemon, DaemonSetup, READY};
use crate::support::redis_server::RedisServer;
use crate::trial::{Told, Trial, client};

const STREAM: &str = "usage";
const SECRET: &str = "whsec_dG9ydHVyZXRvcnR1cmV0b3J0dXJldG9ydHVyZXRv";
const DAEMONS: usize = 2;
/// Alerts per kill: 10,000 for the full number of kills.
const ALERTS_A_ROUND: u64 = 500;
const ALERTS_A_RECEIVER: u64 = 25;
/// Number of misbehaving ones in ten receivers.
const MISBEHAVING_OF_TEN: u64 = 3;
/// Deadline of an attempt: a hanging receiver occupies it for this time.
const TIMEOUT: Duration = Duration::from_millis(500);
/// A machine that stalls for a moment lets a deadline pass; at most one in this number of successes may be affected.
const AFTER_DEADLINE_ONE_IN: u64 = 100;
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Minimum delay: delays vary by up to a fifth and are stored in whole milliseconds.
const RETRY_AT_LEAST: Duration = Duration::from_millis(79);
/// Maximum factor by which misbehaving receivers may delay the others.
const DELAYED_FACTOR_MAX: f64 = 2.0;
/// Delays below this may come from a busy machine.
const DELAYED_MS_MAX: f64 = 2_000.0;
/// Maximum time after the last kill until every lease has ended and every retry was made.
const ALL_WITHIN: Duration = Duration::from_secs(180);

/// Runs the scenario; a round is a kill. Two runs without kills come first: with good receivers only, and with
/// misbehaving ones among them.
pub async fn run(trial: Trial) -> Told {
    let alerts = ALERTS_A_ROUND * trial.rounds;
    let well = play(trial, alerts, 0, false).await;
    let beside_misbehaving = play(trial, alerts, MISBEHAVING_OF_TEN, false).await;
    let killed = play(trial, alerts, MISBEHAVING_OF_TEN, true).await;
    let tried = format!(
        "{} kills, {alerts} alerts to {} receivers; p99 of those that are well {:.0} ms, beside misbehaving ones {:.0} ms, with kills {:.0} ms; \
         repeats without misbehaving ones {}, beside misbehaving ones {}, with kills {}",
        killed.kills,
        receivers_of(alerts),
        well.p99_ms,
        beside_misbehaving.p99_ms,
        killed.p99_ms,
        shown(&well.repeats),
        shown(&beside_misbehaving.repeats),
        shown(&killed.repeats),
    );
    let mut findings = well.findings;
    if is_delayed(well.p99_ms, beside_misbehaving.p99_ms) {
        findings.other.push(format!(
            "receivers that are well are delayed by misbehaving ones: p99 {:.0} ms in place of {:.0} ms",
            beside_misbehaving.p99_ms, well.p99_ms
        ));
    }
    findings.extend(beside_misbehaving.findings);
    findings.extend(killed.findings);
    Told { tried, entries: 3 * alerts, absent: 0, alerts: 3 * alerts, findings }
}

/// Whether misbehaving receivers delay the others by more than a slow machine would.
const fn is_delayed(alone_ms: f64, beside_ms: f64) -> bool {
    beside_ms > DELAYED_FACTOR_MAX * alone_ms && beside_ms - alone_ms > DELAYED_MS_MAX
}

const _: () = assert!(is_delayed(1_500.0, 3_600.0), "a delay is found");
const _: () = assert!(!is_delayed(200.0, 2_100.0) && !is_delayed(10_000.0, 19_000.0), "noise is none");

/// Daemons and their numbers: a daemon's request bodies contain its number.
struct Fleet {
    setup: DaemonSetup,
    templates: TempDir,
    started: usize,
    running: Vec<(usize, Daemon)>,
}

impl Fleet {
    async fn start(setup: DaemonSetup) -> Self {
        let templates = tempfile::tempdir().expect("a temporary folder");
        let mut fleet = Self { setup, templates, started: 0, running: Vec::new() };
        for at in 0..DAEMONS {
            fleet.spawn(at);
        }
        fleet.are_ready().await;
        fleet
    }

    fn spawn(&mut self, at: usize) {
        let number = self.started;
        self.started += 1;
        let folder = self.templates.path().join(number.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("daemon.json"), format!("{{\"daemon\": {number}}}")).expect("a template");
        let setup = self.setup.clone().env("QUOTABELL__WEBHOOK__TEMPLATES", folder.to_str().expect("UTF-8"));
        self.running.insert(at, (number, setup.spawn()));
    }

    async fn are_ready(&mut self) {
        for (_, daemon) in &mut self.running {
            daemon.says(READY).await;
        }
    }

    /// Kills a daemon and starts its successor. Returns the successor's number.
    async fn replace(&mut self, at: usize) -> usize {
        self.running[at].1.says(READY).await;
        let (number, daemon) = self.running.remove(at);
        daemon.kill().await;
        self.spawn(at);
        number
    }
}

/// The result of a run.
struct Played {
    kills: usize,
    p99_ms: f64,
    repeats: Repeats,
    findings: Findings,
}

fn shown(repeats: &Repeats) -> String {
    let Repeats { all, unrecorded, killed_after, after_deadline } = repeats;
    format!(
        "{all} ({unrecorded} of a success that was not recorded when its daemon was killed, at most {} ms later; \
         {after_deadline} of a success that left when the deadline passed)",
        killed_after.as_millis()
    )
}

fn receivers_of(alerts: u64) -> u64 {
    (alerts / ALERTS_A_RECEIVER).max(1)
}

fn subject(n: u64) -> String {
    format!("s-{n}")
}

/// Whether the receiver of this subject misbehaves.
fn misbehaves(n: u64, alerts: u64, of_ten: u64) -> bool {
    (n % receivers_of(alerts)) % 10 < of_ten
}

async fn play(trial: Trial, alerts: u64, misbehaving_of_ten: u64, kills: bool) -> Played {
    let server = RedisServer::start();
    let misbehaving = (0..alerts).filter(|n| misbehaves(*n, alerts, misbehaving_of_ten)).map(subject).collect();
    let receiver = MisbehavingReceiver::start(misbehaving, trial.seed ^ 9).await;
    let redis = client(&server.url(), STREAM);
    let setup = DaemonSetup::on(&server.url())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":5}"#)
        .env("QUOTABELL__WEBHOOK__TIMEOUT", &format!("{}ms", TIMEOUT.as_millis()))
        // Bounds the delay that a receiver may request.
        .env("QUOTABELL__RETRY__MAX_INTERVAL", "1s")
        .env("QUOTABELL__RETRY__FIRST", &format!("{}ms", RETRY_FIRST.as_millis()));
    let mut fleet = Fleet::start(setup).await;
    let began = append(&redis, alerts, receiver.port).await;
    let deaths = if kills { kill_now_and_then(trial, &mut fleet, &receiver, alerts).await } else { Deaths::new() };
    let all_are_told = tokio::time::timeout(ALL_WITHIN, async {
        while redis.query::<u64>(redis::cmd("ZCARD").arg(Keys::new(STREAM).pending())).await.ok() != Some(0)
            || receiver.told_count() < alerts
        {
            tokio::task::yield_now().await;
        }
    });
    let in_time = all_are_told.await.is_ok();
    for (_, daemon) in fleet.running {
        daemon.drain().await;
    }
    let mut played = judge(&redis, &receiver.posts(), alerts, &deaths).await;
    if !in_time {
        played.findings.other.push(format!("not everything was delivered within {ALL_WITHIN:?}"));
    }
    let told = receiver.told();
    let mut took_ms: Vec<f64> = (0..alerts)
        .filter(|n| !misbehaves(*n, alerts, MISBEHAVING_OF_TEN))
        .filter_map(|n| Some(told.get(&subject(n))?.duration_since(began).as_secs_f64() * 1000.0))
        .collect();
    took_ms.sort_by(f64::total_cmp);
    played.p99_ms = took_ms.get(took_ms.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    played
}

/// Writes the contacts, then an event per subject that reaches 80 %. Returns the time before the events were sent.
async fn append(redis: &RedisClient, alerts: u64, port: u16) -> Instant {
    let (mut contacts, mut events) = (redis::pipe(), redis::pipe());
    for n in 0..alerts {
        let at = n % receivers_of(alerts) + 1;
        let url = format!("http://127.1.{}.{}:{port}/{}", at / 250, at % 250 + 1, subject(n));
        let contact =
            serde_json::json!([{"channel": "webhook", "url": url, "secret": SECRET, "format": "template:daemon"}]);
        let key = format!("{SUBJECT_PREFIX_DEFAULT}{}", subject(n));
        contacts.cmd("HSET").arg(key).arg("contacts").arg(contact.to_string()).ignore();
        events.cmd("XADD").arg(STREAM).arg("*").arg("subject").arg(subject(n)).arg("units").arg(4).ignore();
    }
    let () = redis.pipe(&contacts).await.expect("the contacts are written");
    let began = Instant::now();
    let () = redis.pipe(&events).await.expect("the events are appended");
    began
}

/// Kills daemons after random numbers of requests, and starts others. Returns when each was gone.
async fn kill_now_and_then(trial: Trial, fleet: &mut Fleet, receiver: &MisbehavingReceiver, alerts: u64) -> Deaths {
    let mut random = StdRng::seed_from_u64(trial.seed ^ 8);
    let mut deaths = Deaths::new();
    while trial.goes_on(deaths.len() as u64) && receiver.told_count() < alerts {
        let until = receiver.post_count() + random.random_range(0..ALERTS_A_ROUND as usize / 4);
        let more = async {
            while receiver.post_count() < until {
                tokio::task::yield_now().await;
            }
        };
        // If nothing is due any more, the daemon is killed anyway.
        let _ = tokio::time::timeout(Duration::from_secs(1), more).await;
        let killed = fleet.replace(random.random_range(0..DAEMONS)).await;
        deaths.insert(killed, Instant::now());
    }
    fleet.are_ready().await;
    deaths
}

/// Compares the requests with the promises and with Redis' data.
async fn judge(redis: &RedisClient, posts: &[Post], alerts: u64, deaths: &Deaths) -> Played {
    let mut of_subject: HashMap<&str, Vec<&Post>> = HashMap::new();
    for post in posts {
        of_subject.entry(&post.subject).or_default().push(post);
    }
    let clock = ServerClock::ask(redis).await;
    let stored = stored_deliveries(redis, &Keys::new(STREAM)).await;
    let (mut findings, mut repeats) = (Findings::default(), Repeats::default());
    let promised = Promised { timeout: TIMEOUT, retry_at_least: RETRY_AT_LEAST };
    let mut ids = HashSet::new();
    for subject in (0..alerts).map(subject) {
        let posts = of_subject.get(subject.as_str()).map_or(&[][..], Vec::as_slice);
        if !posts.iter().any(|post| post.delivered.is_some()) {
            findings.never_raised.push(format!("{subject}: no attempt of {} was answered", posts.len()));
        }
        let own: HashSet<&str> = posts.iter().map(|post| post.webhook_id.as_str()).collect();
        if own.len() > 1 {
            findings.other.push(format!("{subject}: {} ids of one alert", own.len()));
        }
        for id in own {
            if !ids.insert(id.to_owned()) {
                findings.other.push(format!("{subject}: its id {id} is another alert's"));
            }
        }
        let Some(stored) = stored.get(&subject) else {
            findings.never_raised.push(format!("{subject}: Redis holds no delivery of it"));
            continue;
        };
        for fault in delivery_attempts::judge(posts, stored, deaths, clock, promised, &mut repeats) {
            match fault {
                Fault::Repeated(line) => findings.raised_twice.push(format!("{subject}: {line}")),
                Fault::Other(line) => findings.other.push(format!("{subject}: {line}")),
            }
        }
    }
    if repeats.after_deadline as u64 > alerts / AFTER_DEADLINE_ONE_IN {
        findings.other.push(format!("{} successes were taken for none at the deadline", repeats.after_deadline));
    }
    Played { kills: deaths.len(), p99_ms: 0.0, repeats, findings }
}
