//! `lease.lua`, `settle.lua` and `replay.lua` on a real server: every reply, twice.

use std::time::Duration;

use crate::support::outbox::{
    LONG, Outbox, SHORT, alert, all_due, delivery, email, outcome, settle, subject, until, webhook,
};
use quotabell::outbox::told::store_told;
use quotabell::outbox::{ActionReply, DeliveryAction, LeasedDelivery, SettleReply, Settlement, act, lease};
use quotabell::redis_client::ErrorKind;
use quotabell::types::{Alert, DeliveryId, DeliveryState, Destination, Notification, Outcome, OutcomeClass};
use quotabell::views::deliveries::show;

async fn settled(outbox: &Outbox, leased: &LeasedDelivery, settlement: &Settlement) -> SettleReply {
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, settlement).await.expect("settling works")
}

/// One alert with one due delivery.
async fn one_due(outbox: &Outbox) -> Alert {
    let alert = alert(&subject("alice"), 80);
    outbox.fan_out_new(&alert, &[email("a")]).await;
    alert
}

/// The dispatcher must get complete data, and nobody else may get the delivery meanwhile.
#[tokio::test]
async fn a_lease_hides_the_delivery_until_it_ends() {
    let outbox = Outbox::start();
    let alert = one_due(&outbox).await;
    let first = outbox.lease("t", LONG).await;
    let leased = &first.leased[0];
    assert_eq!((leased.attempts, leased.attempt_since_replay, leased.first_attempt), (1, 1, first.now));
    assert_eq!(leased.lease_end, first.now.plus(600_000));
    assert_eq!((&leased.notification, &leased.contact), (&Ok(Notification::Alert(alert)), &email("a").id));
    assert_eq!(first.next_healthy, Some(leased.lease_end));
    let second = outbox.lease("u", LONG).await;
    assert_eq!((second.leased.len(), second.next_healthy), (0, Some(leased.lease_end)));
}

/// An alert whose attempt a receiver may have accepted is sent again even if it has ended, so that its end can follow.
#[tokio::test]
async fn a_delivery_may_have_arrived_unless_each_attempt_was_refused() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let refused = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::ZERO);
    let released = Settlement::Released(Duration::ZERO);
    let lost = Outcome { may_have_arrived: true, ..outcome(OutcomeClass::Transient) };
    let lost = Settlement::Retry(lost, Duration::ZERO);
    let (mut number, mut seen) = (0, Vec::new());
    for end in [&refused, &released, &refused, &lost, &refused, &released] {
        number += 1;
        let leased = outbox.lease_one(&format!("t{number}"), LONG).await;
        seen.push(leased.may_have_arrived);
        settled(&outbox, &leased, end).await;
    }
    assert_eq!(seen, [false, false, false, false, true, true]);

    // So may one whose outcome nobody recorded.
    let outbox = Outbox::start();
    one_due(&outbox).await;
    outbox.lease_one("killed", SHORT).await;
    assert!(until_leased(&outbox, "t").await.may_have_arrived);
}

/// Receivers know an id: what the first attempt tells is told again, and a worker whose lease is over changes nothing.
#[tokio::test]
async fn what_is_told_is_fixed_by_the_holder_of_the_lease() {
    let outbox = Outbox::start();
    let raised = one_due(&outbox).await;
    let told = Notification::Alert(Alert { used: 4_321, ..raised });
    let killed = outbox.lease_one("killed", SHORT).await;
    let second = until_leased(&outbox, "t").await;
    assert!(!killed.is_told && !second.is_told, "nothing was stored before the first lease ended");
    let store = async |leased| store_told(&outbox.client, &outbox.keys, leased, &told).await.expect("an answer");
    assert!(!store(&killed).await);
    assert!(store(&second).await && store(&second).await);
    settled(&outbox, &second, &Settlement::Released(Duration::ZERO)).await;
    let third = outbox.lease_one("u", LONG).await;
    assert_eq!((third.is_told, &third.notification), (true, &Ok(told.clone())));
    let () = outbox.run("DEL", &[outbox.keys.delivery(&third.id).as_str()]).await;
    assert!(!store(&third).await, "it was erased");
}

/// A dead worker must not keep its deliveries: the lease ends by the server's clock.
#[tokio::test]
async fn a_lease_runs_out_and_the_late_outcome_is_stale() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let dead_workers = outbox.lease_one("t1", SHORT).await;
    let again = until_leased(&outbox, "t2").await;
    assert_eq!((again.attempts, again.first_attempt), (2, dead_workers.first_attempt));
    let before = outbox.dump().await;
    let late = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    assert_eq!(settled(&outbox, &dead_workers, &late).await, SettleReply::Stale);
    assert_eq!(outbox.dump().await, before);
}

async fn until_leased(outbox: &Outbox, token: &str) -> LeasedDelivery {
    let found = std::cell::RefCell::new(None);
    until("the lease ran out", || async {
        *found.borrow_mut() = outbox.lease(token, LONG).await.leased.pop();
        found.borrow().is_some()
    })
    .await;
    found.into_inner().expect("just seen")
}

/// An outcome that arrives after the end of its lease, but before another lease, must be recorded: otherwise a
/// delivered alert would be sent again.
#[tokio::test]
async fn a_lease_that_ran_out_can_still_be_settled() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let leased = outbox.lease_one("t", LONG).await;
    outbox.let_time_pass(&leased.id).await;
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    assert!(matches!(settled(&outbox, &leased, &delivered).await, SettleReply::Done(_)));
    assert_eq!(outbox.lease("u", LONG).await.leased.len(), 0, "none starts after success");
}

/// Each end must leave the schedule, be counted once, be kept for 14 days, and a second call must change nothing.
#[tokio::test]
async fn every_end_is_recorded_once() {
    let ends = [
        Settlement::Delivered(outcome(OutcomeClass::Delivered)),
        Settlement::Dead(outcome(OutcomeClass::Permanent)),
        Settlement::Unsendable("the stored alert is unreadable".into()),
        Settlement::Muted(String::new()),
        Settlement::Expired,
        Settlement::Cancelled,
    ];
    for end in ends {
        let outbox = Outbox::start();
        one_due(&outbox).await;
        let leased = outbox.lease_one("t", LONG).await;
        let SettleReply::Done(now) = settled(&outbox, &leased, &end).await else { panic!("{end:?} was not recorded") };
        let before = outbox.dump().await;
        assert_eq!(settled(&outbox, &leased, &end).await, SettleReply::Repeated);
        assert_eq!(settled(&outbox, &leased, &Settlement::Released(Duration::ZERO)).await, SettleReply::Repeated);
        assert_eq!(outbox.dump().await, before);

        let totals = outbox.assert_balanced().await;
        assert_eq!((totals.made, totals.pending, totals.oldest_pending), (1, 0, None), "{end:?}");
        let detail = show(&outbox.partition(), &[], &leased.id).await.expect("readable").expect("there");
        assert_eq!((detail.delivery.state, detail.delivery.next_due), (end.state(), None));
        let attempts = u32::from(end.outcome().is_some());
        assert_eq!((detail.delivery.attempts, detail.attempt_log.len() as u32), (attempts, attempts), "{end:?}");
        assert_eq!(outbox.field(&leased.id, "ended_at_ms").await, Some(now.0.to_string()));
        let ttl: i64 = outbox.run("TTL", outbox.keys.delivery(&leased.id)).await;
        assert!((1_209_500..=1_209_600).contains(&ttl), "{ttl}");
        assert_eq!(totals.dead_kept, u64::from(end.state() == DeliveryState::Dead));
    }
}

/// A failed attempt must be recorded with its time, and the next one must be due exactly then.
#[tokio::test]
async fn a_retry_records_the_attempt_and_schedules_the_next() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let leased = outbox.lease_one("t1", LONG).await;
    let retry = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_millis(5000));
    let SettleReply::Done(now) = settled(&outbox, &leased, &retry).await else { panic!("not recorded") };
    assert_eq!(outbox.due(&leased.id).await, Some(now.0 + 5000));
    assert_eq!(settled(&outbox, &leased, &retry).await, SettleReply::Repeated);
    outbox.let_time_pass(&leased.id).await;
    let second = outbox.lease_one("t2", LONG).await;
    assert_eq!((second.attempts, second.first_attempt), (2, leased.first_attempt));
    let detail = show(&outbox.partition(), &[], &leased.id).await.expect("readable").expect("there");
    assert_eq!(detail.delivery.last_error.as_deref(), Some("receiver answered 503"));
    let [attempt] = detail.attempt_log.as_slice() else { panic!("one attempt: {detail:?}") };
    assert_eq!((attempt.at.0.0, attempt.outcome.as_str(), attempt.status), (now.0, "transient", Some(503)));
    outbox.assert_balanced().await;
}

/// A released lease must leave no trace of an attempt: neither in the count nor in the clock of `give_up_after`.
#[tokio::test]
async fn a_released_lease_counts_no_attempt() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let leased = outbox.lease_one("t1", LONG).await;
    assert!(matches!(settled(&outbox, &leased, &Settlement::Released(Duration::ZERO)).await, SettleReply::Done(_)));
    assert_eq!(outbox.field(&leased.id, "first_attempt_at_ms").await, None);
    let second = outbox.lease_one("t2", LONG).await;
    assert_eq!(second.attempts, 1);
    // After a real attempt the clock continues.
    settled(&outbox, &second, &Settlement::Retry(outcome(OutcomeClass::Transient), Duration::ZERO)).await;
    let third = outbox.lease_one("t3", LONG).await;
    settled(&outbox, &third, &Settlement::Released(Duration::from_secs(9))).await;
    outbox.let_time_pass(&leased.id).await;
    let fourth = outbox.lease_one("t4", LONG).await;
    assert_eq!((fourth.attempts, fourth.first_attempt), (2, second.first_attempt));
}

/// A delivery that fails for months must not grow without bound, and the newest attempts must be kept.
#[tokio::test]
async fn the_newest_hundred_attempts_are_kept() {
    let outbox = Outbox::start();
    let alert = one_due(&outbox).await;
    let id = delivery(&alert, &email("a"));
    for n in 0..130 {
        let leased = outbox.lease_one(&format!("t{n}"), LONG).await;
        if n % 10 == 0 {
            // A worker died: this attempt has a number and no record.
            outbox.let_time_pass(&id).await;
            continue;
        }
        settled(&outbox, &leased, &Settlement::Retry(outcome(OutcomeClass::Transient), Duration::ZERO)).await;
    }
    let fields: Vec<String> = outbox.run("HKEYS", outbox.keys.delivery(&id)).await;
    let numbers: Vec<u32> = fields.iter().filter_map(|field| field.strip_prefix("attempt:")?.parse().ok()).collect();
    assert_eq!(numbers.len(), 100);
    assert!(numbers.iter().min() > Some(&17) && numbers.contains(&130));
}

/// One broken hash must neither block the queue nor falsify the totals.
#[tokio::test]
async fn what_is_due_without_a_delivery_is_dropped_and_reported() {
    let outbox = Outbox::start();
    let keys = &outbox.keys;
    for name in ["missing", "typed", "cut", "ended", "good"] {
        outbox.fan_out_new(&alert(&subject(name), 80), &[email("a")]).await;
    }
    let id = |name: &str| delivery(&alert(&subject(name), 80), &email("a"));
    let () = outbox.run("DEL", keys.delivery(&id("missing"))).await;
    let () = outbox.run("SET", &[keys.delivery(&id("typed")).as_str(), "x"]).await;
    let () = outbox.run("HDEL", &[keys.delivery(&id("cut")).as_str(), "alert"]).await;
    let ended = outbox.lease("t0", LONG).await;
    for leased in ended.leased {
        let end = if leased.id == id("ended") {
            Settlement::Muted(String::new())
        } else {
            Settlement::Released(Duration::ZERO)
        };
        settled(&outbox, &leased, &end).await;
    }
    assert_eq!(
        dropped(ended.dropped),
        [(id("cut"), "malformed"), (id("missing"), "missing"), (id("typed"), "malformed")]
    );
    assert_eq!(outbox.state(&id("cut")).await, "cancelled");
    let queue = outbox.queue(&id("good")).await;
    let () = outbox.run("ZADD", &[queue.as_str(), "1", id("ended").as_str()]).await;
    let () = outbox.run("ZADD", &[queue.as_str(), "1", "delivery_foreign"]).await;
    let lease = outbox.lease("t1", LONG).await;
    assert_eq!(lease.leased.iter().map(|leased| &leased.id).collect::<Vec<_>>(), [&id("good")]);
    assert_eq!(
        dropped(lease.dropped),
        [(DeliveryId::from_stored("delivery_foreign"), "missing"), (id("ended"), "ended")]
    );
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.cancelled, totals.muted, totals.pending), (5, 3, 1, 1));
}

/// Sorted by reason and id, so that the order of equal due times does not matter.
fn dropped(mut dropped: Vec<(DeliveryId, String)>) -> Vec<(DeliveryId, &'static str)> {
    let known = ["malformed", "missing", "ended"];
    let names = ["cut", "missing", "typed", "ended"];
    let rank = |id: &DeliveryId| names.iter().position(|name| delivery(&alert(&subject(name), 80), &email("a")) == *id);
    dropped.sort_by_key(|(id, _)| rank(id));
    let why = |why: &str| *known.iter().find(|known| **known == why).expect("a known reason");
    dropped.into_iter().map(|(id, reason)| (id, why(&reason))).collect()
}

/// A foreign JSON of an alert must be reported as such, without a panic or an endless loop.
#[tokio::test]
async fn an_unreadable_alert_is_leased_as_unreadable() {
    let outbox = Outbox::start();
    let alert = one_due(&outbox).await;
    let id = delivery(&alert, &email("a"));
    let () = outbox.run("HSET", &[outbox.keys.delivery(&id).as_str(), "alert", "{\"id\":7"]).await;
    assert!(outbox.lease_one("t", LONG).await.notification.is_err());
}

/// Keys of another type must raise an error before anything is written.
#[tokio::test]
async fn a_key_of_another_type_raises_and_writes_nothing() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let keys = &outbox.keys;
    let leased = outbox.lease_one("t", LONG).await;
    let queue = keys.due(&leased.destination);
    outbox.trust(leased.destination.as_str()).await;
    for name in [queue.clone(), keys.destinations(), keys.pending(), keys.totals()] {
        let error = with_wrong_type(&outbox, &name, lease(&outbox.client, keys, all_due("u", LONG))).await;
        assert_eq!(error, Some(ErrorKind::WrongType), "lease, {name}");
    }
    let settle_keys = [
        queue,
        keys.destinations_unhealthy(),
        keys.pending(),
        keys.waiting(),
        keys.dead(),
        keys.deliveries(),
        keys.totals(),
    ];
    for name in &settle_keys {
        let dead = Settlement::Dead(outcome(OutcomeClass::Permanent));
        let error =
            with_wrong_type(&outbox, name, settle(&outbox.client, keys, &leased.id, &leased.token, &dead)).await;
        assert_eq!(error, Some(ErrorKind::WrongType), "settle, {name}");
        let ids = [leased.id.clone()];
        let error = with_wrong_type(&outbox, name, act(&outbox.client, keys, DeliveryAction::Retry, &ids)).await;
        assert_eq!(error, Some(ErrorKind::WrongType), "retry, {name}");
    }
    for name in [keys.due(&Destination::none()), keys.waiting()] {
        let alice = subject("alice");
        let error =
            with_wrong_type(&outbox, &name, quotabell::outbox::wake_subject(&outbox.client, keys, &alice)).await;
        assert_eq!(error, Some(ErrorKind::WrongType), "wake, {name}");
    }
    assert!(
        matches!(settled(&outbox, &leased, &Settlement::Muted(String::new())).await, SettleReply::Done(_)),
        "nothing was lost on the way"
    );
}

/// If Redis can't add to a total, that must be found before the delivery is ended, or totals and deliveries would never
/// agree.
#[tokio::test]
async fn a_total_that_is_no_number_raises_and_writes_nothing() {
    let outbox = Outbox::start();
    one_due(&outbox).await;
    let leased = outbox.lease_one("t", LONG).await;
    let totals = outbox.keys.totals();
    let dead = Settlement::Dead(outcome(OutcomeClass::Permanent));
    for value in ["", "many", "007", "99999999999999999999"] {
        let () = outbox.run("HSET", &[totals.as_str(), "dead", value]).await;
        let before = outbox.dump().await;
        let call = settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &dead).await;
        assert_eq!(call.expect_err("refused").error_kind(), ErrorKind::WrongType, "{value:?}");
        assert_eq!(outbox.dump().await, before, "{value:?}");
    }
    let () = outbox.run("HDEL", &[totals.as_str(), "dead"]).await;
    assert!(matches!(settled(&outbox, &leased, &dead).await, SettleReply::Done(_)));
    let () = outbox.run("HSET", &[totals.as_str(), "dead", "007"]).await;
    let before = outbox.dump().await;
    let ids = std::slice::from_ref(&leased.id);
    let call = act(&outbox.client, &outbox.keys, DeliveryAction::Replay, ids).await;
    assert_eq!(call.expect_err("refused").error_kind(), ErrorKind::WrongType);
    assert_eq!(outbox.dump().await, before);
}

/// Puts a string at `name` during the call; checks that the call wrote nothing; returns the kind of its error.
async fn with_wrong_type<T>(
    outbox: &Outbox,
    name: &str,
    call: impl Future<Output = Result<T, quotabell::outbox::OutboxError>>,
) -> Option<ErrorKind> {
    let aside = format!("{name}.aside");
    let there: i64 = outbox.run("EXISTS", name).await;
    if there == 1 {
        let () = outbox.run("RENAME", &[name, &aside]).await;
    }
    let () = outbox.run("SET", &[name, "x"]).await;
    let before = outbox.dump().await;
    let kind = call.await.err().map(|error| error.error_kind());
    assert_eq!(outbox.dump().await, before, "{name}");
    let () = outbox.run("DEL", name).await;
    if there == 1 {
        let () = outbox.run("RENAME", &[aside.as_str(), name]).await;
    }
    kind
}

/// A replay must restore this delivery with a fresh clock, and must not touch any other.
#[tokio::test]
async fn a_replay_takes_dead_deliveries_only_and_starts_their_clock_over() {
    let outbox = Outbox::start();
    let (dead, live) = (alert(&subject("dead"), 80), alert(&subject("live"), 80));
    outbox.fan_out_new(&dead, &[email("a")]).await;
    for n in 0..3 {
        let leased = outbox.lease_one(&format!("t{n}"), LONG).await;
        let transient = outcome(OutcomeClass::Transient);
        let end = if n == 2 { Settlement::Dead(transient) } else { Settlement::Retry(transient, Duration::ZERO) };
        settled(&outbox, &leased, &end).await;
    }
    outbox.fan_out_new(&live, &[email("a")]).await;
    let id = delivery(&dead, &email("a"));
    assert_eq!(outbox.assert_balanced().await.dead, 1);

    let ids = [id.clone(), delivery(&live, &email("a")), DeliveryId::from_stored("delivery_x"), id.clone()];
    let answers = act(&outbox.client, &outbox.keys, DeliveryAction::Replay, &ids).await.expect("replay works");
    let pending = ActionReply::InState(DeliveryState::Pending);
    assert_eq!(answers, [ActionReply::Done, pending, ActionReply::Missing, pending]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.dead, totals.dead_kept, totals.pending, totals.made), (0, 0, 2, 2));
    assert_eq!(outbox.run::<i64>("TTL", outbox.keys.delivery(&id)).await, -1, "it is durable again");

    let lease = outbox.lease("again", LONG).await;
    let again = lease.leased.iter().find(|leased| leased.id == id).expect("due now");
    assert_eq!((again.attempts, again.attempt_since_replay, again.first_attempt), (4, 1, lease.now));
    settled(&outbox, again, &Settlement::Released(Duration::ZERO)).await;
    assert_eq!(
        outbox.field(&id, "first_attempt_at_ms").await,
        None,
        "the first attempt since the replay did not take place"
    );
    let again = outbox.lease_one("more", LONG).await;
    settled(&outbox, &again, &Settlement::Delivered(outcome(OutcomeClass::Delivered))).await;
    let detail = show(&outbox.partition(), &[], &id).await.expect("readable").expect("there");
    assert_eq!((detail.delivery.attempts, detail.attempt_log.len()), (4, 4), "the attempts before are still there");
    outbox.assert_balanced().await;
}

/// The lists of ids must shrink with their hashes, also behind old pending ones.
#[tokio::test]
async fn ids_whose_hash_expired_are_trimmed_bit_by_bit() {
    let outbox = Outbox::start();
    let keys = &outbox.keys;
    let old_pending = alert(&subject("old"), 80);
    outbox.fan_out_new(&old_pending, &[email("a")]).await;
    let kept = delivery(&old_pending, &email("a"));
    let () = outbox.run("ZADD", &[keys.deliveries().as_str(), "0", kept.as_str()]).await;
    for n in 0..100 {
        for list in [keys.deliveries(), keys.dead()] {
            let () = outbox.run("ZADD", &[list, (n + 1).to_string(), format!("delivery_gone{n}")]).await;
        }
    }
    let call = std::cell::Cell::new(0);
    let leased = std::cell::RefCell::new(outbox.lease_one("t", LONG).await);
    until("all that is gone is trimmed", || async {
        call.set(call.get() + 1);
        let current = leased.borrow().clone();
        settled(&outbox, &current, &Settlement::Released(Duration::ZERO)).await;
        *leased.borrow_mut() = outbox.lease_one(&format!("t{}", call.get()), LONG).await;
        let left: Vec<String> = outbox.run("ZRANGE", &[keys.deliveries().as_str(), "0", "-1"]).await;
        left == [kept.as_str()] && outbox.totals().await.dead_kept == 0
    })
    .await;
    assert!(call.get() >= 6, "at most 16 ids a call");
}

/// A delivery without its hash has no readable subject: if it stayed pending, the list of its subject would be kept
/// forever.
#[tokio::test]
async fn a_delivery_without_a_hash_leaves_the_list_of_its_subject() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let list = format!("{}{alice}", outbox.keys.subject_deliveries_prefix());
    outbox.fan_out_new(&alert(&alice, 80), &[email("a"), webhook("w")]).await;
    let () = outbox.run("DEL", outbox.keys.delivery(&delivery(&alert(&alice, 80), &email("a")))).await;
    let answer = outbox.lease("t", LONG).await;
    assert_eq!((answer.dropped.len(), answer.leased.len()), (1, 1));
    settled(&outbox, &answer.leased[0], &Settlement::Delivered(outcome(OutcomeClass::Delivered))).await;
    let listed: Vec<String> = outbox.run("ZRANGE", &[list.as_str(), "0", "-1"]).await;
    assert_eq!(listed, [answer.leased[0].id.as_str()]);
    assert!(outbox.run::<i64>("TTL", list.as_str()).await > 0, "it ends with its last delivery");
}

/// A list that expires before its deliveries would hide them from an erasure; a permanent list would stay for every
/// subject.
#[tokio::test]
async fn the_deliveries_of_a_subject_are_listed_for_as_long_as_they_are_kept() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let list = format!("{}{alice}", outbox.keys.subject_deliveries_prefix());
    let ttl_s = || outbox.run::<i64>("TTL", list.as_str());
    outbox.fan_out_new(&alert(&alice, 80), &[email("a"), webhook("w")]).await;
    let leased = outbox.lease("t", LONG).await.leased;
    assert_eq!((leased.len(), ttl_s().await), (2, -1), "both are pending");
    settled(&outbox, &leased[0], &Settlement::Delivered(outcome(OutcomeClass::Delivered))).await;
    assert_eq!(ttl_s().await, -1, "one is pending");
    settled(&outbox, &leased[1], &Settlement::Dead(outcome(OutcomeClass::Permanent))).await;
    assert!((14 * 86_400..=14 * 86_400 + 60).contains(&ttl_s().await), "{}", ttl_s().await);
    outbox.assert_balanced().await;
    let ids = std::slice::from_ref(&leased[1].id);
    act(&outbox.client, &outbox.keys, DeliveryAction::Replay, ids).await.expect("it works");
    assert_eq!(ttl_s().await, -1, "it is pending again");
    act(&outbox.client, &outbox.keys, DeliveryAction::Cancel, ids).await.expect("it works");
    assert!(ttl_s().await > 0);
    outbox.assert_balanced().await;

    // Expired ids leave the list when the next delivery ends.
    let () = outbox.run("DEL", &[outbox.keys.delivery(&leased[0].id), outbox.keys.delivery(&leased[1].id)]).await;
    let passed = [list.as_str(), "1", leased[0].id.as_str(), "1", leased[1].id.as_str()];
    let _: u64 = outbox.run("ZADD", &passed).await;
    outbox.fan_out_new(&alert(&alice, 100), &[email("a")]).await;
    assert_eq!(ttl_s().await, -1);
    settled(&outbox, &outbox.lease_one("t", LONG).await, &Settlement::Delivered(outcome(OutcomeClass::Delivered)))
        .await;
    assert_eq!(outbox.run::<u64>("ZCARD", list.as_str()).await, 1);
}
