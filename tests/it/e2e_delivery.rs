//! From XADD to the mailbox and the receiver, on the real binary: what arrives, how often, with which id, and the
//! effect of changes in Redis.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::support::binary::quotabell;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::mail_server::ParsedMail;
use crate::support::name_server::{Knows, NameServer};
use crate::support::outbox::{Outbox, subject};
use crate::support::receivers::{Answer, CaughtMail, CaughtRequest, HttpCatcher, SmtpCatcher, SmtpSetup};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::{Verified, secret, verify};
use quotabell::outbox::{ActionReply, DeliveryAction, act};
use quotabell::types::{AlertId, AlertKey, DeliveryId, DeploymentId};
use quotabell::views::DeliveryDetailView;
use quotabell::views::deliveries::show;
use tokio_util::sync::CancellationToken;

/// A Redis with a receiver and a mail server for one test.
struct DeliverySetting {
    outbox: Outbox,
    receiver: HttpCatcher,
    mailbox: SmtpCatcher,
    setup: DaemonSetup,
}

impl DeliverySetting {
    /// The receiver answers with these statuses in order, then 204.
    async fn found(answers: impl IntoIterator<Item = Answer>) -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let receiver = HttpCatcher::start(answers).await.expect("a receiver");
        let mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#)
            .env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url());
        Self { outbox, receiver, mailbox, setup }
    }

    fn webhook(&self, id: &str) -> serde_json::Value {
        serde_json::json!({"id": id, "channel": "webhook", "url": self.receiver.url("/hook"), "secret": secret(7)})
    }

    async fn hset(&self, of: &str, field: &str, value: &str) {
        let key = quotabell::types::Keys::new("usage").subject(&subject(of));
        let _: u64 = self.outbox.run("HSET", &[key.as_str(), field, value]).await;
    }

    async fn reach(&self, of: &str, webhook_id: &str) {
        let contacts = serde_json::Value::from(vec![self.webhook(webhook_id)]);
        self.hset(of, "contacts", &contacts.to_string()).await;
    }

    async fn add(&self, of: &str, units: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", of, "units", &units.to_string()]).await;
    }

    async fn request(&mut self) -> Verified {
        let request: CaughtRequest =
            tokio::time::timeout(WAIT_MAX, self.receiver.next()).await.expect("a request in time");
        verify(&request, &secret(7))
    }

    async fn mail(&mut self) -> CaughtMail {
        tokio::time::timeout(WAIT_MAX, self.mailbox.next()).await.expect("a mail in time")
    }

    /// The ids of all deliveries.
    async fn deliveries(&self) -> Vec<DeliveryId> {
        let ids: Vec<String> = self.outbox.run("ZRANGE", &[self.outbox.keys.deliveries().as_str(), "0", "-1"]).await;
        ids.iter().map(|id| DeliveryId::from_stored(id)).collect()
    }

    /// The alert's id, computed again from the receiver's data.
    async fn alert_id(&self, body: &serde_json::Value) -> AlertId {
        let text = |field: &str| body["data"][field].as_str().expect("text").to_owned();
        let instance: String = self.outbox.run("HGET", &[&self.outbox.keys.checkpoint(), "instance"]).await;
        let (subject, metric) = (subject(&text("subject")), text("metric").parse().expect("legal"));
        let (threshold, period) = ("80".parse().expect("legal"), text("period").parse().expect("a period"));
        let key = AlertKey { subject: &subject, metric: &metric, period, threshold, units: 80 };
        AlertId::derive(&DeploymentId::from_stored(&instance), &key)
    }

    /// Waits until this delivery has this state, and reads it with its attempts.
    async fn ended(&self, id: &DeliveryId, state: &str) -> DeliveryDetailView {
        eventually(state, || async { (self.outbox.state(id).await == state).then_some(()) }).await;
        show(&self.outbox.partition(), &[], id).await.expect("redis answers").expect("it is there")
    }
}

/// Status and outcome of each attempt, oldest first.
fn log_of(detail: &DeliveryDetailView) -> Vec<(Option<u16>, &str)> {
    detail.attempt_log.iter().map(|attempt| (attempt.status, attempt.outcome.as_str())).collect()
}

/// The whole promise: counted, crossed, emailed and posted, signed, once.
#[tokio::test]
async fn a_crossing_reaches_the_mailbox_and_the_receiver_once() {
    let mut setting = DeliverySetting::found([]).await;
    let email = serde_json::json!({"id": "m", "channel": "email", "address": "alice@b.test"});
    let contacts = serde_json::Value::from(vec![email, setting.webhook("w")]);
    setting.hset("alice", "contacts", &contacts.to_string()).await;
    setting.hset("alice", "timezone", "Asia/Ho_Chi_Minh").await;
    let daemon = setting.setup.start().await;
    setting.add("alice", 79).await;
    setting.add("alice", 1).await;

    let Verified { id, body } = setting.request().await;
    assert!(id.starts_with("alert_") && id.len() == 38, "{id}");
    assert_eq!(body["type"], "quota.threshold_reached");
    let data = &body["data"];
    assert_eq!(data["subject"], "alice");
    assert_eq!(data["metric"], "requests");
    assert_eq!((&data["threshold_percent"], &data["used"], &data["limit"]), (&80.into(), &80.into(), &100.into()));
    assert_eq!(data["used_percent"], 80.0);
    assert_eq!((&data["plan"], &data["timezone"]), (&"free".into(), &"Asia/Ho_Chi_Minh".into()));
    let resets_at = data["resets_at"].as_str().expect("text");
    assert!(resets_at.ends_with("T17:00:00Z"), "midnight in Ho Chi Minh City: {resets_at}");

    let mail = setting.mail().await;
    assert_eq!(
        (mail.from.as_str(), mail.to.as_slice()),
        ("alerts@example.com", ["alice@b.test".to_owned()].as_slice())
    );
    let parsed = ParsedMail::parse(&mail.text());
    assert_eq!(parsed.header("To"), "alice@b.test");
    assert_eq!(parsed.header("From"), "quotabell <alerts@example.com>");
    let line = parsed.header("Subject");
    assert!(line.contains("alice") && line.contains("80") && line.contains("requests"), "{line}");
    assert_eq!(parsed.header("Auto-Submitted"), "auto-generated");
    let message_id = parsed.header("Message-ID");
    let delivery = message_id.strip_prefix('<').and_then(|id| id.strip_suffix("@example.com>")).expect("our form");
    let kinds: Vec<&str> = parsed.parts.iter().map(|part| part.content_type.split(';').next().expect("one")).collect();
    assert_eq!(kinds, ["text/plain", "text/html"]);
    for part in &parsed.parts {
        assert!(part.content.contains("alice") && part.content.contains("80"), "{}", part.content);
    }

    for id in setting.deliveries().await {
        let detail = setting.ended(&id, "delivered").await;
        assert_eq!(detail.attempt_log.len(), 1);
        assert_eq!(detail.delivery.alert_id, Some(setting.alert_id(&body).await));
        if detail.delivery.channel.as_str() == "email" {
            assert_eq!(id.as_str(), delivery);
        }
    }
    // More usage raises the next threshold, and nothing twice.
    setting.add("alice", 5).await;
    setting.add("alice", 40).await;
    let second = setting.request().await;
    assert_eq!(second.body["data"]["threshold_percent"], 100);
    assert_ne!(second.id, id);
    assert!(ParsedMail::parse(&setting.mail().await.text()).header("Subject").contains("100"));
    eventually("both are settled", || async { (setting.outbox.totals().await.delivered == 4).then_some(()) }).await;
    daemon.drain().await;
    assert!(setting.receiver.try_next().is_none() && setting.mailbox.try_next().is_none());
    assert_eq!(setting.outbox.assert_balanced().await.raised, 2);
}

/// A receiver that was down gets its alert later, and can recognize it.
#[tokio::test]
async fn a_receiver_that_recovers_gets_the_same_alert_and_every_attempt_is_logged() {
    let mut setting = DeliverySetting::found([Answer::status(503), Answer::status(503)]).await;
    setting.reach("alice", "w").await;
    let daemon = setting.setup.start().await;
    setting.add("alice", 80).await;
    let tries = [setting.request().await, setting.request().await, setting.request().await];
    assert!(tries.iter().all(|one| one.id == tries[0].id && one.body == tries[0].body), "{tries:?}");
    let id = setting.deliveries().await.remove(0);
    let detail = setting.ended(&id, "delivered").await;
    assert_eq!(log_of(&detail), [(Some(503), "transient"), (Some(503), "transient"), (Some(204), "delivered")]);
    let times: Vec<i64> = detail.attempt_log.iter().map(|attempt| attempt.at.0.0).collect();
    // The configured delays of 50 ms and 200 ms, minus a fifth.
    assert!(times[1] - times[0] >= 40 && times[2] - times[1] >= 160, "{times:?}");
    daemon.drain().await;
    assert!(setting.receiver.try_next().is_none());
}

/// A delivery that a receiver refused is not repeated; a replay by the operator sends the same alert again, not a new
/// one.
#[tokio::test]
async fn a_webhook_that_is_dropped_ends_dead_and_a_replay_delivers_the_same_id() {
    let mut setting = DeliverySetting::found([Answer::status(422).header("webhook-delivery", "abort-message")]).await;
    setting.reach("alice", "w").await;
    let daemon = setting.setup.start().await;
    setting.add("alice", 80).await;
    let first = setting.request().await;
    let id = setting.deliveries().await.remove(0);
    let dead = setting.ended(&id, "dead").await;
    assert_eq!(log_of(&dead), [(Some(422), "permanent")]);
    assert_eq!(setting.outbox.assert_balanced().await.dead, 1);

    let ids = std::slice::from_ref(&id);
    let answers =
        act(&setting.outbox.client, &setting.outbox.keys, DeliveryAction::Replay, ids).await.expect("redis answers");
    assert_eq!(answers[0], ActionReply::Done);
    let second = setting.request().await;
    assert_eq!((&second.id, &second.body), (&first.id, &first.body));
    let detail = setting.ended(&id, "delivered").await;
    assert_eq!(log_of(&detail), [(Some(422), "permanent"), (Some(204), "delivered")]);
    let totals = setting.outbox.assert_balanced().await;
    assert_eq!((totals.delivered, totals.dead, totals.dead_kept), (1, 0, 0));
    daemon.drain().await;
}

/// This product exists for the crash between crossing and delivery.
#[tokio::test]
async fn killed_between_crossing_and_delivery_the_next_start_delivers_the_same_id() {
    let gate = CancellationToken::new();
    let mut setting = DeliverySetting::found([Answer::status(204).held_by(&gate)]).await;
    setting.reach("alice", "w").await;
    // The lease is five seconds longer.
    setting.setup = setting.setup.clone().env("QUOTABELL__WEBHOOK__TIMEOUT", "500ms");
    let daemon = setting.setup.start().await;
    setting.add("alice", 80).await;
    let first = setting.request().await;
    daemon.kill().await;
    gate.cancel();
    setting.add("alice", 1).await;
    let totals = setting.outbox.assert_balanced().await;
    assert_eq!((totals.raised, totals.delivered, totals.pending), (1, 0, 1));

    let daemon = setting.setup.start().await;
    let second = setting.request().await;
    assert_eq!((&second.id, &second.body), (&first.id, &first.body));
    let id = setting.deliveries().await.remove(0);
    let detail = setting.ended(&id, "delivered").await;
    // The first attempt was counted at its lease; its outcome was lost with the daemon.
    assert_eq!((detail.delivery.attempts, log_of(&detail)), (2, vec![(Some(204), "delivered")]));
    daemon.drain().await;
    assert!(setting.receiver.try_next().is_none());
    assert_eq!(setting.outbox.assert_balanced().await.raised, 1);
}

/// Two daemons share the work; a customer must not get both messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_at_once_deliver_each_alert_once() {
    const SUBJECTS: usize = 60;
    let mut setting = DeliverySetting::found([]).await;
    for number in 0..SUBJECTS {
        setting.reach(&format!("s{number}"), "w").await;
    }
    let (first, second) = tokio::join!(setting.setup.start(), setting.setup.start());
    for units in [50, 30, 20, 7] {
        for number in 0..SUBJECTS {
            setting.add(&format!("s{number}"), units).await;
        }
    }
    let expected = 2 * SUBJECTS as u64;
    eventually("all is delivered", || async { (setting.outbox.totals().await.delivered == expected).then_some(()) })
        .await;
    first.drain().await;
    second.drain().await;
    let mut heard: BTreeMap<String, u32> = BTreeMap::new();
    while let Some(request) = setting.receiver.try_next() {
        *heard.entry(verify(&request, &secret(7)).id).or_default() += 1;
    }
    assert_eq!(heard.len() as u64, expected);
    assert!(heard.values().all(|times| *times == 1), "{heard:?}");
    let totals = setting.outbox.assert_balanced().await;
    assert_eq!((totals.raised, totals.made, totals.counted), (expected, expected, 4 * SUBJECTS as u64));
}

/// An alert without a contact waits and is logged; it is sent when the platform adds a contact by HSET.
#[tokio::test]
async fn a_contact_that_comes_later_gets_the_waiting_alert_within_seconds() {
    let mut setting = DeliverySetting::found([]).await;
    let mut daemon = setting.setup.start().await;
    setting.add("alice", 80).await;
    eventually("it waits", || async { (setting.outbox.totals().await.waiting == 1).then_some(()) }).await;
    daemon.says("ERROR").await;
    let before = setting.outbox.totals().await.now;
    setting.reach("alice", "w").await;
    let request = setting.request().await;
    assert_eq!(request.body["data"]["subject"], "alice");
    let took_ms = setting.outbox.totals().await.now.0 - before.0;
    assert!(took_ms < 5_000, "{took_ms} ms");
    eventually("it is settled", || async { (setting.outbox.totals().await.delivered == 1).then_some(()) }).await;
    let totals = setting.outbox.assert_balanced().await;
    assert_eq!((totals.cancelled, totals.waiting, totals.pending), (1, 0, 0));
    daemon.drain().await;
}

/// A changed plan must take effect within a second.
#[tokio::test]
async fn a_limit_changed_by_hset_takes_effect_within_a_second() {
    let mut setting = DeliverySetting::found([]).await;
    setting.reach("alice", "w").await;
    setting.hset("alice", "limit:requests", "1000000").await;
    let daemon = setting.setup.start().await;
    setting.add("alice", 500).await;
    eventually("it is counted", || async { (setting.outbox.totals().await.counted == 1).then_some(()) }).await;
    assert_eq!(setting.outbox.totals().await.raised, 0);
    let changed = setting.outbox.totals().await.now;
    setting.hset("alice", "limit:requests", "600").await;
    // It takes effect with the subject's next event after the change was noticed.
    for events in 2_u64.. {
        setting.add("alice", 1).await;
        eventually("it is counted", || async { (setting.outbox.totals().await.counted == events).then_some(()) }).await;
        let totals = setting.outbox.totals().await;
        if totals.raised > 0 {
            break;
        }
        assert!(totals.now.0 - changed.0 <= 1_000, "not noticed after {events} events");
    }
    let request = setting.request().await;
    assert_eq!((&request.body["data"]["limit"], &request.body["data"]["threshold_percent"]), (&600.into(), &80.into()));
    daemon.drain().await;
}

/// A pause over a long weekend used to make the next failure the last one.
#[tokio::test]
async fn the_time_of_a_pause_ends_no_delivery() {
    let setting = DeliverySetting::found([Answer::status(503), Answer::status(503)]).await;
    let outbox = &setting.outbox;
    setting.reach("alice", "a").await;
    let setup = setting.setup.clone().env("QUOTABELL__RETRY__FIRST", "1h").env("QUOTABELL__RETRY__MAX_INTERVAL", "2h");
    let daemon = setup.env("QUOTABELL__RETRY__GIVE_UP_AFTER", "1d").start().await;
    setting.add("alice", 80).await;
    let id = eventually("the first attempt failed", || async {
        let id = DeliveryId::from_stored(outbox.queued().await.first()?);
        outbox.field(&id, "attempt:1").await.map(|_| id)
    })
    .await;
    let command = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&outbox.server.url()).run();
    command(&["deliveries", "pause"]).expect_done();
    // As if the attempt and the pause had been four days ago.
    let four_days_ago = (outbox.totals().await.now.0 - 4 * 86_400_000).to_string();
    let key = outbox.keys.delivery(&id);
    let _: u64 = outbox.run("HSET", &[key.as_str(), "first_attempt_at_ms", &four_days_ago]).await;
    let _: u64 = outbox.run("HSET", &[outbox.keys.paused().as_str(), "since_ms", &four_days_ago]).await;
    // A second pause keeps the start of the first.
    command(&["deliveries", "pause", "--reason", "still moving"]).expect_done();
    command(&["deliveries", "resume"]).expect_done();
    command(&["deliveries", "retry", id.as_str()]).expect_done();
    eventually("the second attempt failed", || outbox.field(&id, "attempt:2")).await;
    assert_eq!(outbox.state(&id).await, "pending");
    let why = command(&["explain", id.as_str()]).expect_done();
    assert!(why.contains("It is dead when an attempt"), "{why}");
    command(&["deliveries", "retry", id.as_str()]).expect_done();
    eventually("it is delivered", || async { (outbox.totals().await.delivered == 1).then_some(()) }).await;
    daemon.drain().await;
}

/// During an attempt the output used to say that the next one was due in twenty seconds.
#[tokio::test]
async fn a_delivery_that_is_being_attempted_is_shown_as_that() {
    let gate = CancellationToken::new();
    let mut setting = DeliverySetting::found([Answer::status(204).held_by(&gate)]).await;
    setting.reach("alice", "a").await;
    let daemon = setting.setup.start().await;
    setting.add("alice", 80).await;
    setting.request().await;
    let url = setting.outbox.server.url();
    let command = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run().expect_done();
    let list = command(&["deliveries", "list"]);
    assert!(list.contains("attempted now"), "{list}");
    let id = setting.outbox.queued().await.first().expect("one is leased").clone();
    let shown = command(&["deliveries", "show", &id]);
    assert!(shown.contains("it is being attempted"), "{shown}");
    gate.cancel();
    daemon.drain().await;
}

/// Errors such as `connect: failed` or `DNS: no answer` mislead if the daemon has no file descriptors left. A hosts
/// file that could not be opened used to count as empty until it changed.
#[tokio::test]
async fn an_attempt_without_a_file_descriptor_says_so() {
    let setting = DeliverySetting::found([]).await;
    let names = NameServer::start(|name| match name {
        "here.test" => Knows::Addresses(vec![Ipv4Addr::LOCALHOST.into()]),
        _ => Knows::Nothing,
    })
    .await;
    let subjects = [("alice", "127.0.0.1"), ("bob", "localhost"), ("carol", "here.test")];
    for (of, host) in subjects {
        let url = format!("http://{host}:{}/hook", setting.receiver.address().port());
        let contact = serde_json::json!([{"id": "a", "channel": "webhook", "url": url, "secret": secret(7)}]);
        setting.hset(of, "contacts", &contact.to_string()).await;
    }
    let setup = setting.setup.clone().env("QUOTABELL__DNS__SERVERS", &names.setting());
    let mut daemon = setup.descriptors(64).start().await;
    let address = daemon.http().await;
    // Its connections to Redis exist.
    setting.add("alice", 1).await;
    eventually("it counts", || async { (setting.outbox.totals().await.counted == 1).then_some(()) }).await;
    let mut callers = Vec::new();
    for _ in 0..80 {
        callers.push(tokio::net::TcpStream::connect(address).await.expect("the system takes it"));
    }
    daemon.says("http accepts no connection").await;
    for (of, _) in subjects {
        setting.add(of, 80).await;
    }
    for (of, _) in subjects {
        let line = daemon.says(&format!("attempt failed subject=\"{of}\"")).await;
        assert!(line.contains("this machine: too many open files"), "{line}");
    }
    drop(callers);
    eventually("all are delivered", || async { (setting.outbox.totals().await.delivered == 3).then_some(()) }).await;
    daemon.drain().await;
}

/// Without it, nobody finds the request that used up the quota among the millions before it.
#[tokio::test]
async fn the_trace_of_the_event_that_crosses_goes_with_the_alert() {
    let mut setting = DeliverySetting::found([]).await;
    setting.reach("alice", "w").await;
    let mut daemon = setting.setup.start().await;
    let trace = |number: u8| format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b{number}-01");
    for (units, traceparent) in [("50", trace(1)), ("30", trace(2)), ("1", trace(3)), ("19", "00-broken".to_owned())] {
        let event = ["usage", "*", "subject", "alice", "units", units, "traceparent", &traceparent];
        let _: String = setting.outbox.run("XADD", &event).await;
    }
    let mut seen = BTreeMap::new();
    for _ in 0..2 {
        let request = tokio::time::timeout(WAIT_MAX, setting.receiver.next()).await.expect("a request in time");
        let body = verify(&request, &secret(7)).body;
        let header = request.headers.get("traceparent").map(|value| value.to_str().expect("text").to_owned());
        seen.insert(body["data"]["threshold_percent"].as_u64(), header);
    }
    assert_eq!(seen, BTreeMap::from([(Some(80), Some(trace(2))), (Some(100), None)]));
    daemon.says(&format!("traceparent={}", trace(2))).await;
    daemon.drain().await;
}
