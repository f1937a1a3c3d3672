//! Queries about deliveries on a real server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::outbox::{EXPIRES_AT, LONG, Outbox, alert, delivery, email, outcome, settle, subject};
use quotabell::contacts::Contact;
use quotabell::outbox::Settlement;
use quotabell::types::{Channel, DeliveryId, DeliveryState, OutcomeClass};
use quotabell::views::deliveries::{list, show};
use quotabell::views::{DeliveryFilter, DeliveryView};

fn in_state(state: DeliveryState) -> DeliveryFilter {
    DeliveryFilter { state: Some(state), ..DeliveryFilter::default() }
}

/// Every slice of a list.
async fn listed(outbox: &Outbox, filter: &DeliveryFilter) -> Vec<DeliveryView> {
    let mut all = Vec::new();
    let mut from = None;
    loop {
        let slice = list(&outbox.partition(), filter, from, 300).await.expect("readable");
        all.extend(slice.deliveries);
        from = slice.next;
        if from.is_none() {
            return all;
        }
    }
}

/// Many deliveries are created in one millisecond: a list that pages only by time would skip or repeat them, or never
/// end.
#[tokio::test]
async fn a_list_is_complete_and_repeats_nothing_also_within_one_millisecond() {
    let outbox = Outbox::start();
    for n in 0..1130 {
        outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[email("a")]).await;
    }
    for list_key in [outbox.keys.deliveries(), outbox.keys.pending()] {
        // The first 1,100 at one moment, the others later.
        let ids: Vec<String> = outbox.run("ZRANGE", &[list_key.as_str(), "0", "1099"]).await;
        let mut command = redis::cmd("ZADD");
        command.arg(&list_key);
        for id in &ids {
            command.arg(1_700_000_000_000_i64).arg(id);
        }
        let () = outbox.client.query(&command).await.expect("ZADD works");
    }
    for state in [None, Some(DeliveryState::Pending)] {
        let all = listed(&outbox, &DeliveryFilter { state, ..DeliveryFilter::default() }).await;
        assert_eq!(all.len(), 1130);
        assert_eq!(all.iter().map(|view| &view.id).collect::<BTreeSet<_>>().len(), 1130);
        assert!(all[..30].is_sorted_by(|newer, older| newer.created_at >= older.created_at), "the newest first");
    }
    assert!(listed(&outbox, &in_state(DeliveryState::Dead)).await.is_empty());
    // One script creates them at one moment.
    let contacts: Vec<Contact> = (0..640).map(|n| email(&n.to_string())).collect();
    outbox.fan_out_new(&alert(&subject("many"), 80), &contacts).await;
    for state in [None, Some(DeliveryState::Pending)] {
        let all =
            listed(&outbox, &DeliveryFilter { state, subject: Some(subject("many")), ..DeliveryFilter::default() })
                .await;
        assert_eq!(all.iter().map(|view| &view.id).collect::<BTreeSet<_>>().len(), 640);
        assert_eq!(all.len(), 640);
    }
}

/// `deliveries list` prints these filters and fields.
#[tokio::test]
async fn a_list_shows_state_due_time_and_error() {
    let outbox = Outbox::start();
    let (alice, bob) = (subject("alice"), subject("bob"));
    outbox.fan_out_new(&alert(&alice, 80), &[email("a")]).await;
    let leased = outbox.lease_one("t", LONG).await;
    let dead = Settlement::Dead(outcome(OutcomeClass::Permanent));
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &dead).await.expect("settles");
    outbox.fan_out_new(&alert(&alice, 100), &[email("a")]).await;
    outbox.fan_out_new(&alert(&bob, 80), &[]).await;

    let of_alice = listed(&outbox, &DeliveryFilter { subject: Some(alice.clone()), ..DeliveryFilter::default() }).await;
    assert_eq!(of_alice.len(), 2);
    let dead = listed(&outbox, &DeliveryFilter { subject: Some(alice.clone()), ..in_state(DeliveryState::Dead) }).await;
    let [dead] = dead.as_slice() else { panic!("one is dead: {dead:?}") };
    assert_eq!((dead.attempts, dead.next_due, dead.last_error.as_deref()), (1, None, Some("receiver answered 503")));
    assert_eq!((&dead.alert_id, dead.subject.as_str()), (&Some(alert(&alice, 80).id), "alice"));
    let of_bob = listed(&outbox, &DeliveryFilter { subject: Some(bob), ..in_state(DeliveryState::Pending) }).await;
    assert_eq!(of_bob[0].channel, Channel::None);
    assert_eq!(of_bob[0].next_due.map(|due| due.0), Some(EXPIRES_AT));
    assert!(
        listed(&outbox, &DeliveryFilter { subject: Some(subject("bob")), ..in_state(DeliveryState::Dead) })
            .await
            .is_empty()
    );
}

/// The attempts of a delivery must be in their order, not in that of the hash.
#[tokio::test]
async fn show_lists_the_attempts_in_order() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    outbox.fan_out_new(&alert, &[email("a")]).await;
    for n in 0..12_u64 {
        let leased = outbox.lease_one(&format!("t{n}"), LONG).await;
        let mut failed = outcome(OutcomeClass::Transient);
        failed.took = Duration::from_millis(n);
        let retry = Settlement::Retry(failed, Duration::ZERO);
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &retry).await.expect("settles");
    }
    let id = delivery(&alert, &email("a"));
    let detail = show(&outbox.partition(), &[], &id).await.expect("readable").expect("there");
    let took: Vec<u64> = detail.attempt_log.iter().map(|attempt| attempt.duration_ms).collect();
    assert_eq!(took, (0..12).collect::<Vec<_>>());
    assert_eq!(detail.delivery.attempts, 12);
    assert!(show(&outbox.partition(), &[], &DeliveryId::from_stored("x")).await.expect("readable").is_none());
}

/// The age of the oldest pending delivery causes an alarm.
#[tokio::test]
async fn totals_name_the_oldest_pending_delivery() {
    let outbox = Outbox::start();
    assert_eq!(outbox.totals().await.oldest_pending, None);
    outbox.fan_out_new(&alert(&subject("alice"), 80), &[email("a")]).await;
    let first = listed(&outbox, &DeliveryFilter::default()).await[0].created_at.0;
    outbox.fan_out_new(&alert(&subject("bob"), 80), &[email("a")]).await;
    outbox.raise(&alert(&subject("carol"), 80)).await;
    let totals = outbox.totals().await;
    assert_eq!((totals.oldest_pending, totals.outbox, totals.pending), (Some(first), 1, 2));
    assert!(totals.now >= first);
}
