//! The fan-out loop and the dispatcher on a real server, with a fake notifier.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::eventually::WAIT_MAX;
use crate::support::outbox::{
    EXPIRES_AT, LONG, Outbox, SHORT, alert, delivery, email, in_period, json, subject, until, waiting_delivery, webhook,
};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, raised, until_ended};
use crate::support::redis_server::RedisServer;
use quotabell::contacts::resolver::ContactResolver;
use quotabell::outbox::{MultiplePolicy, wake_subject, wake_waiting};
use quotabell::redis_client::ErrorKind;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{Alert, DeliveryId, Destination, Period, UnixMs};
use tokio_util::sync::CancellationToken;

/// A new alert must not wait until all earlier ones are fanned out.
#[tokio::test]
async fn the_newest_alerts_of_a_backlog_are_fanned_out_beside_the_oldest() {
    let outbox = Outbox::start();
    for n in 0..1000 {
        outbox.raise(&alert(&subject(&format!("s{n}")), 80)).await;
    }
    let loops = Loops::start(&outbox, &FakeNotifier::new(|_| FakeAttempt::Deliver), Setting::default());
    until("all wait for a contact", || async { outbox.totals().await.waiting == 1000 }).await;
    loops.drain().await;
    let newest = waiting_delivery(&alert(&subject("s999"), 80));
    let key = outbox.keys.deliveries();
    let made: u64 = outbox.run("ZSCORE", &[key.as_str(), newest.as_str()]).await;
    let last: Vec<(String, u64)> = outbox.run("ZREVRANGE", &[key.as_str(), "0", "0", "WITHSCORES"]).await;
    assert!(made < last[0].1, "{made} is the last of {last:?}");
}

/// Two messages about 80 % and 100 % at the same moment would seem to contradict each other.
#[tokio::test]
async fn a_jump_is_told_once_where_the_highest_is_asked_for() {
    for (on_multiple, told) in [(MultiplePolicy::Each, vec![80, 100]), (MultiplePolicy::Highest, vec![100])] {
        let outbox = Outbox::start();
        let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
        let subject = subject("alice");
        outbox.set_contacts(&subject, &json(&[email("alice")])).await;
        let lower = Alert { higher_thresholds: vec!["100".parse().expect("legal")], ..alert(&subject, 80) };
        for alert in [lower, alert(&subject, 100)] {
            outbox.raise(&alert).await;
        }
        let loops = Loops::start(&outbox, &notifier, Setting { on_multiple, ..Setting::default() });
        until_ended(&outbox, told.len() as u64).await;
        loops.drain().await;
        let seen: BTreeSet<DeliveryId> = notifier.seen().into_iter().map(|seen| seen.delivery).collect();
        let of = |percent: &u16| delivery(&alert(&subject, *percent), &email("alice"));
        assert_eq!(seen, told.iter().map(of).collect(), "{on_multiple:?}");
    }
}

/// The normal path from the outbox to each kind of end.
#[tokio::test]
async fn alerts_travel_from_the_outbox_to_their_contacts() {
    let outbox = Outbox::start();
    let notifier = FakeNotifier::new(|due| {
        match (due.notification.subject().expect("an alert").as_str(), due.attempt_since_replay) {
            ("dies", _) => FakeAttempt::Die,
            ("muted", _) => FakeAttempt::Mute,
            ("retries", 1 | 2) => FakeAttempt::Retry,
            _ => FakeAttempt::Deliver,
        }
    });
    for name in ["fine", "dies", "muted", "retries"] {
        raised(&outbox, name, &[email(name), webhook(name)]).await;
    }
    raised(&outbox, "fallback", &[]).await;
    let loops = Loops::start(&outbox, &notifier, Setting { fallback: vec![email("ops")], ..Setting::default() });
    until_ended(&outbox, 9).await;
    loops.drain().await;
    let totals = outbox.totals().await;
    assert_eq!((totals.delivered, totals.dead, totals.muted), (5, 2, 2));
    let seen = notifier.seen();
    assert_eq!(seen.len(), 7 + 6, "three attempts for each that is tried again");
    assert!(seen.iter().any(|seen| seen.address == "ops@b.test"));
}

/// A postponed delivery has had no attempt: neither its number nor its clock may change, or it would be given up and
/// retried late.
#[tokio::test]
async fn a_delivery_that_was_put_off_has_had_no_attempt() {
    let outbox = Outbox::start();
    let calls = AtomicU64::new(0);
    // Postponed twice, fails, postponed twice, delivered.
    let notifier = FakeNotifier::new(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 3 => FakeAttempt::Throttle,
        1 | 4 => FakeAttempt::Postpone,
        2 => FakeAttempt::Retry,
        5 => FakeAttempt::Gate,
        _ => FakeAttempt::Deliver,
    });
    let raised = raised(&outbox, "alice", &[webhook("a")]).await;
    let id = delivery(&raised, &webhook("a"));
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until("all but the last call are over", || async { notifier.seen().len() == 6 }).await;
    let first_failed = outbox.field(&id, "first_attempt_at_ms").await;
    notifier.open();
    until_ended(&outbox, 1).await;
    loops.drain().await;
    let attempts: Vec<u32> = notifier.seen().iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, [1, 1, 1, 2, 2, 2]);
    assert_eq!(outbox.field(&id, "attempts").await.as_deref(), Some("2"));
    assert!(outbox.field(&id, "attempt:1").await.is_some() && outbox.field(&id, "attempt:3").await.is_none());
    assert_eq!(outbox.field(&id, "first_attempt_at_ms").await, first_failed, "counted from the attempt that failed");
}

/// With two dispatchers on one queue, only the lease holder may attempt a delivery.
#[tokio::test]
async fn two_dispatchers_never_send_one_delivery_twice() {
    let outbox = Outbox::start();
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops =
        [Loops::start(&outbox, &notifier, Setting::default()), Loops::start(&outbox, &notifier, Setting::default())];
    for n in 0..300 {
        raised(&outbox, &format!("s{n}"), &[email("a")]).await;
        loops[n % 2].new_alerts.notify_one();
    }
    until_ended(&outbox, 300).await;
    for one in loops {
        one.drain().await;
    }
    let mut times: BTreeMap<DeliveryId, u32> = BTreeMap::new();
    for seen in notifier.seen() {
        *times.entry(seen.delivery).or_default() += 1;
    }
    assert_eq!(times.len(), 300);
    assert!(times.values().all(|times| *times == 1));
}

/// A crash between fan-out and settlement must only cause a delay.
#[tokio::test]
async fn what_a_dead_worker_had_leased_is_attempted_by_another() {
    let outbox = Outbox::start();
    let alert = raised(&outbox, "alice", &[email("a")]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Gate);
    let dying =
        Loops::start(&outbox, &notifier, Setting { lease_margin: Duration::from_secs(1), ..Setting::default() });
    until("the attempt runs", || async { notifier.seen().len() == 1 }).await;
    dying.dispatcher.abort();
    dying.fan_out.abort();
    let heir = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &heir, Setting::default());
    until_ended(&outbox, 1).await;
    loops.drain().await;
    let seen = heir.seen();
    assert_eq!((seen.len(), &seen[0].delivery, seen[0].attempt), (1, &delivery(&alert, &email("a")), 2));
}

/// More deliveries than slots must not all run at once, or a burst overloads the process or the mail server.
#[tokio::test]
async fn no_more_attempts_run_at_once_than_configured() {
    let outbox = Outbox::start();
    for n in 0..12 {
        raised(&outbox, &format!("s{n}"), &[email("a")]).await;
    }
    let notifier = FakeNotifier::new(|_| FakeAttempt::Gate);
    outbox.trust("email").await;
    let loops = Loops::start(&outbox, &notifier, Setting { concurrency: 3, ..Setting::default() });
    until("all slots are taken", || async { notifier.running.load(Ordering::SeqCst) == 3 }).await;
    until("the rest is made", || async { outbox.totals().await.made == 12 }).await;
    notifier.open();
    until_ended(&outbox, 12).await;
    loops.drain().await;
    assert_eq!(notifier.most_running.load(Ordering::SeqCst), 3);
}

/// A bug in one attempt must neither end the loop nor lose the delivery.
#[tokio::test]
async fn a_panic_in_an_attempt_costs_one_lease() {
    let outbox = Outbox::start();
    raised(&outbox, "panics", &[email("a")]).await;
    let panicked = AtomicU64::new(0);
    let notifier = FakeNotifier::new(move |due| {
        let first = due.notification.subject().expect("an alert").as_str() == "panics"
            && panicked.fetch_add(1, Ordering::SeqCst) == 0;
        if first { FakeAttempt::Panic } else { FakeAttempt::Deliver }
    });
    let loops =
        Loops::start(&outbox, &notifier, Setting { lease_margin: Duration::from_millis(200), ..Setting::default() });
    until("the panic happened", || async { !notifier.seen().is_empty() }).await;
    raised(&outbox, "other", &[email("a")]).await;
    until_ended(&outbox, 2).await;
    loops.drain().await;
    assert_eq!(outbox.totals().await.delivered, 2);
}

/// A drain must let running attempts finish and start none.
#[tokio::test]
async fn a_drain_finishes_what_runs_and_starts_nothing() {
    let outbox = Outbox::start();
    raised(&outbox, "running", &[email("a")]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Gate);
    let loops = Loops::start(&outbox, &notifier, Setting { concurrency: 1, ..Setting::default() });
    until("the attempt runs", || async { notifier.seen().len() == 1 }).await;
    let later = raised(&outbox, "later", &[email("a")]).await;
    loops.new_alerts.notify_one();
    until("it is made", || async { outbox.totals().await.made == 2 }).await;
    loops.stop.cancel();
    notifier.open();
    loops.drain().await;
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.delivered, totals.pending, notifier.seen().len()), (1, 1, 1));
    // Not leased, no attempt counted: the next worker leases it at once.
    let leased = outbox.lease_one("next", LONG).await;
    assert_eq!((leased.id, leased.attempts), (delivery(&later, &email("a")), 1));
}

/// Leased deliveries that have not started when the drain begins must be free for the next worker at once, as if never
/// leased.
#[tokio::test]
async fn a_drain_gives_back_what_was_leased_and_not_started() {
    let outbox = Outbox::start();
    for n in 0..8 {
        let alert = alert(&subject(&format!("s{n}")), 80);
        outbox.set_contacts(&alert.subject, &json(&[email("a")])).await;
        outbox.fan_out_new(&alert, &[email("a")]).await;
    }
    // The first attempt itself starts the drain while the others of the same lease still look up their contacts.
    let stop = Arc::new(std::sync::OnceLock::<CancellationToken>::new());
    let told = Arc::clone(&stop);
    let notifier = FakeNotifier::new(move |_| {
        told.get().expect("set before the first attempt").cancel();
        FakeAttempt::Deliver
    });
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    stop.set(loops.stop.clone()).expect("set once");
    loops.drain_after_stop().await;
    let totals = outbox.assert_balanced().await;
    assert_eq!((notifier.seen().len(), totals.delivered, totals.pending), (1, 1, 7));
    let lease = outbox.lease("next", LONG).await;
    assert_eq!(lease.leased.len(), 7);
    assert!(lease.leased.iter().all(|leased| leased.attempts == 1 && leased.first_attempt == lease.now));
}

/// A lease that is too short for the attempt must be released: the attempt would overlap with another worker's.
#[tokio::test]
async fn no_attempt_starts_that_its_lease_does_not_cover() {
    let outbox = Outbox::start();
    let alert = raised(&outbox, "alice", &[email("a")]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    // The lease is as long as the deadline, so after the call it never covers the attempt.
    let loops = Loops::start(&outbox, &notifier, Setting { lease_margin: Duration::ZERO, ..Setting::default() });
    let id = delivery(&alert, &email("a"));
    until("it was leased and given back a few times", || async {
        let nonce: Option<String> = outbox.run("HGET", &[outbox.keys.delivery(&id).as_str(), "settled_token"]).await;
        nonce.is_some_and(|token| token.split(':').nth(1).is_some_and(|call| call.parse::<u64>().is_ok_and(|n| n > 3)))
    })
    .await;
    loops.drain().await;
    assert!(notifier.seen().is_empty());
    assert_eq!(outbox.field(&id, "attempts").await.as_deref(), Some("0"));
}

/// An alert without a contact must be sent at once when the subject gets one.
#[tokio::test]
async fn a_contact_added_later_gets_the_alert_that_waited() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let alert = raised(&outbox, "alice", &[]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until("it waits", || async { outbox.totals().await.waiting == 1 }).await;
    outbox.set_contacts(&alice, &json(&[email("new")])).await;
    assert_eq!(wake_subject(&outbox.client, &outbox.keys, &alice).await.expect("wake works"), 1);
    loops.new_deliveries.notify_one();
    until_ended(&outbox, 2).await;
    loops.drain().await;
    assert_eq!(outbox.state(&waiting_delivery(&alert)).await, "cancelled");
    assert_eq!(notifier.seen()[0].address, "new@b.test");
}

/// The contact is looked up at each attempt: a corrected address counts at once, a removed contact gets nothing more.
#[tokio::test]
async fn contacts_are_rechecked_at_each_attempt() {
    let outbox = Outbox::start();
    let (mut old, mut mended) = (email("old"), email("mended"));
    old.id = quotabell::types::ContactId::from_stored("c_1");
    mended.id = old.id.clone();
    let alert = raised(&outbox, "alice", &[old.clone(), email("removed")]).await;
    let notifier =
        FakeNotifier::new(|due| if due.attempt_since_replay == 1 { FakeAttempt::Retry } else { FakeAttempt::Deliver });
    outbox.fan_out_new(&alert, &[old, email("removed")]).await;
    // Between fan-out and attempt.
    outbox.set_contacts(&subject("alice"), &json(&[mended, email("present")])).await;
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until_ended(&outbox, 3).await;
    loops.drain().await;
    let totals = outbox.totals().await;
    assert_eq!((totals.delivered, totals.cancelled), (2, 1));
    assert!(notifier.seen().iter().all(|seen| ["mended@b.test", "present@b.test"].contains(&seen.address.as_str())));
}

/// A contacts field that was broken by hand must neither cancel pending deliveries nor send them to the fallback.
#[tokio::test]
async fn unreadable_contacts_make_deliveries_wait() {
    let outbox = Outbox::start();
    let (alice, bob) = (subject("alice"), subject("bob"));
    let known = alert(&alice, 80);
    outbox.fan_out_new(&known, &[email("a")]).await;
    outbox.set_contacts(&alice, "[{\"channel\":\"email\",").await;
    outbox.set_contacts(&bob, "{}").await;
    raised(&outbox, "bob", &[]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting { fallback: vec![email("ops")], ..Setting::default() });
    let id = delivery(&known, &email("a"));
    until("both wait", || async {
        let settled = outbox.field(&id, "settled_token").await;
        settled.is_some() && outbox.totals().await.waiting == 1
    })
    .await;
    loops.drain().await;
    assert!(notifier.seen().is_empty());
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.pending), (2, 2));
    assert!(outbox.due(&id).await > Some(totals.now.0 + 50_000), "it looks again in a minute, not in a busy loop");
}

/// While Redis is unavailable nothing may be lost, and outcomes must be recorded before another attempt.
#[tokio::test]
async fn an_outcome_survives_an_outage_longer_than_its_lease() {
    let mut outbox = Outbox::on(RedisServer::start_durable());
    raised(&outbox, "alice", &[email("a")]).await;
    raised(&outbox, "bob", &[email("b")]).await;
    outbox.trust("email").await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Gate);
    let loops =
        Loops::start(&outbox, &notifier, Setting { lease_margin: Duration::from_secs(1), ..Setting::default() });
    until("both attempts run", || async { notifier.seen().len() == 2 }).await;
    // Both leases of 1.1 s began before this moment.
    let leases_end = std::time::Instant::now() + Duration::from_millis(1100);
    outbox.server.kill();
    notifier.open();
    until("the leases ran out", || async { std::time::Instant::now() > leases_end }).await;
    outbox.server.restart();
    until("redis is back", || async { outbox.client.query::<()>(&redis::cmd("PING")).await.is_ok() }).await;
    until_ended(&outbox, 2).await;
    raised(&outbox, "after", &[email("a")]).await;
    notifier.open();
    until_ended(&outbox, 3).await;
    loops.drain().await;
    assert_eq!(notifier.seen().len(), 3, "none was attempted again");
}

/// A full server must stop sending, recover by itself, and lose nothing.
#[tokio::test]
async fn a_full_server_delays_deliveries_and_loses_none() {
    let outbox = Outbox::start();
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    raised(&outbox, "alice", &[email("a")]).await;
    let () = outbox.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until("the outbox is empty", || async {
        let totals = outbox.totals().await;
        totals.made == 1 && totals.outbox == 0
    })
    .await;
    assert!(notifier.seen().is_empty());
    let () = outbox.run("CONFIG", &["SET", "maxmemory", "0"]).await;
    until_ended(&outbox, 1).await;
    loops.drain().await;
}

/// An unreadable entry must neither block the alerts behind it nor disappear.
#[tokio::test]
async fn an_unreadable_outbox_entry_stays_and_blocks_nothing() {
    let outbox = Outbox::start();
    let () = outbox.run("XADD", &[outbox.keys.outbox().as_str(), "*", "alert", "{\"id\":"]).await;
    let () = outbox.run("XADD", &[outbox.keys.outbox().as_str(), "*", "note", "x"]).await;
    raised(&outbox, "alice", &[email("a")]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until("the readable alert is delivered", || async { outbox.totals().await.delivered == 1 }).await;
    loops.drain().await;
    assert_eq!(outbox.totals().await.outbox, 2);
}

/// An unreadable stored alert becomes a dead delivery, which is visible, and the queue continues.
#[tokio::test]
async fn an_unreadable_alert_ends_dead_and_blocks_nothing() {
    let outbox = Outbox::start();
    let broken = alert(&subject("broken"), 80);
    outbox.fan_out_new(&broken, &[email("a")]).await;
    let id = delivery(&broken, &email("a"));
    let () = outbox.run("HSET", &[outbox.keys.delivery(&id).as_str(), "alert", "{}"]).await;
    raised(&outbox, "fine", &[email("a")]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until_ended(&outbox, 2).await;
    loops.drain().await;
    assert_eq!(outbox.state(&id).await, "dead");
    assert_eq!(outbox.field(&id, "last_error").await.as_deref(), Some("the stored notification is unreadable"));
}

/// One of our keys with another type stops the partition with an error; guessing could lose or double alerts.
#[tokio::test]
async fn a_wrong_type_ends_the_loops_with_an_error() {
    let outbox = Outbox::start();
    let () = outbox.run("SET", &[outbox.keys.destinations().as_str(), "x"]).await;
    raised(&outbox, "alice", &[email("a")]).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    for ended in [loops.fan_out, loops.dispatcher] {
        let ended = tokio::time::timeout(WAIT_MAX, ended).await.expect("it ends");
        let error = ended.expect("no panic").expect_err("a fatal error");
        assert_eq!(error.error_kind(), ErrorKind::WrongType);
    }
    assert_eq!(outbox.run::<i64>("XLEN", outbox.keys.outbox()).await, 1, "the alert is still there");
}

/// A lease of another worker must block this one until it ends, and no longer.
#[tokio::test]
async fn a_short_lease_of_another_worker_delays_and_does_not_block() {
    let outbox = Outbox::start();
    let alert = raised(&outbox, "alice", &[email("a")]).await;
    outbox.fan_out_new(&alert, &[email("a")]).await;
    outbox.lease_one("dead worker", SHORT).await;
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until_ended(&outbox, 1).await;
    loops.drain().await;
    assert_eq!(notifier.seen().len(), 1);
}

/// An alert without a contact ends when it is too old, and costs nothing until then.
#[tokio::test]
async fn an_alert_without_contact_sleeps_until_it_expires() {
    let outbox = Outbox::start();
    let notifier = FakeNotifier::new(|_| FakeAttempt::Deliver);
    let waits = raised(&outbox, "waits", &[]).await;
    let of_an_hour = in_period(alert(&subject("of-an-hour"), 80), Period::parse("2026-11-21T14Z").expect("an hour"));
    outbox.raise(&of_an_hour).await;
    let of_a_total = in_period(alert(&subject("of-a-total"), 80), Period::ALL_TIME);
    let of_a_total = Alert { resets_at: None, ..of_a_total };
    outbox.raise(&of_a_total).await;
    let old = Alert { resets_at: Some(Rfc3339(UnixMs(1_600_000_000_000))), ..alert(&subject("old"), 80) };
    outbox.raise(&old).await;
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until("the old one ended", || async { outbox.totals().await.expired == 1 }).await;
    loops.drain().await;
    assert_eq!(outbox.state(&waiting_delivery(&old)).await, "expired");
    let id = waiting_delivery(&waits);
    assert_eq!((outbox.state(&id).await.as_str(), outbox.due(&id).await), ("pending", Some(EXPIRES_AT.0)));
    let hours_later =
        outbox.due(&waiting_delivery(&of_an_hour)).await.expect("it waits") - of_an_hour.resets_at.expect("an end").0.0;
    assert_eq!(hours_later, 2 * 3_600_000, "an hour interests nobody for two days");
    assert_eq!(outbox.field(&id, "settled_token").await, None, "it was never leased");
    let total_due = outbox.due(&waiting_delivery(&of_a_total)).await.expect("it waits");
    assert!(total_due > Period::ALL_TIME.ends_everywhere().0, "nothing repeats an alert of a total: {total_due}");
    assert_eq!((outbox.assert_balanced().await.waiting, notifier.seen().len()), (3, 0));
}

/// After a connection broke, changes may have been missed: alerts with a contact are woken, the others keep waiting.
#[tokio::test]
async fn only_deliveries_with_a_contact_are_woken() {
    let outbox = Outbox::start();
    for n in 0..700 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n:03}")), 80), &[]).await;
    }
    for name in ["s007", "s650"] {
        outbox.set_contacts(&subject(name), &json(&[email(name)])).await;
    }
    let contacts = ContactResolver::new(outbox.keys.clone(), Vec::new());
    let mut slices = Vec::new();
    wake_waiting(&outbox.client, &outbox.keys, &contacts, |woken| slices.push(woken)).await.expect("wake works");
    assert_eq!(slices, [1, 1], "one in each slice of five hundred");
    let now = outbox.totals().await.now.0;
    let due: Vec<String> =
        outbox.run("ZRANGEBYSCORE", &[&outbox.keys.due(&Destination::none()), "-inf", &now.to_string()]).await;
    let woken = ["s007", "s650"].map(|name| waiting_delivery(&alert(&subject(name), 80)).to_string());
    assert_eq!(due.into_iter().collect::<BTreeSet<_>>(), woken.into());
}
