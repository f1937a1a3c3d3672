//! The operator's actions on deliveries, on a real server: retry, cancel, discard, and the pause of all sending.

use std::time::Duration;

use crate::support::books::with_dead;
use crate::support::outbox::{
    LONG, Outbox, alert, all_due, delivery, email, outcome, settle, subject, waiting_delivery, webhook,
};
use quotabell::outbox::{
    ActionReply, DeliveryAction, FanOutReply, FanOutSource, Settlement, act, lease, pause, read_pause, resume,
};
use quotabell::redis_client::Partitions;
use quotabell::types::{DeliveryId, DeliveryState, Keys, Outcome, OutcomeClass, PartitionNumber};
use quotabell::views::deliveries::{list_all, list_destinations, list_from, show};
use quotabell::views::{Cursor, DeliveryFilter};

async fn answers(outbox: &Outbox, action: DeliveryAction, ids: &[DeliveryId]) -> Vec<ActionReply> {
    let replies = act(&outbox.client, &outbox.keys, action, ids).await.expect("it works");
    outbox.assert_balanced().await;
    replies
}

/// Leases the only due delivery and lets its attempt fail, with a retry in hours.
async fn fail(outbox: &Outbox, token: &str) {
    let leased = outbox.lease_one(token, LONG).await;
    let failed = Outcome { status: None, ..outcome(OutcomeClass::Transient) };
    let retry = Settlement::Retry(failed, Duration::from_secs(3600));
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &retry).await.expect("settles");
}

/// After a repair of the mail server the operator must not have to wait, and the delivery must keep everything else.
#[tokio::test]
async fn a_retry_makes_due_now_and_changes_nothing_else_of_the_destination() {
    let outbox = Outbox::start();
    let raised = alert(&subject("alice"), 80);
    outbox.fan_out_new(&raised, &[webhook("a")]).await;
    fail(&outbox, "t").await;
    let id = delivery(&raised, &webhook("a"));
    let state = format!("{}https://a.test", outbox.keys.destination_prefix());
    // Its circuit is open for a long time.
    let far = outbox.totals().await.now.plus(900_000).0.to_string();
    let open = [state.as_str(), "bound", "1", "failures", "9", "probe_at_ms", &far, "probes", "4"];
    let () = outbox.run("HSET", &open).await;
    assert!(outbox.due(&id).await > Some(outbox.totals().await.now.0));
    let other = alert(&subject("bob"), 80);
    outbox.fan_out_new(&other, &[webhook("b")]).await;
    let of_bob = outbox.due(&delivery(&other, &webhook("b"))).await;

    assert_eq!(answers(&outbox, DeliveryAction::Retry, std::slice::from_ref(&id)).await, [ActionReply::Done]);
    let now = outbox.totals().await.now.0;
    assert!(outbox.due(&id).await <= Some(now), "due now");
    let fields: Vec<String> = outbox.run("HMGET", &[state.as_str(), "bound", "failures", "probes"]).await;
    assert_eq!(fields, ["1", "9", "4"], "nothing is forgiven");
    let probe: i64 = outbox.run("HGET", &[state.as_str(), "probe_at_ms"]).await;
    assert!(probe <= now, "the circuit gets its probe at once");
    assert_eq!(outbox.due(&delivery(&other, &webhook("b"))).await, of_bob, "others wait as before");
    let leased = lease(&outbox.client, &outbox.keys, all_due("probe", LONG)).await.expect("it works").leased;
    assert!(leased.iter().any(|leased| leased.id == id), "{leased:?}");

    // During its attempt nobody can act on it.
    for action in [DeliveryAction::Retry, DeliveryAction::Cancel] {
        let before = outbox.dump().await;
        assert_eq!(answers(&outbox, action, std::slice::from_ref(&id)).await, [ActionReply::Leased]);
        assert_eq!(outbox.dump().await, before, "{action:?}");
    }
}

/// An operator who tries whether a receiver works again must not delay the next attempt.
#[tokio::test]
async fn a_retry_that_fails_puts_off_no_automatic_attempt() {
    let outbox = Outbox::start();
    let raised = alert(&subject("alice"), 80);
    outbox.fan_out_new(&raised, &[webhook("a")]).await;
    let id = delivery(&raised, &webhook("a"));
    fail(&outbox, "first").await;
    let automatic = outbox.due(&id).await;
    for token in ["by hand", "again"] {
        assert_eq!(answers(&outbox, DeliveryAction::Retry, std::slice::from_ref(&id)).await, [ActionReply::Done]);
        assert!(outbox.due(&id).await < automatic, "due now");
        fail(&outbox, token).await;
        assert_eq!(outbox.due(&id).await, automatic);
    }
}

/// A cancelled delivery must neither return with its contact nor wait for one.
#[tokio::test]
async fn a_cancelled_delivery_stays_cancelled() {
    let outbox = Outbox::start();
    let raised = alert(&subject("alice"), 80);
    outbox.fan_out_new(&raised, &[email("a"), webhook("b")]).await;
    let id = delivery(&raised, &email("a"));
    let unknown = DeliveryId::from_stored("delivery_x");
    let ids = [id.clone(), unknown, id.clone()];
    let cancelled = ActionReply::InState(DeliveryState::Cancelled);
    let told = answers(&outbox, DeliveryAction::Cancel, &ids).await;
    assert_eq!(told, [ActionReply::Done, ActionReply::Missing, cancelled]);
    assert!(outbox.run::<i64>("TTL", outbox.keys.delivery(&id)).await > 0, "it leaves with the others");
    assert_eq!(outbox.due(&id).await, None, "its queue holds it no more");
    // The other contact is removed, so the alert is fanned out again.
    let leased = outbox.lease_one("t", LONG).await;
    let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
    let FanOutReply::Done(fanned) = outbox.fan_out(source, &raised, &[email("a")]).await else { panic!("not done") };
    assert_eq!((fanned.reopened.len(), outbox.state(&id).await.as_str()), (0, "cancelled"));

    let nobody = alert(&subject("bob"), 80);
    outbox.fan_out_new(&nobody, &[]).await;
    let waiting = waiting_delivery(&nobody);
    assert_eq!(answers(&outbox, DeliveryAction::Cancel, &[waiting]).await, [ActionReply::Done]);
    assert_eq!(outbox.totals().await.waiting, 0);
    for action in [DeliveryAction::Retry, DeliveryAction::Replay, DeliveryAction::Discard] {
        assert_eq!(answers(&outbox, action, std::slice::from_ref(&id)).await, [cancelled], "{action:?}");
    }
}

/// Discarded deliveries must end the alarm, but stay visible.
#[tokio::test]
async fn a_discarded_delivery_is_counted_no_more_and_stays_readable() {
    let (outbox, dead) = with_dead(&["alice", "bob"]).await;
    assert_eq!(answers(&outbox, DeliveryAction::Discard, &dead[..1]).await, [ActionReply::Done]);
    assert_eq!((outbox.totals().await.dead_kept, outbox.totals().await.dead), (1, 2));
    let filter = DeliveryFilter { state: Some(DeliveryState::Dead), ..DeliveryFilter::default() };
    let listed = list_all(&outbox.partition(), &filter, usize::MAX).await.expect("readable");
    assert_eq!(listed.iter().map(|view| &view.id).collect::<Vec<_>>(), [&dead[1]]);
    let shown = show(&outbox.partition(), &[], &dead[0]).await.expect("readable").expect("there");
    assert!(shown.delivery.state == DeliveryState::Dead && shown.delivery.discarded_at.is_some(), "{shown:?}");
    // It can still be sent again.
    assert_eq!(answers(&outbox, DeliveryAction::Retry, &dead[..1]).await, [ActionReply::Done]);
    let shown = show(&outbox.partition(), &[], &dead[0]).await.expect("readable").expect("there");
    assert_eq!((shown.delivery.state, shown.delivery.discarded_at), (DeliveryState::Pending, None));
}

/// During a pause no daemon may send, and nothing may be lost.
#[tokio::test]
async fn while_sending_is_paused_nothing_is_leased_and_fan_out_goes_on() {
    let outbox = Outbox::start();
    let partitions = Partitions::new(&outbox.server.client(), &outbox.keys);
    let before = alert(&subject("alice"), 80);
    outbox.fan_out_new(&before, &[webhook("a")]).await;
    pause(&partitions, Some("moving")).await.expect("it works");
    outbox.fan_out_new(&alert(&subject("bob"), 80), &[webhook("b")]).await;
    let answer = outbox.lease("t", LONG).await;
    assert_eq!((answer.leased.len(), answer.is_paused), (0, true));
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.pending, totals.outbox, totals.is_paused), (2, 0, true));
    let paused = read_pause(&outbox.client, &outbox.keys).await.expect("readable").expect("it is paused");
    assert_eq!(paused.reason.as_deref(), Some("moving"));
    assert!(paused.since.is_some_and(|since| since <= totals.now));
    resume(&partitions).await.expect("it works");
    assert_eq!(read_pause(&outbox.client, &outbox.keys).await.expect("readable"), None);
    let answer = outbox.lease("u", LONG).await;
    assert_eq!((answer.leased.len(), answer.is_paused), (2, false));
}

/// A right that is withdrawn at run time must not leave a delivery half cancelled or half replayed.
#[tokio::test]
async fn an_action_without_one_right_writes_nothing_and_names_it() {
    let (outbox, dead) = with_dead(&["alice"]).await;
    let pending = alert(&subject("bob"), 80);
    outbox.fan_out_new(&pending, &[email("b")]).await;
    let pending = delivery(&pending, &email("b"));
    let before = outbox.dump().await;
    let refuse = async |right: &str| outbox.run::<String>("ACL", &["SETUSER", "default", right]).await;
    for (action, id) in [
        (DeliveryAction::Replay, &dead[0]),
        (DeliveryAction::Retry, &pending),
        (DeliveryAction::Cancel, &pending),
        (DeliveryAction::Discard, &dead[0]),
    ] {
        for right in ["-hset", "-hdel", "-persist", "-expire", "-zadd", "-zrem", "-hincrby"] {
            refuse(right).await;
            let error = act(&outbox.client, &outbox.keys, action, std::slice::from_ref(id)).await.expect_err(right);
            refuse("+@all").await;
            let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let named = format!("may not run {}", right.trim_start_matches('-').to_uppercase());
            assert!(said.contains(&named), "{action:?} {right}: {said}");
            assert!(outbox.dump().await == before, "{action:?} {right}: something was written");
        }
    }
}

/// With several partitions a list must cover all of them, and continue each at its last position.
#[tokio::test]
async fn a_list_goes_through_every_partition_and_repeats_nothing() {
    let mut outbox = Outbox::start();
    let numbers: Vec<PartitionNumber> = PartitionNumber::all(3).collect();
    for number in &numbers {
        outbox.keys = Keys::of_partition("usage", *number);
        for n in 0..7 {
            let name = format!("p{}s{n}", number.get());
            outbox.fan_out_new(&alert(&subject(&name), 80), &[webhook("a")]).await;
        }
    }
    let partitions = Partitions::new(&outbox.server.client(), &Keys::of_partition("usage", numbers[0]));
    let (mut listed, mut after, mut calls) = (Vec::new(), None, 0);
    loop {
        calls += 1;
        let filter = DeliveryFilter { state: Some(DeliveryState::Pending), ..DeliveryFilter::default() };
        let (slice, next) = list_from(&partitions, &filter, after, 4).await.expect("readable");
        assert!(slice.len() <= 4);
        listed.extend(slice.into_iter().map(|view| view.subject));
        let Some(next) = next else { break };
        assert_eq!(Cursor(next).to_string().parse(), Ok(Cursor(next)), "what a caller sends back");
        after = Some(next);
    }
    assert!((6..=9).contains(&calls), "{calls} calls");
    let unique: std::collections::BTreeSet<&String> = listed.iter().collect();
    assert_eq!((listed.len(), unique.len()), (21, 21));
    let destinations = list_destinations(&partitions).await.expect("readable");
    let waiting: Vec<(u32, u64)> = destinations.iter().map(|one| (one.partition, one.waiting)).collect();
    assert_eq!(waiting, [(0, 7), (1, 7), (2, 7)], "each partition has a queue of its own");
}
