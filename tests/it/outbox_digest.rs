//! The operator's daily digest: created once by any daemon.

use std::sync::Arc;

use crate::support::receivers::{HttpCatcher, SmtpCatcher, SmtpSetup};
use quotabell::contacts::resolver::ContactResolver;
use quotabell::contacts::{Contact, OperatorContact};
use quotabell::outbox::forget::forget_deliveries;
use quotabell::outbox::subject_deliveries::deliveries_of;
use quotabell::outbox::{DigestLoop, NewDeliveries, Settlement};
use quotabell::redis_client::Partitions;
use quotabell::types::daily::{DailyTime, DigestTime};
use quotabell::types::{DeliveryId, OutcomeClass, UnixMs};
use serde_json::Value;

use crate::support::daemon::DaemonSetup;
use crate::support::eventually::WAIT_MAX;
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::{LONG, Outbox, alert, email, outcome, settle, subject, webhook};
use crate::support::webhook_receiver::{secret, verify};

const DAY_MS: i64 = 86_400_000;

fn operator(contact: Contact, notices: bool) -> OperatorContact {
    OperatorContact { contact, plans: Vec::new(), notices }
}

/// The loop of one daemon with its own client.
fn digests(outbox: &Outbox) -> DigestLoop {
    let contacts = [operator(email("ops"), true), operator(webhook("ops"), true), operator(email("quiet"), false)];
    let DigestTime::At(time) = "08:00".parse().expect("legal") else { panic!("a time") };
    DigestLoop {
        partitions: Partitions::new(&outbox.server.client(), &outbox.keys),
        contacts: Arc::new(ContactResolver::new(outbox.keys.clone(), Vec::new()).with_operator(&contacts)),
        daily: DailyTime { time, zone: quotabell::zones::Zone::UTC },
        new_deliveries: NewDeliveries::new(1),
    }
}

/// All digests with the contacts that get them.
async fn made(outbox: &Outbox) -> Vec<(String, Value)> {
    let ids: Vec<String> = outbox.run("ZRANGE", &[outbox.keys.deliveries().as_str(), "0", "-1"]).await;
    let mut made = Vec::new();
    for id in ids.iter().map(|id| DeliveryId::from_stored(id)) {
        if outbox.field(&id, "type").await.as_deref() == Some("digest") {
            let contact = outbox.field(&id, "contact_id").await.expect("a contact");
            let json = outbox.field(&id, "digest").await.expect("a digest");
            made.push((contact, serde_json::from_str::<Value>(&json).expect("JSON")));
        }
    }
    made.sort_by_key(|(contact, digest)| (contact.clone(), digest["until_ms"].as_i64()));
    made
}

/// A delivery of this subject that is given up now.
async fn given_up(outbox: &Outbox, name: &str) {
    outbox.fan_out_new(&alert(&subject(name), 80), &[email(name)]).await;
    let leased = outbox.lease_one(name, LONG).await;
    let dead = Settlement::Dead(outcome(OutcomeClass::Permanent));
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &dead).await.expect("settles");
}

/// Two daemons create it at the same moment, and one restarts later: each contact gets one a day.
#[tokio::test]
async fn a_day_has_one_digest_however_many_make_it() {
    let outbox = Outbox::start();
    let (one, other) = (digests(&outbox), digests(&outbox));
    let now = outbox.client.server_time().await.expect("redis answers");
    one.make(now).await.expect("redis answers");
    assert_eq!(made(&outbox).await, [], "nothing was given up, and nothing waits");

    for name in ["a", "b"] {
        given_up(&outbox, name).await;
    }
    for name in ["x", "y", "x2"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[]).await;
    }
    outbox.fan_out_new(&alert(&subject("x"), 100), &[]).await;
    let (_, until) = one.daily.last_two(now.plus(DAY_MS)).expect("a calendar");
    for _ in 0..3 {
        let both = tokio::join!(one.make(until), other.make(until.plus(1000)));
        assert!(both.0.is_ok() && both.1.is_ok());
    }
    let today = made(&outbox).await;
    let contacts: Vec<&str> = today.iter().map(|(contact, _)| contact.as_str()).collect();
    let mut expected = [email("ops"), webhook("ops")].map(|contact| contact.id.of_operator().to_string());
    expected.sort();
    assert_eq!(contacts, expected);
    let digest = &today[0].1;
    assert_eq!((&digest["dead"], &digest["waiting"]), (&2.into(), &4.into()));
    assert_eq!(digest["until_ms"], until.0);
    let dead: Vec<&Value> =
        digest["dead_first"].as_array().expect("a list").iter().map(|one| &one["subject"]).collect();
    assert_eq!(dead, ["a", "b"]);
    assert_eq!(digest["dead_first"][0]["error"], "receiver answered 503");
    assert_eq!(digest["waiting_first"], serde_json::json!(["x", "x2", "y"]));

    // The next day's digest lists the deliveries that died since, and those that still wait.
    one.make(until.plus(DAY_MS)).await.expect("redis answers");
    let both_days = made(&outbox).await;
    assert_eq!(both_days.len(), 4);
    assert_eq!((&both_days[1].1["dead"], &both_days[1].1["waiting"]), (&0.into(), &4.into()));
    outbox.assert_balanced().await;
}

/// Deliveries given up while no daemon ran for days must be reported too, and nothing twice.
#[tokio::test]
async fn after_days_without_a_daemon_one_digest_tells_of_all_of_them() {
    let outbox = Outbox::start();
    let (digests, now) = (digests(&outbox), outbox.client.server_time().await.expect("redis answers"));
    let (_, first) = digests.daily.last_two(now).expect("a calendar");
    // Nothing had happened, and that was a digest too.
    digests.make(now).await.expect("redis answers");
    given_up(&outbox, "a").await;
    let spans = || async {
        let made = made(&outbox).await;
        // Each of two contacts gets it.
        assert_eq!(made.len() % 2, 0);
        let number = |digest: &Value, field: &str| digest[field].as_i64().expect("a number");
        let half = made
            .iter()
            .take(made.len() / 2)
            .map(|(_, digest)| (number(digest, "from_ms"), number(digest, "until_ms"), number(digest, "dead")));
        half.collect::<Vec<_>>()
    };
    let days = |days: i64| first.plus(days * DAY_MS).0;
    digests.make(now.plus(3 * DAY_MS)).await.expect("redis answers");
    assert_eq!(spans().await, [(days(0), days(3), 1)]);
    // No daemon goes back, even with a wrong time.
    digests.make(now.plus(2 * DAY_MS)).await.expect("redis answers");
    outbox.fan_out_new(&alert(&subject("x"), 80), &[]).await;
    digests.make(now.plus(4 * DAY_MS)).await.expect("redis answers");
    assert_eq!(spans().await, [(days(0), days(3), 1), (days(3), days(4), 0)]);
}

/// An erasure that looked for digests before this one was stored must not leave a name in it, even if the daemon that
/// created it died.
#[tokio::test]
async fn a_subject_that_is_erased_while_a_digest_is_made_is_not_named() {
    let outbox = Outbox::start();
    let (digests, now) = (digests(&outbox), outbox.client.server_time().await.expect("redis answers").plus(DAY_MS));
    given_up(&outbox, "gone").await;
    given_up(&outbox, "stays").await;
    for name in ["gone too", "stays too"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[]).await;
    }
    digests.make(now).await.expect("redis answers");
    let partition = outbox.partition();
    for name in ["gone", "gone too"].map(subject) {
        let ids = deliveries_of(&partition, Some(&name)).await.expect("redis answers");
        assert_eq!(forget_deliveries(&partition, &name, &ids).await.expect("redis answers").removed, 1);
    }
    let _: u64 = outbox.run("DEL", outbox.keys.digest()).await;
    digests.make(now).await.expect("redis answers");
    for (_, digest) in made(&outbox).await {
        let dead = digest["dead_first"].as_array().expect("a list").iter().map(|one| &one["subject"]);
        assert_eq!(dead.collect::<Vec<_>>(), ["stays"]);
        assert_eq!(digest["waiting_first"], serde_json::json!(["stays too"]));
        assert_eq!((&digest["dead"], &digest["waiting"]), (&2.into(), &2.into()));
    }
}

/// Thousands of dead deliveries must fit one short email.
#[tokio::test]
async fn a_digest_names_the_first_twenty() {
    let outbox = Outbox::start();
    for n in 0..25 {
        given_up(&outbox, &format!("s{n:02}")).await;
        outbox.fan_out_new(&alert(&subject(&format!("w{n:02}")), 80), &[]).await;
    }
    let now: UnixMs = outbox.client.server_time().await.expect("redis answers");
    digests(&outbox).make(now.plus(DAY_MS)).await.expect("redis answers");
    let digest = made(&outbox).await.remove(0).1;
    let named = |field: &str| digest[field].as_array().expect("a list").len();
    assert_eq!((&digest["dead"], named("dead_first")), (&25.into(), 20));
    assert_eq!((&digest["waiting"], named("waiting_first")), (&25.into(), 20));
}

/// A daemon that starts after the due time creates it later, and both channels can send it.
#[tokio::test]
async fn the_digest_reaches_the_operator() {
    let outbox = Outbox::start();
    outbox.fan_out_new(&alert(&subject("alice"), 80), &[]).await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let mut mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let contacts = serde_json::json!([
        {"channel": "email", "address": "ops@b.test"},
        {"channel": "webhook", "url": receiver.url("/ops"), "secret": secret(8)},
    ]);
    let daemon = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__OPERATOR__CONTACTS", &contacts.to_string())
        .env("QUOTABELL__OPERATOR__DIGEST", "00:00")
        .env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url())
        .start()
        .await;
    let request = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    let body = verify(&request, &secret(8)).body;
    assert_eq!((&body["type"], &body["data"]["waiting"]), (&"operator.digest".into(), &1.into()));
    assert_eq!(body["data"]["waiting_first"], serde_json::json!(["alice"]));
    let mail = tokio::time::timeout(WAIT_MAX, mailbox.next()).await.expect("a mail in time");
    let line = ParsedMail::parse(&mail.text()).header("Subject");
    assert_eq!(line, "quotabell: 0 dead deliveries, 1 alert without a contact");
    daemon.drain().await;
}
