//! The real binary, repeatedly killed with SIGKILL at random moments during one run of events, for subjects of which
//! some form trees of three levels. Afterwards all numbers must match a plain map.
//!
//! A kill follows a random number of round trips to Redis after the process started, after it was ready, after a
//! commit, or after a webhook arrived that is not answered yet; so kills happen in starts, reads, commits, fan-outs,
//! sends and settlements. Sometimes two daemons run, one reading and one standing by. `QUOTABELL_TEST_SEED` repeats a
//! run's events and choices.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::seed::seed_of_run;
use crate::support;
use crate::support::checker::{compare, reached_of};
use crate::support::contact_receiver::{AnswerMode, ContactReceiver, ReceivingContact};
use crate::support::daemon::{Daemon, DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::Outbox;
use crate::support::receivers::{SmtpCatcher, SmtpSetup};
use crate::support::redis_server::RedisServer;
use crate::support::stream_model::{Customer, StreamModel};
use crate::support::traffic::{Event, FREE_LIMIT, Traffic};
use crate::support::webhook_receiver::secret;
use quotabell::config::Config;
use quotabell::types::text::grouped;
use quotabell::types::{Alert, AlertThreshold, ContactId, DeliveryId, DeliveryState, UnixMs, Window};
use quotabell::views::alert_log::{LogFilter, LogReader, LoggedNotification};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Number of kills.
const KILLS: u64 = 260;
/// The producer waits while more events than this are uncounted.
const BACKLOG_MAX: u64 = 6_000;
/// The deadline of a webhook; its lease lasts 5 s longer, and a daemon killed with a lease delays the test by that
/// time.
const WEBHOOK_TIMEOUT: &str = "1s";
/// Maximum time to wait for an event that may not happen, such as a webhook when nothing is due.
const MOMENT_MAX: Duration = Duration::from_millis(150);
/// The same for a commit that is due.
const COMMIT_MAX: Duration = Duration::from_secs(10);

/// After a crash this product must never count twice, lose an alert or send one twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_anywhere_any_number_of_times_every_number_is_right() {
    let seed = seed_of_run();
    let scene = Scene::set(seed).await;
    let stop = CancellationToken::new();
    let producer = scene.produce(&stop);
    let tally = scene.kill_again_and_again(seed).await;
    stop.cancel();
    let model = producer.await.expect("the producer ends well");
    let survivor = scene.setup_at(scene.address_of_last_reader().await).start().await;
    scene.drained().await;
    scene.tell_where_to_reach_the_silent().await;
    survivor.drain().await;

    let compared = compare(&scene.outbox.client, &scene.outbox.keys, &model).await;
    compared.findings.expect_none();
    scene.compare_deliveries(&compared.alerts, &tally, &model).await;
}

/// Everything except the daemons.
struct Scene {
    outbox: Outbox,
    receiver: ContactReceiver,
    /// The texts of the emails by their Message-ID.
    mails: JoinHandle<HashMap<String, Vec<String>>>,
    mails_end: CancellationToken,
    traffic: Traffic,
    /// Contacts by subject, including subjects that have none stored yet.
    contacts: BTreeMap<String, Vec<Contact>>,
    setup: DaemonSetup,
    /// Addresses of daemons. A daemon on the address of the killed reader need not wait for its lease to end.
    addresses: [SocketAddr; 2],
}

/// A running daemon.
#[derive(Debug)]
struct RunningDaemon {
    daemon: Daemon,
    /// Index of its address.
    at: usize,
}

#[derive(Debug, Clone)]
struct Contact {
    id: String,
    json: serde_json::Value,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Webhook(AnswerMode),
    Email,
}

/// What the kills interrupted.
#[derive(Debug, Default)]
struct ExpectedTotal {
    kills: u64,
    before_ready: u64,
    with_backlog: u64,
    with_alerts_in_outbox: u64,
    with_an_open_lease: u64,
    of_two: u64,
}

/// When to kill.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// This number of round trips after the process started.
    Started(u32),
    /// This number of round trips after it was ready.
    Ready(u32),
    /// This number of round trips after the next commit.
    Committed(u32),
    /// This number of round trips after a webhook arrived.
    Sending(u32),
}

impl Scene {
    async fn set(seed: u64) -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let receiver = ContactReceiver::start(outbox.server.client(), outbox.keys.clone()).await;
        let mut catcher = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__WEBHOOK__TIMEOUT", WEBHOOK_TIMEOUT)
            .env("QUOTABELL__EMAIL__TIMEOUT", "1s")
            .env("QUOTABELL__EMAIL__SMTP_URL", &catcher.url())
            .env("QUOTABELL__SUBJECTS__SEPARATOR", "/")
            .env("QUOTABELL__PLANS__FREE__LIMITS", &format!("{{\"requests\":{FREE_LIMIT}}}"));
        let mails_end = CancellationToken::new();
        let ended = mails_end.clone();
        let mails = tokio::spawn(async move {
            let mut ids: HashMap<String, Vec<String>> = HashMap::new();
            loop {
                tokio::select! {
                    biased;
                    mail = catcher.next() => {
                        let mail = ParsedMail::parse(&mail.text());
                        ids.entry(mail.header("Message-ID")).or_default().push(mail.parts[0].content.clone());
                    }
                    () = ended.cancelled() => return ids,
                }
            }
        });
        let traffic = Traffic::of_trees(seed);
        let addresses = [(); 2].map(|()| own_address());
        let mut scene =
            Self { outbox, receiver, mails, mails_end, traffic, contacts: BTreeMap::new(), setup, addresses };
        scene.settle_customers().await;
        scene
    }

    /// Writes the customers' settings as a platform would, and prepares contacts for those that have none.
    async fn settle_customers(&mut self) {
        for (number, customer) in self.traffic.customers.clone().iter().enumerate() {
            let contacts: Vec<Contact> =
                (0..customer.contacts.max(1)).map(|which| self.contact(number, which)).collect();
            if customer.known {
                self.write(customer, &contacts).await;
            }
            self.contacts.insert(customer.subject.clone(), contacts);
        }
    }

    fn contact(&self, number: usize, which: usize) -> Contact {
        let id = format!("c_{number}_{which}");
        if number % 7 == 3 && which == 0 {
            let json = serde_json::json!({"id": id, "channel": "email", "address": format!("{id}@b.test")});
            return Contact { id, json, kind: Kind::Email };
        }
        let mode = match (number + which) % 5 {
            0 => AnswerMode::Flaky,
            1 if number.is_multiple_of(3) => AnswerMode::Refuses,
            _ => AnswerMode::Good,
        };
        let secret = secret(u8::try_from(number).expect("few customers"));
        let json = self.receiver.add_contact(ReceivingContact { id: id.clone(), secret, mode });
        Contact { id, json, kind: Kind::Webhook(mode) }
    }

    async fn write(&self, customer: &Customer, contacts: &[Contact]) {
        let mut words = vec![subject_key(&customer.subject)];
        words.extend(customer.settings());
        if customer.contacts > 0 {
            words.extend(["contacts".into(), json_of(contacts)]);
        }
        let _: u64 = self.outbox.run("HSET", words).await;
    }

    /// Adds events in pipelines of random length until told to stop, and enters them into the model under their stream
    /// ids.
    fn produce(&self, stop: &CancellationToken) -> JoinHandle<StreamModel> {
        let (client, keys, stop) = (Arc::clone(&self.outbox.client), self.outbox.keys.clone(), stop.clone());
        let mut traffic = Traffic::of_trees(self.traffic.seed());
        let mut random = StdRng::seed_from_u64(self.traffic.seed() ^ 1);
        tokio::spawn(async move {
            let mut model = StreamModel::new(&traffic.customers, FREE_LIMIT).with_separator('/');
            let mut paced = tokio::time::interval(Duration::from_millis(2));
            while !stop.is_cancelled() {
                let mut look = redis::pipe();
                look.cmd("TIME").cmd("HGET").arg(keys.checkpoint()).arg("entries_read");
                let (time, read): ((i64, i64), Option<u64>) = client.pipe(&look).await.expect("redis answers");
                if model.entries.saturating_sub(read.unwrap_or(0)) < BACKLOG_MAX {
                    let now_ms = time.0 * 1000 + time.1 / 1000;
                    let events: Vec<Event> = (0..random.random_range(1..80)).map(|_| traffic.event(now_ms)).collect();
                    let ids: Vec<String> =
                        client.pipe(&pipeline(keys.stream(), &events)).await.expect("they are added");
                    for (id, event) in ids.into_iter().zip(&events) {
                        event.enter(&mut model, &id);
                    }
                }
                paced.tick().await;
            }
            model
        })
    }

    async fn kill_again_and_again(&self, seed: u64) -> ExpectedTotal {
        let mut random = StdRng::seed_from_u64(seed ^ 2);
        let mut tally = ExpectedTotal::default();
        let mut survivor: Option<RunningDaemon> = None;
        while tally.kills < KILLS {
            let RunningDaemon { mut daemon, at } = match survivor.take() {
                Some(running) => running,
                None => self.begin_at(self.address_of_last_reader().await),
            };
            let second = random.random_bool(0.25).then(|| self.begin_at(1 - at));
            let moment = match random.random_range(0..10) {
                0 => Moment::Started(random.random_range(0..150)),
                1..4 => Moment::Ready(random.random_range(0..600)),
                4..7 => Moment::Committed(random.random_range(0..30)),
                _ => Moment::Sending(random.random_range(0..12)),
            };
            self.wait_for(moment, &mut daemon).await;
            let ready = daemon.has_said(support::daemon::READY);
            daemon.kill().await;
            self.check_what_is_left(&mut tally).await;
            tally.kills += 1;
            tally.before_ready += u64::from(!ready);
            tally.of_two += u64::from(second.is_some());
            survivor = second;
        }
        if let Some(running) = survivor {
            running.daemon.kill().await;
            tally.kills += 1;
        }
        tally
    }

    fn setup_at(&self, at: usize) -> DaemonSetup {
        self.setup.clone().at(self.addresses[at])
    }

    fn begin_at(&self, at: usize) -> RunningDaemon {
        RunningDaemon { daemon: self.setup_at(at).spawn(), at }
    }

    /// The address of the daemon that read last.
    async fn address_of_last_reader(&self) -> usize {
        let holder: Option<String> = self.outbox.run("GET", &[self.outbox.keys.lease().as_str()]).await;
        let holder = holder.unwrap_or_default();
        self.addresses.iter().position(|address| holder.contains(&format!("/{address}/"))).unwrap_or(0)
    }

    async fn wait_for(&self, moment: Moment, daemon: &mut Daemon) {
        let round_trips = match moment {
            Moment::Started(round_trips) => round_trips,
            Moment::Ready(round_trips) => {
                daemon.says(support::daemon::READY).await;
                round_trips
            }
            Moment::Committed(round_trips) => {
                daemon.says(support::daemon::READY).await;
                let before = self.progress().await;
                let committed = async { while self.progress().await == before {} };
                // On a busy machine, daemons that are killed before they commit anything would never commit anything.
                let max = if self.lag().await > 0 { COMMIT_MAX } else { MOMENT_MAX };
                let _ = tokio::time::timeout(max, committed).await;
                round_trips
            }
            Moment::Sending(round_trips) => {
                daemon.says(support::daemon::READY).await;
                let mut requests: watch::Receiver<u64> = self.receiver.requests();
                let _ = tokio::time::timeout(MOMENT_MAX, requests.changed()).await;
                round_trips
            }
        };
        for _ in 0..round_trips {
            let _: String = self.outbox.client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
    }

    async fn progress(&self) -> Option<String> {
        self.outbox.run("HGET", &[self.outbox.keys.checkpoint().as_str(), "id"]).await
    }

    /// The state after a kill must be consistent at once, not only in the end.
    async fn check_what_is_left(&self, tally: &mut ExpectedTotal) {
        let keys = &self.outbox.keys;
        let mut look = redis::pipe();
        look.atomic();
        look.cmd("HGET").arg(keys.checkpoint()).arg("entries_read");
        look.cmd("HMGET").arg(keys.totals()).arg(&["counted", "refused", "duplicates"]);
        let (read, moved): (Option<u64>, Vec<Option<u64>>) =
            self.outbox.client.pipe(&look).await.expect("redis answers");
        let left = self.lag().await;
        let judged: u64 = moved.into_iter().flatten().sum();
        assert_eq!(read.unwrap_or(0), judged, "each entry read is counted, refused or a duplicate");
        let totals = self.outbox.assert_balanced().await;
        assert!(
            totals.raised <= totals.made + totals.outbox,
            "an alert has neither a delivery nor a place in the outbox"
        );
        tally.with_backlog += u64::from(left > 100);
        tally.with_alerts_in_outbox += u64::from(totals.outbox > 0);
        let leased: Vec<String> = self.outbox.run("KEYS", format!("{}http*", keys.leased_prefix())).await;
        tally.with_an_open_lease += u64::from(!leased.is_empty());
    }

    /// Waits until everything is counted and only deliveries without a contact are pending.
    async fn drained(&self) {
        eventually("everything is counted and sent", || async {
            let lag = self.group_lag().await;
            let totals = self.outbox.totals().await;
            (lag == Some(0) && totals.outbox == 0 && totals.pending == totals.waiting).then_some(())
        })
        .await;
    }

    /// Known before the first commit too, when there is no group yet.
    async fn lag(&self) -> u64 {
        quotabell::ledger::query::lag(&self.outbox.client, &self.outbox.keys).await.expect("redis answers")
    }

    /// What Redis says of the group.
    async fn group_lag(&self) -> Option<u64> {
        let groups: redis::streams::StreamInfoGroupsReply =
            self.outbox.run("XINFO", &["GROUPS", self.outbox.keys.stream()]).await;
        groups.groups.iter().find(|group| group.name == "quotabell").and_then(|group| group.lag.map(|lag| lag as u64))
    }

    /// Contacts that are added late still get every alert.
    async fn tell_where_to_reach_the_silent(&self) {
        let totals = self.outbox.assert_balanced().await;
        assert!(totals.waiting > 0, "some alerts have nobody to go to");
        for customer in self.traffic.customers.iter().filter(|customer| customer.contacts == 0) {
            let contacts = json_of(&self.contacts[&customer.subject]);
            let _: u64 = self.outbox.run("HSET", &[subject_key(&customer.subject), "contacts".into(), contacts]).await;
        }
        eventually("the waiting alerts are sent", || async { (self.outbox.totals().await.pending == 0).then_some(()) })
            .await;
    }

    /// I4 and I5: one delivery per alert and contact, with the outcome that its receiver chose, and at least one
    /// arrival.
    async fn compare_deliveries(self, alerts: &[Alert], tally: &ExpectedTotal, model: &StreamModel) {
        self.mails_end.cancel();
        let mails = self.mails.await.expect("the mail server ends well");
        let arrived = self.receiver.arrived();
        let stored = {
            let names: BTreeSet<String> = self.outbox.run("KEYS", "quota_delivery:{usage}:*").await;
            names
        };
        assert_eq!(self.receiver.faults(), Vec::<String>::new());
        let (mut expected, mut delivered, mut dead, mut reopened, mut expired) = (BTreeSet::new(), 0, 0, 0, 0);
        let now = self.outbox.client.server_time().await.expect("redis answers");
        let (mut letters, mut resent, mut cut_off) = (BTreeSet::new(), 0, 0);
        for alert in alerts {
            if self.traffic.customers.iter().any(|c| c.subject == alert.subject.as_str() && c.contacts == 0) {
                // The delivery that waited for a contact ended when the contact was added.
                let waited = support::outbox::waiting_delivery(alert);
                expected.insert(self.outbox.keys.delivery(&waited));
                let state = self.outbox.state(&waited).await;
                if state == "expired" && is_too_old(alert, now) {
                    expired += 1;
                    continue;
                }
                assert_eq!(state, "cancelled");
                reopened += 1;
            }
            for contact in &self.contacts[alert.subject.as_str()] {
                let id = DeliveryId::derive(&alert.id, &ContactId::from_stored(&contact.id));
                expected.insert(self.outbox.keys.delivery(&id));
                let detail = quotabell::views::deliveries::show(&self.outbox.partition(), &[], &id).await;
                let detail = detail.expect("redis answers");
                let detail = detail.unwrap_or_else(|| panic!("no delivery {id} of {alert:?}"));
                let logged = detail.attempt_log.len() as u64;
                let attempts = u64::from(detail.delivery.attempts);
                // A delivery whose first attempt a kill interrupted may have been sent, so it is sent again.
                let is_first = attempts <= 1;
                let letter = support::contact_receiver::AlertAtContact {
                    contact: contact.id.clone(),
                    alert: alert.id.to_string(),
                };
                // A credit may have ended the alert before its receiver accepted an attempt.
                let may_have_ended = model.credited.contains(&reached_of(alert).counter);
                if detail.delivery.state == DeliveryState::Expired && may_have_ended {
                    assert!(detail.attempt_log.iter().all(|attempt| attempt.outcome == "transient"), "{detail:?}");
                    letters.extend(arrived.get(&letter).map(|_| format!("{letter:?}")));
                    expired += 1;
                    continue;
                }
                if is_first && is_too_old(alert, alert.raised_at_ms) || detail.delivery.state == DeliveryState::Expired
                {
                    assert_eq!((detail.delivery.state, logged), (DeliveryState::Expired, 0), "{detail:?}");
                    assert!(is_too_old(alert, now), "{detail:?}");
                    expired += 1;
                    continue;
                }
                let refused = contact.kind == Kind::Webhook(AnswerMode::Refuses);
                assert_eq!(detail.delivery.state.as_str(), if refused { "dead" } else { "delivered" }, "{detail:?}");
                delivered += u64::from(!refused);
                dead += u64::from(refused);
                let requests = match contact.kind {
                    Kind::Email => {
                        // What one commit raised is one email.
                        let message =
                            format!("<{}@example.com>", detail.delivery.sent_in.as_deref().unwrap_or(id.as_str()));
                        let texts = mails.get(&message).map_or(&[][..], Vec::as_slice);
                        let told =
                            format!("{} of {} {}", grouped(alert.used, ","), grouped(alert.limit, ","), alert.metric);
                        assert!(texts.iter().all(|text| text.contains(&told)), "{told}: {texts:?}");
                        letters.insert(message);
                        texts.len() as u64
                    }
                    Kind::Webhook(mode) => {
                        let got = arrived.get(&letter).unwrap_or_else(|| panic!("{letter:?} never arrived"));
                        compare_body(&got.body, alert);
                        letters.insert(format!("{letter:?}"));
                        assert!(mode != AnswerMode::Flaky || got.requests > 1, "a failed attempt was repeated");
                        got.requests
                    }
                };
                // A recorded attempt took place, and an attempt that took place was leased.
                assert!(1 <= logged && logged <= requests && requests <= attempts, "{requests} requests: {detail:?}");
                let ends = detail.attempt_log.iter().filter(|attempt| attempt.outcome != "transient").count();
                assert_eq!(ends, 1, "success is recorded once: {detail:?}");
                resent += requests - logged;
                cut_off += attempts - logged;
            }
        }
        assert_eq!(stored, expected, "no delivery but these");
        let letters = letters.len();
        assert_eq!(arrived.len() + mails.len(), letters, "nothing arrived that was not due");
        compare_log(&self.outbox, alerts, [("delivered", delivered), ("dead", dead), ("cancelled", reopened)]).await;
        let totals = self.outbox.assert_balanced().await;
        assert_eq!(
            (totals.delivered, totals.dead, totals.cancelled, totals.expired, totals.pending),
            (delivered, dead, reopened, expired, 0)
        );
        // An unsettled lease belongs to a killed daemon.
        assert!(resent <= cut_off);
        eprintln!(
            "{} kills ({} before ready, {} beside a second daemon, {} with uncounted events, {} with alerts in the outbox, {} with an open lease)",
            tally.kills,
            tally.before_ready,
            tally.of_two,
            tally.with_backlog,
            tally.with_alerts_in_outbox,
            tally.with_an_open_lease
        );
        eprintln!(
            "{} events: {} counted, {} duplicates, {} refused; {} alerts, {letters} messages ({delivered} delivered, {dead} dead, {reopened} had waited for a contact), {expired} of hours long over or ended",
            model.entries,
            model.counted,
            model.duplicates,
            model.refused.len(),
            alerts.len()
        );
        eprintln!(
            "{cut_off} attempts cut off by a kill, {resent} of them after the message had been taken: sent again with the same id"
        );
        assert!(tally.kills >= 200 && tally.with_backlog > 50 && tally.with_an_open_lease > 3, "{tally:?}");
        assert!(alerts.len() > 100 && model.entries > 5_000, "too little happened");
    }
}

/// The log has each alert once, and each end once.
async fn compare_log(outbox: &Outbox, alerts: &[Alert], ends: [(&str, u64); 3]) {
    let filter = LogFilter { since: UnixMs(0), until: UnixMs(i64::MAX), subject: None };
    let plans = Config::defaults().expect("valid").plans().expect("legal");
    let mut reader = LogReader::begin(outbox.partition(), filter, plans).await.expect("redis answers");
    let mut logged = Vec::new();
    while let Some(some) = reader.next().await.expect("redis answers") {
        logged.extend(some.into_iter().filter_map(|one| match one {
            LoggedNotification::Alert(alert) => Some(alert),
            LoggedNotification::Notice(_) => None,
        }));
    }
    let mut ids: Vec<&str> = logged.iter().filter_map(|logged| logged.alert["id"].as_str()).collect();
    ids.sort_unstable();
    let mut expected: Vec<&str> = alerts.iter().map(|alert| alert.id.as_str()).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    for (state, count) in ends {
        let of_state = logged.iter().flat_map(|logged| &logged.deliveries).filter(|end| end.state == state);
        assert_eq!(of_state.count() as u64, count, "{state}");
    }
}

/// Whether an hourly alert may no longer be sent: the events came more than two hours after the end of its hour.
fn is_too_old(alert: &Alert, now: UnixMs) -> bool {
    alert.window == Window::Hour && now >= alert.resets_at.expect("an hour ends").0.plus(2 * 3_600_000)
}

fn compare_body(body: &serde_json::Value, alert: &Alert) {
    assert_eq!(body["type"], "quota.threshold_reached");
    let data = &body["data"];
    assert_eq!(data["subject"], alert.subject.as_str());
    assert_eq!(data["metric"], alert.metric.as_str());
    let percent = alert.threshold.percent().map(|percent| percent.get().into());
    assert_eq!(data.get("threshold_percent"), percent.as_ref());
    let threshold = serde_json::to_value(AlertThreshold::from(alert.threshold)).expect("JSON");
    assert_eq!(data["threshold"], threshold);
    assert_eq!(data["used"], alert.used);
    assert_eq!(data["limit"], alert.limit);
    assert_eq!((&data["window"], &data["period"]), (&alert.window.as_str().into(), &alert.period.to_string().into()));
    assert_eq!(data["timezone"], alert.timezone);
}

fn pipeline(stream: &str, events: &[Event]) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for event in events {
        pipeline.cmd("XADD").arg(stream).arg("*");
        for field in &event.fields {
            pipeline.arg(field.name).arg(&field.value);
        }
    }
    pipeline
}

fn subject_key(subject: &str) -> String {
    quotabell::types::Keys::new("usage").subject(&support::outbox::subject(subject))
}

fn json_of(contacts: &[Contact]) -> String {
    serde_json::Value::from_iter(contacts.iter().map(|contact| contact.json.clone())).to_string()
}
