//! Digests of webhooks, and a daemon that is killed while alerts gather and while their messages are sent.
//!
//! Each daemon gets a new subject whose contact has a digest of one second; the receiver fails at every fourth request.
//! A receiver that keeps the first message of each id must have each alert exactly once in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quotabell::types::DeliveryId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::seed::seed_of_run;
use crate::support::daemon::{DaemonSetup, READY, own_address};
use crate::support::digest_messages::{Told, messages, told};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, subject};
use crate::support::receivers::{Answer, CaughtRequest, HttpCatcher};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;

/// Number of kills.
const KILLS: u32 = 40;
/// The deadline of a webhook. A daemon killed with a lease delays the subject's messages by this time and 5 s.
const WEBHOOK_TIMEOUT: &str = "1s";
/// Maximum time to wait for a message that may not come.
const MOMENT_MAX: Duration = Duration::from_millis(1_500);
/// Units of each event; each reaches one more threshold of the day and of the month.
const UNITS: u32 = 10;
/// Thresholds of each subject.
const THRESHOLDS: &str = "10,20,30,40,50,60";

/// An alert that joins a message which a receiver has seen, or leaves one that it has not, is lost without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_anywhere_each_alert_is_in_one_message_and_messages_do_not_change() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let outbox = Outbox::on(RedisServer::start());
    let (asked, answer) = (AtomicU32::new(0), |asked: u32| if asked % 4 == 1 { 503 } else { 204 });
    let respond = move |_: &[u8]| Answer::status(answer(asked.fetch_add(1, Ordering::SeqCst)));
    let mut receiver = HttpCatcher::start_on((Ipv4Addr::UNSPECIFIED, 0).into(), respond).await.expect("a receiver");
    let port = receiver.address().port();
    let setup = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__WEBHOOK__TIMEOUT", WEBHOOK_TIMEOUT)
        .env("QUOTABELL__RETRY__FIRST", "200ms")
        .at(own_address())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","100/month"]}"#);
    let mut caught: Vec<CaughtRequest> = Vec::new();
    let mut events = BTreeMap::new();
    for number in 0..KILLS {
        add_subject(&outbox, number, port).await;
        let mut daemon = setup.spawn();
        daemon.says(READY).await;
        for of in [number, number, random.random_range(0..=number)] {
            use_units(&outbox, &mut events, of).await;
        }
        if random.random_bool(0.7)
            && let Ok(request) = tokio::time::timeout(MOMENT_MAX, receiver.next()).await
        {
            caught.push(request);
        }
        for _ in 0..random.random_range(0..60) {
            let _: String = outbox.client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
        daemon.kill().await;
        outbox.assert_balanced().await;
    }
    let survivor = setup.start().await;
    eventually("everything is counted and sent", || async {
        let read: Option<u64> = outbox.run("HGET", &[outbox.keys.checkpoint().as_str(), "entries_read"]).await;
        let added: u64 = outbox.run("XLEN", outbox.keys.stream()).await;
        let totals = outbox.totals().await;
        (read >= Some(added) && totals.outbox == 0 && totals.pending == 0 && totals.made > 0).then_some(())
    })
    .await;
    survivor.drain().await;
    caught.extend(std::iter::from_fn(|| receiver.try_next()));

    let expected: BTreeSet<Told> = events.into_iter().flat_map(|(number, events)| raised(number, events)).collect();
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.delivered), (expected.len() as u64, expected.len() as u64), "{totals:?}");
    let kept = messages(&caught);
    let told: Vec<&Told> = kept.values().flatten().collect();
    assert_eq!(told.iter().copied().collect::<BTreeSet<_>>(), expected.iter().collect(), "each alert is told");
    assert_eq!(told.len(), expected.len(), "and none in two messages");
    for (sent_in, told) in delivered_in(&outbox).await {
        assert!(kept[&sent_in].contains(&told), "{told:?} was recorded as told in {sent_in}: {:?}", kept[&sent_in]);
    }
    assert_eq!(outbox.run::<u64>("ZCARD", outbox.keys.grouped()).await, 0);
    let several = kept.values().filter(|told| told.len() > 2).count();
    eprintln!(
        "{KILLS} kills, {} requests, {} messages, {several} of several commits, {} alerts",
        caught.len(),
        kept.len(),
        expected.len()
    );
    assert!(caught.len() > kept.len() && several > 0, "too little happened");
}

/// The message of each delivery, and the alert that it tells.
async fn delivered_in(outbox: &Outbox) -> Vec<(String, Told)> {
    let ids: Vec<String> = outbox.run("ZRANGE", &[outbox.keys.deliveries().as_str(), "0", "-1"]).await;
    let mut found = Vec::new();
    for id in ids.iter().map(|id| DeliveryId::from_stored(id)) {
        let (sent_in, alert) = (outbox.field(&id, "sent_in").await, outbox.field(&id, "alert").await);
        let alert: Value = serde_json::from_str(&alert.expect("an alert")).expect("JSON");
        let item = json!({"type": "quota.threshold_reached", "data": alert});
        found.push((sent_in.expect("a message"), told(&item)));
    }
    found
}

/// The alerts after this number of events of a subject.
fn raised(number: u32, events: u32) -> impl Iterator<Item = Told> {
    let percents = THRESHOLDS.split(',').filter_map(|percent| percent.parse::<u64>().ok());
    let reached = percents.filter(move |percent| *percent <= u64::from(events * UNITS));
    reached.flat_map(move |percent| ["day", "month"].map(|window| (subject_of(number), window.to_owned(), percent)))
}

fn subject_of(number: u32) -> String {
    format!("customer-{number}")
}

/// Stores a subject whose contact is at a destination of its own, so that a killed daemon's lease delays no others.
async fn add_subject(outbox: &Outbox, number: u32, port: u16) {
    let host = SocketAddr::from((Ipv4Addr::new(127, 0, 1, number as u8 + 1), port));
    let contact = json!({"id": format!("c_{number}"), "channel": "webhook", "url": format!("http://{host}/"),
        "secret": secret(7), "digest": "1s"});
    outbox.set_contacts(&subject(&subject_of(number)), &json!([contact]).to_string()).await;
    let key = outbox.keys.subject(&subject(&subject_of(number)));
    let () = outbox.run("HSET", &[key.as_str(), "thresholds", THRESHOLDS]).await;
}

async fn use_units(outbox: &Outbox, events: &mut BTreeMap<u32, u32>, number: u32) {
    *events.entry(number).or_default() += 1;
    let words = [outbox.keys.stream(), "*", "subject", &subject_of(number), "units", &UNITS.to_string()];
    let _: String = outbox.run("XADD", &words).await;
}
