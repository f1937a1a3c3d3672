//! Deliveries that leave in one message, on a real Redis: which ones form a set, and what becomes of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::outbox::{LONG, Outbox, SHORT, alert, delivery, delivery_config, email, outcome, subject};
use quotabell::contacts::Contact;
use quotabell::outbox::{
    AttemptRequest, DeliveryAction, FanOutRequest, FanOutSource, LeasedDelivery, Recipients, SettleReply,
    SettleRequest, Settlement, act, fan_out,
};
use quotabell::types::{Alert, DeliveryId, Notification, OutcomeClass, UnixMs};

use crate::support::grant_notices::grant_notice;
use crate::support::outbox::{json, until};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, until_ended};

const HOUR_MS: i64 = 3_600_000;

/// A contact with a digest.
fn gathering(interval: &str) -> Contact {
    let mut contact = email("a");
    contact.filter.digest = Some(interval.parse().expect("legal"));
    contact
}

/// Alerts of one subject below its limit.
fn alerts(percents: impl IntoIterator<Item = u16>) -> Vec<Alert> {
    percents.into_iter().map(|percent| alert(&subject("alice"), percent)).collect()
}

async fn fan_out_each(outbox: &Outbox, alerts: &[Alert], contact: &Contact) -> Vec<DeliveryId> {
    for alert in alerts {
        outbox.fan_out_new(alert, std::slice::from_ref(contact)).await;
    }
    alerts.iter().map(|alert| delivery(alert, contact)).collect()
}

async fn do_now(outbox: &Outbox, action: DeliveryAction, id: &DeliveryId) {
    let replies = act(&outbox.client, &outbox.keys, action, std::slice::from_ref(id)).await.expect("it works");
    assert_eq!(replies, [quotabell::outbox::ActionReply::Done], "{action:?}");
}

/// Ends the leases of one message in one call.
async fn settle(outbox: &Outbox, ends: &[(&LeasedDelivery, Settlement)]) {
    let request = |(leased, settlement): &(&LeasedDelivery, Settlement)| SettleRequest {
        id: leased.id.clone(),
        channel: leased.channel,
        token: leased.token.clone(),
        settlement: settlement.clone(),
        inherited: None,
        address: None,
        message_id: leased.set.as_ref().map(|set| set.message_id.clone()),
    };
    let requests: Vec<SettleRequest> = ends.iter().map(request).collect();
    let requests: Vec<&SettleRequest> = requests.iter().collect();
    let settled = quotabell::outbox::settle(&outbox.client, &outbox.keys, &delivery_config(1), &requests).await;
    let answers = settled.expect("it works").answers;
    assert!(answers.iter().all(|answer| matches!(answer, SettleReply::Done(_))), "{answers:?}");
}

fn ids(leased: &[LeasedDelivery]) -> BTreeSet<DeliveryId> {
    leased.iter().map(|leased| leased.id.clone()).collect()
}

/// The message of the leased deliveries and the number of this attempt; all must have the same.
fn message(leased: &[LeasedDelivery]) -> (String, u32) {
    let set = leased[0].set.clone().expect("a set");
    assert!(leased.iter().all(|leased| leased.set.as_ref() == Some(&set)), "{leased:?}");
    (set.message_id, set.attempt)
}

fn retry() -> Settlement {
    Settlement::Retry(outcome(OutcomeClass::Transient), Duration::ZERO)
}

fn delivered() -> Settlement {
    Settlement::Delivered(outcome(OutcomeClass::Delivered))
}

async fn grouped(outbox: &Outbox) -> u64 {
    outbox.run("ZCARD", outbox.keys.grouped()).await
}

/// What joined a message after a receiver had seen its id would be dropped as a repetition.
#[tokio::test]
async fn a_digest_leaves_whole_and_nothing_joins_it_after_its_first_attempt() {
    let outbox = Outbox::start();
    let contact = gathering("1h");
    let first = fan_out_each(&outbox, &alerts([50, 60, 70]), &contact).await;
    let dues: BTreeSet<Option<i64>> =
        [outbox.due(&first[0]).await, outbox.due(&first[1]).await, outbox.due(&first[2]).await].into();
    let now = outbox.totals().await.now.0;
    let [Some(due)] = dues.into_iter().collect::<Vec<_>>()[..] else { panic!("they are due together") };
    assert!(due > now + HOUR_MS - 60_000 && due <= now + HOUR_MS, "{}", due - now);
    assert_eq!(outbox.lease("t0", LONG).await.leased, [], "they wait");

    do_now(&outbox, DeliveryAction::Retry, &first[1]).await;
    let leased = outbox.lease("t1", LONG).await.leased;
    let (message_id, attempt) = message(&leased);
    assert_eq!((ids(&leased), attempt), (first.iter().cloned().collect(), 1));
    assert!(message_id.starts_with("digest_") && message_id.len() == 39, "{message_id}");
    let in_flight: u64 = outbox.run("ZCARD", format!("{}email", outbox.keys.leased_prefix())).await;
    assert_eq!(in_flight, 1, "one message is one attempt");
    for id in &first {
        let replies = act(&outbox.client, &outbox.keys, DeliveryAction::Cancel, std::slice::from_ref(id)).await;
        assert_eq!(replies.expect("it works"), [quotabell::outbox::ActionReply::Leased]);
    }

    let late = fan_out_each(&outbox, &alerts([80]), &contact).await;
    settle(&outbox, &leased.iter().map(|leased| (leased, retry())).collect::<Vec<_>>()).await;
    let bound: String =
        outbox.run("HGET", &[format!("{}email", outbox.keys.destination_prefix()), "failures".into()]).await;
    assert_eq!(bound, "1", "one failure of the destination");
    let again = outbox.lease("t2", LONG).await.leased;
    assert_eq!((ids(&again), message(&again)), (ids(&leased), (message_id.clone(), 2)));
    settle(&outbox, &again.iter().map(|leased| (leased, delivered())).collect::<Vec<_>>()).await;

    do_now(&outbox, DeliveryAction::Retry, &late[0]).await;
    let other = outbox.lease("t3", LONG).await.leased;
    assert_eq!((ids(&other), message(&other).1), (late.into_iter().collect(), 1));
    assert_ne!(message(&other).0, message_id);
    settle(&outbox, &[(&other[0], delivered())]).await;
    assert_eq!((outbox.assert_balanced().await.delivered, grouped(&outbox).await), (4, 0));
}

/// What a message left without must not go under its id, and what may have been in it must.
#[tokio::test]
async fn what_waits_at_the_first_attempt_leaves_the_set_and_later_stays() {
    let outbox = Outbox::start();
    let contact = gathering("1s");
    let all = fan_out_each(&outbox, &alerts([50, 60]), &contact).await;
    do_now(&outbox, DeliveryAction::Retry, &all[0]).await;
    let leased = outbox.lease("t1", LONG).await.leased;
    let (first, _) = message(&leased);
    let (quiet, sent) = (&leased[0], &leased[1]);
    settle(&outbox, &[(quiet, Settlement::Released(Duration::ZERO)), (sent, delivered())]).await;
    let alone = outbox.lease("t2", SHORT).await.leased;
    let (second, attempt) = message(&alone);
    assert_eq!((alone.len(), &alone[0].id, attempt), (1, &quiet.id, 1));
    assert_ne!(second, first);

    // The holder of this lease died, perhaps after it had sent.
    outbox.let_time_pass(&quiet.id).await;
    for token in ["t3", "t4"] {
        let again = outbox.lease(token, LONG).await.leased;
        assert_eq!(message(&again), (second.clone(), 2), "an attempt that does not take place is not counted");
        settle(&outbox, &[(&again[0], Settlement::Released(Duration::ZERO))]).await;
    }
    assert_eq!(grouped(&outbox).await, 1);
}

/// A daemon that is killed while it sends must find what it sent, and nothing that it held back: a receiver that knows
/// the id would drop it.
#[tokio::test]
async fn what_is_held_back_has_left_the_set_before_the_others_are_sent() {
    let outbox = Outbox::start();
    let raised = alerts([80, 100]);
    outbox.set_contacts(&subject("alice"), &json(&[email("a")])).await;
    for alert in &raised {
        outbox.raise(alert).await;
    }
    let is_warning = |request: &AttemptRequest<'_>| matches!(request.notification, Notification::Alert(alert) if alert.threshold_units < 5000);
    let notifier = FakeNotifier::holding_back(is_warning, |_| FakeAttempt::Gate);
    let loops = Loops::start(&outbox, &notifier, Setting::default());
    until("one is being sent", || async { notifier.running.load(Ordering::SeqCst) == 1 }).await;
    let [quiet, sent] = [0, 1].map(|at: usize| delivery(&raised[at], &email("a")));
    assert_eq!(notifier.seen().iter().map(|seen| &seen.delivery).collect::<Vec<_>>(), [&sent]);
    assert!(outbox.field(&sent, "sent_in").await.is_some());
    assert_eq!(outbox.field(&quiet, "sent_in").await, None, "it is not of the message");
    notifier.open();
    loops.drain().await;
    assert_eq!((outbox.state(&sent).await.as_str(), outbox.state(&quiet).await.as_str()), ("delivered", "pending"));
}

/// Contacts of one subject that nobody can read must not keep others from being told.
#[tokio::test]
async fn what_cannot_be_judged_later_does_not_hold_the_others() {
    let outbox = Outbox::start();
    let fallback = gathering("1s");
    let raised = ["alice", "bob"].map(|name| alert(&subject(name), 80));
    for alert in &raised {
        outbox.raise(alert).await;
    }
    let notifier = FakeNotifier::new(|due| match due.attempt_since_replay {
        1 => FakeAttempt::FailAtGate,
        _ => FakeAttempt::Deliver,
    });
    let loops = Loops::start(&outbox, &notifier, Setting { fallback: vec![fallback.clone()], ..Setting::default() });
    until("both are being sent", || async { notifier.running.load(Ordering::SeqCst) == 1 }).await;
    let [alice, bob] = raised.map(|alert| delivery(&alert, &fallback));
    let first = outbox.field(&bob, "sent_in").await;
    assert_eq!((first.is_some(), outbox.field(&alice, "sent_in").await), (true, first), "one message");
    outbox.set_contacts(&subject("alice"), "no JSON").await;
    notifier.open();
    until("bob is told", || async { outbox.state(&bob).await == "delivered" }).await;
    assert_eq!((outbox.state(&alice).await.as_str(), outbox.field(&alice, "sent_in").await), ("pending", None));
    outbox.set_contacts(&subject("alice"), "[]").await;
    do_now(&outbox, DeliveryAction::Retry, &alice).await;
    until_ended(&outbox, 2).await;
    loops.drain().await;
    assert_eq!((outbox.state(&alice).await.as_str(), grouped(&outbox).await), ("delivered", 0));
}

/// Until when a delivery waited is stored, because its contact may be another one, or none, when it is sent.
#[tokio::test]
async fn until_when_a_delivery_waited_is_stored_and_goes_to_the_contacts_that_replace_its_own() {
    let outbox = Outbox::start();
    let raised = alerts([50]);
    let all = fan_out_each(&outbox, &raised, &gathering("24h")).await;
    let due = outbox.due(&all[0]).await.map(UnixMs);
    do_now(&outbox, DeliveryAction::Retry, &all[0]).await;
    let leased = outbox.lease_one("t1", LONG).await;
    assert!(due.is_some() && leased.waited_until == due, "{:?} {due:?}", leased.waited_until);
    settle(&outbox, &[(&leased, Settlement::Quiet(Duration::from_secs(48 * 3600)))]).await;
    let morning = outbox.due(&all[0]).await.map(UnixMs);
    do_now(&outbox, DeliveryAction::Retry, &all[0]).await;
    let leased = outbox.lease_one("t2", LONG).await;
    assert!(morning > due && leased.waited_until == morning, "{:?} {morning:?}", leased.waited_until);
    settle(&outbox, &[(&leased, Settlement::Released(Duration::ZERO))]).await;

    let leased = outbox.lease_one("t3", LONG).await;
    let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
    outbox.fan_out(source, &raised[0], &[email("b")]).await;
    let leased = outbox.lease_one("t4", LONG).await;
    assert_eq!((leased.id, leased.waited_until), (delivery(&raised[0], &email("b")), morning));
}

/// A notice that waits beyond its meaning would never be sent.
#[tokio::test]
async fn a_notice_that_would_expire_while_it_waits_is_sent_at_once() {
    for (expires_in_ms, waits) in [(HOUR_MS / 2, false), (2 * HOUR_MS, true)] {
        let outbox = Outbox::start();
        let now = outbox.totals().await.now;
        let notice = grant_notice(&subject("alice"), now.plus(expires_in_ms));
        let entry = outbox.raise_notice(&notice).await;
        let recipients = Recipients { contacts: vec![gathering("1h")], ..Recipients::default() };
        let json = serde_json::to_vec(&notice).expect("JSON");
        let source = FanOutSource::Outbox { entry: &entry };
        let request = FanOutRequest { source, notification: (&notice).into(), json: &json, recipients: &recipients };
        fan_out(&outbox.client, &outbox.keys, &[request]).await.expect("it works");
        let leased = outbox.lease("t1", LONG).await.leased;
        assert_eq!((leased.is_empty(), grouped(&outbox).await), (waits, u64::from(waits)), "{expires_in_ms}");
        assert!(leased.iter().all(|leased| leased.set.is_none() && leased.waited_until.is_none()), "{leased:?}");
    }
}

/// A group of thousands must neither be one message nor lose any of its alerts.
#[tokio::test]
async fn a_large_group_leaves_in_several_messages() {
    let outbox = Outbox::start();
    let contact = gathering("1s");
    let all = fan_out_each(&outbox, &alerts(10..80), &contact).await;
    for id in &all {
        outbox.let_time_pass(id).await;
    }
    let leased = outbox.lease("t1", LONG).await.leased;
    assert_eq!(ids(&leased), all.iter().cloned().collect());
    let mut sizes: Vec<usize> = leased.chunk_by(|one, next| one.set == next.set).map(<[_]>::len).collect();
    sizes.sort_unstable();
    let messages: BTreeSet<String> =
        leased.iter().map(|leased| leased.set.clone().expect("a set").message_id).collect();
    assert_eq!((sizes, messages.len()), (vec![10, 30, 30], 3));
}

/// Each delivery keeps its own end: a cancelled, erased or replayed one leaves the others as they are.
#[tokio::test]
async fn a_member_is_cancelled_and_replayed_by_itself() {
    let outbox = Outbox::start();
    let contact = gathering("1h");
    let all = fan_out_each(&outbox, &alerts([50, 60, 70]), &contact).await;
    do_now(&outbox, DeliveryAction::Retry, &all[0]).await;
    let leased = outbox.lease("t1", LONG).await.leased;
    let (message_id, _) = message(&leased);
    settle(&outbox, &leased.iter().map(|leased| (leased, retry())).collect::<Vec<_>>()).await;
    do_now(&outbox, DeliveryAction::Cancel, &all[0]).await;
    let rest = outbox.lease("t2", LONG).await.leased;
    assert_eq!((ids(&rest), message(&rest)), (all[1..].iter().cloned().collect(), (message_id.clone(), 2)));
    let dead = Settlement::Dead(outcome(OutcomeClass::Permanent));
    settle(&outbox, &rest.iter().map(|leased| (leased, dead.clone())).collect::<Vec<_>>()).await;
    assert_eq!(grouped(&outbox).await, 0);

    // Receivers know the message with three: under its id they would drop one with less.
    do_now(&outbox, DeliveryAction::Replay, &all[2]).await;
    let replayed = outbox.lease("t3", LONG).await.leased;
    assert_eq!((ids(&replayed), message(&replayed).1), ([all[2].clone()].into(), 1));
    assert_ne!(message(&replayed).0, message_id);
    settle(&outbox, &[(&replayed[0], delivered())]).await;
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.cancelled, totals.dead, totals.delivered, grouped(&outbox).await), (1, 1, 1, 0));
}

/// If the list of groups is lost, nothing may be sent under the id of a message that had others too.
#[tokio::test]
async fn without_the_list_each_leaves_alone() {
    let outbox = Outbox::start();
    let all = fan_out_each(&outbox, &alerts([50, 60]), &gathering("1s")).await;
    do_now(&outbox, DeliveryAction::Retry, &all[0]).await;
    let leased = outbox.lease("t1", LONG).await.leased;
    settle(&outbox, &leased.iter().map(|leased| (leased, retry())).collect::<Vec<_>>()).await;
    let () = outbox.run("DEL", outbox.keys.grouped()).await;
    let again = outbox.lease("t2", LONG).await.leased;
    assert_eq!((again.len(), again.iter().all(|leased| leased.set.is_none())), (2, true));
}

/// The alerts of one commit are one email and one body for each; those of other commits are other emails.
#[tokio::test]
async fn the_alerts_of_one_commit_are_one_message_to_people() {
    let outbox = Outbox::start();
    let raised = alerts([50, 60]);
    let webhook = crate::support::outbox::webhook("b");
    let recipients = Recipients { contacts: vec![email("a"), webhook.clone()], ..Recipients::default() };
    let entries = [outbox.raise(&raised[0]).await, outbox.raise(&raised[1]).await];
    let json: Vec<Vec<u8>> = raised.iter().map(|alert| serde_json::to_vec(alert).expect("JSON")).collect();
    let request = |at: usize| FanOutRequest {
        source: FanOutSource::Outbox { entry: &entries[at] },
        notification: (&raised[at]).into(),
        json: &json[at],
        recipients: &recipients,
    };
    fan_out(&outbox.client, &outbox.keys, &[request(0), request(1)]).await.expect("it works");
    let leased = outbox.lease("t1", LONG).await.leased;
    let (to_people, to_programs): (Vec<_>, Vec<_>) = leased.into_iter().partition(|leased| leased.set.is_some());
    assert_eq!(message(&to_people).1, 1);
    assert_eq!(ids(&to_people), raised.iter().map(|alert| delivery(alert, &email("a"))).collect());
    assert_eq!(ids(&to_programs), raised.iter().map(|alert| delivery(alert, &webhook)).collect());
}
