//! Daemons that were paused or cut off during a migration do not know about it when they continue.

use std::collections::BTreeSet;

use crate::support::receivers::HttpCatcher;
use nix::sys::signal::Signal;
use quotabell::outbox::{LeaseTimes, SettleReply, Settlement, lease, totals};
use quotabell::redis_client::Partition;
use quotabell::types::OutcomeClass;

use crate::e2e_migrate::{SUBJECTS, events, migrate};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::{Outbox, alert, all_due, email, outcome, settle, subject};
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};
use crate::support::webhook_receiver::{secret, verify};

/// Waits for this number of alerts, all with different ids.
async fn told(receiver: &mut HttpCatcher, alerts: u64) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for _ in 0..alerts {
        let request = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("an alert in time");
        let id = verify(&request, &secret(7)).id;
        assert!(ids.insert(id.clone()), "{id} was sent twice");
    }
    ids
}

/// It ends by itself, and logs the reason once.
async fn stops(daemon: Daemon) {
    let ended = daemon.ended().await;
    ended.expect_code(1, &["says that everything was moved to redis://", "start the daemon there"]);
    assert_eq!(ended.log.matches("says that everything was moved to").count(), 1, "{}", ended.log);
}

/// A paused daemon used to lose 1,000 of 1,200 units and to send 40 of 40 alerts twice: it counted and sent in the old
/// deployment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_that_were_paused_during_a_move_stop_and_nothing_is_lost_or_sent_twice() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact =
        serde_json::json!([{"id": "ops", "channel": "webhook", "url": receiver.url("/"), "secret": secret(7)}]);
    let reaching = |streams: &Streams| -> DaemonSetup {
        streams.daemon().env("QUOTABELL__FALLBACK__CONTACTS", &contact.to_string())
    };
    let mut source = Streams::on(&old.url(), 1).await;
    let (reader, standby) = (reaching(&source).start().await, reaching(&source).start().await);
    source.send(events(SUBJECTS * LIMIT * 9 / 10)).await;
    source.agree().await;
    let mut ids = told(&mut receiver, SUBJECTS).await;
    let Partition { client, keys } = source.partitions.first();
    eventually("every outcome is recorded", || async { (totals(client, keys).await.ok()?.pending == 0).then_some(()) })
        .await;

    // As if they had been paused for longer than the lease.
    [&reader, &standby].iter().for_each(|daemon| daemon.signal(Signal::SIGSTOP));
    let () = client.query(redis::cmd("DEL").arg(keys.lease())).await.expect("deleted");
    migrate(&old.url(), &new.url(), "1").expect_done();
    let daemon = reaching(&source.moved_to(&new.url(), 1).await).start().await;
    source.send(events(SUBJECTS * LIMIT / 10)).await;
    [&reader, &standby].iter().for_each(|daemon| daemon.signal(Signal::SIGCONT));
    stops(reader).await;
    stops(standby).await;

    let late = migrate(&old.url(), &new.url(), "1").expect_json();
    assert_eq!(late[0]["entries"], SUBJECTS * LIMIT / 10, "{late:?}");
    source.moved_to(&new.url(), 1).await.agree().await;
    ids.extend(told(&mut receiver, SUBJECTS).await);
    assert_eq!(ids.len() as u64, 2 * SUBJECTS, "an alert was sent at both places");
    daemon.drain().await;
    assert!(receiver.try_next().is_none(), "one more message was sent");
}

/// A daemon without events and deliveries must notice the migration too, because nobody reads `/readyz` of the old
/// deployment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_without_work_stops_after_a_move() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = Streams::on(&old.url(), 2).await;
    let daemon = source.daemon().argument("--no-send").start().await;
    source.send(events(SUBJECTS)).await;
    source.agree().await;
    daemon.signal(Signal::SIGSTOP);
    for Partition { client, keys } in source.partitions.iter() {
        let () = client.query(redis::cmd("DEL").arg(keys.lease())).await.expect("deleted");
    }
    migrate(&old.url(), &new.url(), "1").expect_done();
    daemon.signal(Signal::SIGCONT);
    stops(daemon).await;
}

/// A message that was sent when the migration started would be sent again by the target, unless its outcome is awaited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_of_attempts_under_way_move_along() {
    let (old, new) = (Outbox::start(), Outbox::start());
    let _: u64 = old.run("HSET", &[old.keys.checkpoint().as_str(), "instance", "0123", "partitions", "1"]).await;
    for (name, contact) in [("sent", "a"), ("lost", "b")] {
        old.fan_out_new(&alert(&subject(name), 80), &[email(contact)]).await;
    }
    let times = LeaseTimes::all(std::time::Duration::from_secs(3));
    let leased = lease(&old.client, &old.keys, all_due("t", times)).await.expect("leased").leased;
    assert_eq!(leased.len(), 1, "the first at a destination that was never tried");
    let (from, to) = (old.server.url(), new.server.url());
    let moved = tokio::task::spawn_blocking(move || migrate(&from, &to, "1"));
    eventually("the source is marked", || async {
        let moved_to: Option<String> = old.run("HGET", &[old.keys.checkpoint().as_str(), "moved_to"]).await;
        moved_to.map(drop)
    })
    .await;
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    let answer = settle(&old.client, &old.keys, &leased[0].id, &leased[0].token, &delivered).await.expect("answered");
    assert!(matches!(answer, SettleReply::Done(_)), "{answer:?}");
    let told = moved.await.expect("it ends");
    assert_eq!((told.code, new.state(&leased[0].id).await.as_str()), (0, "delivered"), "{}", told.told());
    let totals = new.assert_balanced().await;
    assert_eq!((totals.delivered, totals.pending), (1, 1));
}
