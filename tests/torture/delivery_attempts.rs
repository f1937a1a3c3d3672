//! Compares the attempts that Redis stores with the requests that a receiver got: every request belongs to a lease, the
//! recorded outcomes are the receiver's, and only unrecorded attempts of killed daemons are repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use quotabell::redis_client::RedisClient;
use quotabell::types::{Attempt, Keys};

use crate::misbehaving_receiver::{Post, RETRY_AFTER};

/// Beginning of the error that is recorded for an attempt that reached its deadline.
const DEADLINE: &str = "deadline of ";
/// Maximum difference between the clocks of the tests and of Redis, with the rounding to milliseconds.
const CLOCK_ERROR_MS: i64 = 5;
/// A daemon records a response within this time, even on a busy machine.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);
/// Number of deliveries per read.
const READ_AT_ONCE: usize = 1_000;

/// A stored delivery.
#[derive(Debug)]
pub struct StoredDelivery {
    state: String,
    /// Number of leases that counted an attempt.
    attempts: u32,
    /// Recorded attempts by number.
    recorded: BTreeMap<u32, Attempt>,
}

/// The deliveries of a stream by subject: each subject has one alert and one contact.
pub async fn stored_deliveries(redis: &RedisClient, keys: &Keys) -> HashMap<String, StoredDelivery> {
    let ids: Vec<String> =
        redis.query(redis::cmd("ZRANGE").arg(keys.deliveries()).arg(0).arg(-1)).await.expect("the deliveries");
    let mut deliveries = HashMap::new();
    for ids in ids.chunks(READ_AT_ONCE) {
        let mut hashes = redis::pipe();
        for id in ids {
            hashes.cmd("HGETALL").arg(format!("{}{id}", keys.delivery_prefix()));
        }
        let hashes: Vec<HashMap<String, String>> = redis.pipe(&hashes).await.expect("the hashes");
        for fields in hashes {
            let attempt = |(field, json): (&String, &String)| {
                let number = field.strip_prefix("attempt:")?.parse().ok()?;
                Some((number, serde_json::from_str(json).expect("an attempt")))
            };
            let delivery = StoredDelivery {
                state: fields["state"].clone(),
                attempts: fields.get("attempts").map_or(0, |text| text.parse().expect("a number")),
                recorded: fields.iter().filter_map(attempt).collect(),
            };
            assert!(deliveries.insert(fields["subject"].clone(), delivery).is_none(), "one delivery a subject");
        }
    }
    deliveries
}

/// Converts an instant to the clock of Redis.
#[derive(Debug, Clone, Copy)]
pub struct ServerClock {
    asked: Instant,
    answer_ms: i64,
}

impl ServerClock {
    /// Asks Redis for its time.
    pub async fn ask(redis: &RedisClient) -> Self {
        let before = Instant::now();
        let (seconds, micros): (i64, i64) = redis.query(&redis::cmd("TIME")).await.expect("the time");
        Self { asked: before + before.elapsed() / 2, answer_ms: seconds * 1000 + micros / 1000 }
    }

    fn ms(self, at: Instant) -> i64 {
        let passed = |later: Instant, earlier: Instant| i64::try_from((later - earlier).as_millis()).expect("hours");
        if at >= self.asked { self.answer_ms + passed(at, self.asked) } else { self.answer_ms - passed(self.asked, at) }
    }
}

/// When each daemon was killed, by its number.
pub type Deaths = HashMap<usize, Instant>;

/// Settings of the daemons.
#[derive(Debug, Clone, Copy)]
pub struct Promised {
    /// The deadline of an attempt.
    pub timeout: Duration,
    /// The minimum delay between a failed attempt and the next.
    pub retry_at_least: Duration,
}

/// Number of repeated requests.
#[derive(Debug, Default)]
pub struct Repeats {
    /// Requests after the first one of an alert.
    pub all: usize,
    /// Repeats of a successful request whose daemon was killed before it recorded the success.
    pub unrecorded: usize,
    /// Repeats of a successful request whose daemon reports that the deadline had passed.
    pub after_deadline: usize,
    /// Maximum time between a successful response and the kill of its daemon.
    pub killed_after: Duration,
}

/// A fault in the requests of one alert.
#[derive(Debug)]
pub enum Fault {
    /// A request was repeated without a reason.
    Repeated(String),
    /// Another fault.
    Other(String),
}

/// Compares the requests of one alert, in order, with its stored delivery.
pub fn judge(
    posts: &[&Post],
    stored: &StoredDelivery,
    deaths: &Deaths,
    clock: ServerClock,
    promised: Promised,
    repeats: &mut Repeats,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    repeats.all += posts.len().saturating_sub(1);
    if stored.state != "delivered" {
        faults.push(Fault::Other(format!("its delivery is {}", stored.state)));
    }
    let mut rest = posts;
    let mut unrecorded = 0;
    // Earliest start of the next attempt, by the clock of Redis.
    let mut not_before = i64::MIN;
    for number in 1..=stored.attempts {
        let Some(attempt) = stored.recorded.get(&number) else {
            unrecorded += 1;
            continue;
        };
        let is_before = |post: &&Post| clock.ms(post.arrived) <= attempt.at_ms + CLOCK_ERROR_MS;
        let (group, later) = rest.split_at(rest.iter().take_while(|post| is_before(post)).count());
        rest = later;
        if group.len() > unrecorded + 1 {
            let line = format!("{} requests of {} leases up to attempt {number}", group.len(), unrecorded + 1);
            faults.push(Fault::Repeated(line));
        }
        if let Some(early) = group.iter().find(|post| clock.ms(post.arrived) < not_before) {
            let line = format!("attempt {number} came {} ms too early", not_before - clock.ms(early.arrived));
            faults.push(Fault::Other(line));
        }
        // An attempt may fail before its request is sent.
        let (own, lost) = match group.split_last() {
            Some((last, before)) if attempt.status.is_some() || is_of(last, attempt, clock) => (Some(*last), before),
            _ => (None, group),
        };
        faults.extend(lost.iter().filter_map(|post| judge_unrecorded(post, deaths, repeats)));
        faults.extend(judge_recorded(own, attempt, promised.timeout, repeats));
        if attempt.outcome == "delivered" && number < stored.attempts {
            faults
                .push(Fault::Repeated(format!("leased again after attempt {number}, which was recorded as delivered")));
        }
        let asked = if attempt.status == Some(503) { RETRY_AFTER } else { Duration::ZERO };
        not_before = attempt.at_ms + i64::try_from(promised.retry_at_least.max(asked).as_millis()).expect("short")
            - CLOCK_ERROR_MS;
        unrecorded = 0;
    }
    if !rest.is_empty() {
        faults.push(Fault::Repeated(format!("{} requests after the last outcome was recorded", rest.len())));
    }
    faults
}

/// Whether a request can belong to this attempt: requests of earlier leases came a lease earlier.
fn is_of(post: &Post, attempt: &Attempt, clock: ServerClock) -> bool {
    let took_ms = i64::try_from(attempt.duration_ms).expect("short");
    let recorded_ms = i64::try_from(RECORDED_WITHIN.as_millis()).expect("short");
    clock.ms(post.arrived) >= attempt.at_ms - took_ms - recorded_ms
}

/// A request without a recorded outcome: its daemon must have been killed first.
fn judge_unrecorded(post: &Post, deaths: &Deaths, repeats: &mut Repeats) -> Option<Fault> {
    let Some(killed) = deaths.get(&post.daemon) else {
        return Some(Fault::Repeated(format!("daemon {} never recorded an attempt, and was not killed", post.daemon)));
    };
    let answered = post.delivered?;
    repeats.unrecorded += 1;
    let lived_on = killed.saturating_duration_since(answered);
    repeats.killed_after = repeats.killed_after.max(lived_on);
    (lived_on > RECORDED_WITHIN).then(|| {
        let line = format!("daemon {} lived for {lived_on:?} after a success and did not record it", post.daemon);
        Fault::Repeated(line)
    })
}

/// A recorded attempt: the record must match the receiver's behavior.
fn judge_recorded(post: Option<&Post>, attempt: &Attempt, timeout: Duration, repeats: &mut Repeats) -> Option<Fault> {
    let answered = post.and_then(|post| Some(post.delivered?.duration_since(post.arrived)));
    let Attempt { outcome, status, error, duration_ms, .. } = attempt;
    let error = error.as_deref().unwrap_or_default();
    match (outcome.as_str(), answered) {
        ("delivered", None) => Some(Fault::Other("recorded as delivered, and never answered with success".to_owned())),
        ("delivered", Some(_)) => None,
        (_, Some(took)) if error.starts_with(DEADLINE) => {
            repeats.after_deadline += 1;
            let in_vain = Duration::from_millis(*duration_ms);
            (in_vain < timeout).then(|| {
                Fault::Repeated(format!(
                    "answered with success after {took:?}, given up at the deadline after {in_vain:?}"
                ))
            })
        }
        (_, Some(took)) => {
            let line =
                format!("answered with success after {took:?}, recorded as {outcome}, status {status:?}, {error:?}");
            Some(Fault::Repeated(line))
        }
        (_, None) => None,
    }
}
