//! A client that has the alerts of subjects end, has them end and be open again, or has them gather in digests, and the
//! receiver of all that.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quotabell::redis_client::{Partition, Partitions};
use quotabell::types::{Alert, ContactId, DeliveryId, ResolvedNotice, Subject};
use quotabell::views::deliveries;
use quotabell::zones::Zone;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::checker::Findings;
use crate::support::digest_messages::{Told, messages};
use crate::support::eventually::eventually;
use crate::support::raised_notices::{RaisedNotice, raised};
use crate::support::receivers::{Answer, CaughtRequest, HttpCatcher};
use crate::support::stream_model::{Customer, DueAt, Limit};
use crate::support::webhook_receiver::{secret, verify};
use crate::trial::Background;

/// Number of subjects.
const SUBJECTS: usize = 300;
/// Interval of new ones.
const PACE: Duration = Duration::from_millis(200);
/// The last event of a subject is sent with the first ones of the subject that comes this number later.
const LAG: usize = 12;
/// Maximum time of a call.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Maximum time until everything is told when nothing fails any more.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
const LIMIT: u64 = 100;
const CONTACT: &str = "c";

/// What becomes of the alerts of a subject.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// They end.
    Ended,
    /// They end and are open again. The receiver refuses their ends.
    Reopened,
    /// They are told in digests.
    Gathered,
}

struct Case {
    kind: Kind,
    thresholds: &'static [u64],
    /// Its events, by their fields.
    first: &'static [&'static [&'static str]],
    /// Repeatable.
    last: &'static [&'static str],
}

/// Those of one subject after another.
const CASES: [Case; 3] = [
    Case {
        kind: Kind::Ended,
        thresholds: &[80, 100],
        first: &[&["units", "100", "id", "1"]],
        last: &["credit", "100000"],
    },
    Case {
        kind: Kind::Reopened,
        thresholds: &[80, 100],
        first: &[&["units", "100", "id", "1"], &["credit", "100"]],
        last: &["units", "100"],
    },
    Case {
        kind: Kind::Gathered,
        thresholds: &[10, 20, 30, 40],
        first: &[&["units", "20", "id", "1"]],
        last: &["units", "20"],
    },
];

/// The subjects in this zone, in which no day begins soon.
pub fn customers(zone: Zone) -> impl Iterator<Item = Customer> {
    let zone = zone.name().parse().expect("a zone");
    (0..SUBJECTS).map(move |number| Customer {
        zone,
        limits: [("requests", vec![Limit { window: "day", units: LIMIT }])].into(),
        thresholds: case(number).thresholds.iter().copied().map(DueAt::Percent).collect(),
        ..Customer::plain(subject(number).as_str())
    })
}

fn case(number: usize) -> &'static Case {
    &CASES[number % 3]
}

fn subject(number: usize) -> Subject {
    format!("{:?} {number}", case(number).kind).parse().expect("legal")
}

/// A running client.
pub struct RunningMessages(Background<Messages>);

/// The client, with what its receiver got.
pub struct Messages {
    partitions: Partitions,
    receiver: HttpCatcher,
    caught: Vec<CaughtRequest>,
    /// Number of subjects that have used something.
    subjects: usize,
}

/// What Redis has about a subject.
#[derive(Default)]
struct Stored {
    alerts: Vec<RaisedNotice<Alert>>,
    ends: Vec<RaisedNotice<ResolvedNotice>>,
}

impl RunningMessages {
    /// Writes the contacts, and has alerts raised for one subject after another until stopped.
    pub async fn start(partitions: Partitions) -> Self {
        let mut client = Messages { partitions, receiver: receiver().await, caught: Vec::new(), subjects: 0 };
        client.write_contacts().await;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut paced = tokio::time::interval(PACE);
            for turn in 0.. {
                paced.tick().await;
                if stopped.is_cancelled() {
                    break;
                }
                if turn < SUBJECTS {
                    client.send(turn, case(turn).first).await;
                    client.subjects = turn + 1;
                }
                if let Some(number) = turn.checked_sub(LAG).filter(|number| *number < SUBJECTS) {
                    client.send(number, &[case(number).last]).await;
                }
                client.catch();
            }
            client
        });
        Self(Background { stop, task })
    }

    /// Stops it, and sends what is missing until every alert is raised.
    pub async fn end(self) -> Messages {
        let mut client = self.0.end().await;
        // What is missing is a finding.
        let _ = tokio::time::timeout(TOLD_WITHIN, client.send_rest()).await;
        client
    }
}

/// Accepts three of four requests, but no end of what is open again.
async fn receiver() -> HttpCatcher {
    let asked = AtomicU64::new(0);
    let respond = move |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let is_reopened = || body["data"]["subject"].as_str().is_some_and(|subject| subject.starts_with("Reopened"));
        let is_held = is_end(&body) && is_reopened();
        Answer::status(if is_held || asked.fetch_add(1, Ordering::Relaxed) % 4 == 1 { 503 } else { 204 })
    };
    HttpCatcher::start_on((Ipv4Addr::UNSPECIFIED, 0).into(), respond).await.expect("a receiver")
}

fn is_end(body: &Value) -> bool {
    body["type"] == ResolvedNotice::WEBHOOK_TYPE
}

impl Stored {
    /// Whether all alerts of a subject are raised.
    fn is_raised(&self, case: &Case) -> bool {
        self.alerts.len() == case.thresholds.len()
    }

    /// Whether everything about a subject is told.
    fn is_told(&self, case: &Case) -> bool {
        self.is_raised(case)
            && self.alerts.iter().all(|alert| alert.state == "delivered" || alert.state == self.state_of_untold(case))
            && self.ends.iter().all(|end| end.state != "pending")
            && (case.kind != Kind::Ended || self.ends.iter().any(|end| end.state == self.state_of_end()))
    }

    /// The state of an alert that its receiver refused until it had ended.
    fn state_of_untold(&self, case: &Case) -> &'static str {
        if case.kind == Kind::Gathered { "delivered" } else { "expired" }
    }

    /// The state of the end of its alerts: it is told if any of them was.
    fn state_of_end(&self) -> &'static str {
        if self.alerts.iter().any(|alert| alert.state == "delivered") { "delivered" } else { "expired" }
    }
}

impl Messages {
    /// Checks that each end was told once and after its alerts, unless they are open again, and each alert of a digest
    /// in one message. Everything must be counted. Each of these losses may repeat a message. Returns what was told.
    pub async fn compare(mut self, losses: u64, findings: &mut Findings) -> String {
        let all_told = async { while !self.those_without(Stored::is_told).await.is_empty() {} };
        let _ = tokio::time::timeout(TOLD_WITHIN, all_told).await;
        let stored = self.stored().await;
        let accepted = self.accepted(&stored, findings);
        let is_digest = |request: &&CaughtRequest| request.body.starts_with(br#"{"type":"quota.digest""#);
        let digests = messages(self.caught.iter().filter(is_digest));
        let mut gathered: BTreeMap<&Told, u64> = BTreeMap::new();
        for told in digests.values().flatten() {
            *gathered.entry(told).or_default() += 1;
        }
        let mut withdrawn = 0;
        for number in 0..self.subjects {
            let (subject, Case { kind, thresholds, .. }) = (subject(number), case(number));
            let ends = stored.get(&subject).map_or(&[][..], |of| of.ends.as_slice());
            let state_of_end = stored.get(&subject).map_or("delivered", Stored::state_of_end);
            let in_digests = thresholds.iter().map(|percent| {
                let alert = (subject.to_string(), "day".to_owned(), *percent);
                gathered.get(&alert).copied().unwrap_or(0)
            });
            let mut told: Vec<u64> =
                ends.iter().map(|end| accepted.get(&end.notice.id).copied().unwrap_or(0)).collect();
            let is_right = match (kind, ends) {
                (Kind::Ended, [end]) => {
                    let repeats_max = self.unrecorded(&end.notice).await + losses;
                    let is_told = state_of_end == "delivered";
                    end.state == state_of_end && (u64::from(is_told)..=1 + repeats_max).contains(&told[0])
                }
                (Kind::Reopened, ends) => {
                    withdrawn += ends.len();
                    ends.iter().all(|end| end.state == "expired")
                }
                (Kind::Gathered, []) => {
                    told = in_digests.collect();
                    told.iter().all(|times| (1..=1 + losses).contains(times))
                }
                _ => false,
            };
            if !is_right {
                let states: Vec<&str> = ends.iter().map(|end| end.state.as_str()).collect();
                findings.other.push(format!("{subject}: ends that are {states:?}; told {told:?} times"));
            }
        }
        format!("{} ends and {withdrawn} withdrawn ones, {} digests", accepted.len(), digests.len())
    }

    /// How often each end was accepted. One that was accepted before its alerts is a finding.
    fn accepted(&self, stored: &HashMap<Subject, Stored>, findings: &mut Findings) -> HashMap<String, u64> {
        let ends = stored.values().flat_map(|of| &of.ends);
        let ends: HashMap<&str, &ResolvedNotice> = ends.map(|end| (end.notice.id.as_str(), &end.notice)).collect();
        let untold = stored.values().flat_map(|of| &of.alerts).filter(|alert| alert.state == "expired");
        let mut alerts: HashSet<String> = untold.map(|alert| alert.notice.id.to_string()).collect();
        let mut accepted = HashMap::new();
        for request in self.caught.iter().filter(|request| request.status < 300) {
            let message = verify(request, &secret(1));
            if !is_end(&message.body) {
                alerts.insert(message.id);
                continue;
            }
            let is_after = |end: &&ResolvedNotice| end.alerts.iter().all(|alert| alerts.contains(alert.as_str()));
            if !ends.get(message.id.as_str()).is_some_and(is_after) {
                findings.other.push(format!("{} was told before its alerts, or was not raised", message.body));
            }
            *accepted.entry(message.id).or_default() += 1;
        }
        accepted
    }

    /// Number of attempts whose daemon was killed before it recorded the outcome.
    async fn unrecorded(&self, end: &ResolvedNotice) -> u64 {
        let id = DeliveryId::of_notification(&end.id, &ContactId::from_stored(CONTACT));
        let detail = deliveries::show(self.partitions.partition_of(&end.subject), &[], &id).await;
        let detail = detail.expect("redis answers").expect("a delivery");
        u64::from(detail.delivery.attempts) - detail.attempt_log.len() as u64
    }

    async fn write_contacts(&self) {
        let Partition { client, keys } = self.partitions.first();
        for number in 0..SUBJECTS {
            // A destination of its own: the lease of a killed daemon delays no others.
            let host = Ipv4Addr::new(127, 2, (number / 250) as u8, (number % 250) as u8 + 1);
            let url = format!("http://{}/", SocketAddr::from((host, self.receiver.address().port())));
            let mut contact = json!({"id": CONTACT, "channel": "webhook", "url": url, "secret": secret(1)});
            match case(number).kind {
                Kind::Gathered => contact["digest"] = "1s".into(),
                Kind::Ended | Kind::Reopened => contact["resolved"] = true.into(),
            }
            let mut command = redis::cmd("HSET");
            command.arg(keys.subject(&subject(number))).arg("contacts").arg(json!([contact]).to_string());
            eventually("the contact is written", || async { client.query::<()>(&command).await.ok() }).await;
        }
    }

    async fn send_rest(&mut self) {
        let mut left: Vec<usize> = (0..self.subjects).collect();
        while !left.is_empty() {
            // After some minutes an event with a known id would be counted again.
            let lost = self.those_without(|_, _| true).await;
            for number in left {
                if lost.contains(&number) {
                    self.send(number, case(number).first).await;
                }
                self.send(number, &[case(number).last]).await;
            }
            left = self.those_without(Stored::is_raised).await;
        }
    }

    /// The subjects for which this does not hold.
    async fn those_without(&mut self, holds: impl Fn(&Stored, &Case) -> bool) -> Vec<usize> {
        let stored = self.stored().await;
        self.catch();
        let holds = |number: &usize| stored.get(&subject(*number)).is_some_and(|of| holds(of, case(*number)));
        (0..self.subjects).filter(|number| !holds(number)).collect()
    }

    async fn send(&self, number: usize, events: &[&[&str]]) {
        let subject = subject(number);
        let Partition { client, keys } = self.partitions.partition_of(&subject);
        let mut pipeline = redis::pipe();
        for fields in events {
            pipeline.cmd("XADD").arg(keys.stream()).arg(&["*", "subject", subject.as_str()]).arg(fields).ignore();
        }
        let _ = tokio::time::timeout(CALL_MAX, client.pipe::<()>(&pipeline)).await;
    }

    async fn stored(&self) -> HashMap<Subject, Stored> {
        let mut stored: HashMap<Subject, Stored> = HashMap::new();
        for alert in raised::<Alert>(&self.partitions, "alert").await {
            stored.entry(alert.notice.subject.clone()).or_default().alerts.push(alert);
        }
        for end in raised::<ResolvedNotice>(&self.partitions, "resolved").await {
            stored.entry(end.notice.subject.clone()).or_default().ends.push(end);
        }
        stored
    }

    fn catch(&mut self) {
        self.caught.extend(std::iter::from_fn(|| self.receiver.try_next()));
    }
}
