//! `fan_out.lua` on a real server: every reply, twice, and contacts that are added and removed.

use crate::support::outbox::{
    EXPIRES_AT, LONG, Outbox, alert, all_due, delivery, email, fan_out, outcome, settle, subject, until,
    waiting_delivery, webhook,
};
use quotabell::contacts::resolver::ContactResolver;
use quotabell::outbox::{
    FanOutReply, FanOutRequest, FanOutSource, LeasedDelivery, Recipients, SourceDisposition, wake_subject, wake_waiting,
};
use quotabell::redis_client::{ErrorKind, error_kind};
use quotabell::types::{Channel, Destination, Notification, OutcomeClass};

fn fanned(answer: FanOutReply) -> quotabell::outbox::FanOutResult {
    match answer {
        FanOutReply::Done(fanned) => fanned,
        other => panic!("not fanned out: {other:?}"),
    }
}

/// Wakes alerts that wait for a contact, after a fallback was added.
async fn wake_all(outbox: &Outbox) -> u64 {
    let contacts = ContactResolver::new(outbox.keys.clone(), vec![email("ops")]);
    let mut woken = 0;
    wake_waiting(&outbox.client, &outbox.keys, &contacts, |more| woken += more).await.expect("wake works");
    woken
}

/// Each contact must get exactly one delivery of an alert.
#[tokio::test]
async fn an_alert_becomes_one_delivery_per_contact_and_leaves_the_outbox() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    let contacts = [email("a"), webhook("w"), email("a")];
    let done = fanned(outbox.fan_out_new(&alert, &contacts).await);
    assert_eq!(done.source, SourceDisposition::Consumed);
    assert_eq!(done.made.iter().map(|made| made.channel).collect::<Vec<_>>(), [Channel::Email, Channel::Webhook]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.pending, totals.outbox), (2, 2, 0));
    let leased = outbox.lease("t", LONG).await.leased;
    assert_eq!(leased.len(), 2);
    assert!(leased.iter().all(|leased| leased.notification == Ok(Notification::Alert(alert.clone()))));
}

/// Lua passes at most 7,999 values to a command. A script that failed there had consumed the alert and created
/// deliveries that nobody found.
#[tokio::test]
async fn an_alert_for_more_contacts_than_one_command_takes_values_reaches_all_of_them() {
    const CONTACTS: usize = 9_000;
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    let contacts: Vec<_> = (0..CONTACTS).map(|number| email(&format!("a{number}"))).collect();
    assert_eq!(fanned(outbox.fan_out_new(&alert, &contacts).await).made.len(), CONTACTS);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.pending, totals.outbox), (CONTACTS as u64, CONTACTS as u64, 0));
}

/// After a lost reply the loop fans out again, which must create nothing twice.
#[tokio::test]
async fn a_second_run_finds_the_entry_gone_and_writes_nothing() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    let entry = outbox.raise(&alert).await;
    let source = FanOutSource::Outbox { entry: &entry };
    fanned(outbox.fan_out(source, &alert, &[email("a")]).await);
    let before = outbox.dump().await;
    assert_eq!(outbox.fan_out(source, &alert, &[email("a"), email("b")]).await, FanOutReply::Gone);
    assert_eq!(outbox.dump().await, before);
}

/// A contact that has an alert's delivery in any state must not get another one when the alert is fanned out again.
#[tokio::test]
async fn a_contact_gets_one_delivery_of_an_alert() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    fanned(outbox.fan_out_new(&alert, &[email("a")]).await);
    let again = fanned(outbox.fan_out_new(&alert, &[email("a"), email("b")]).await);
    assert_eq!(again.made.len(), 1);
    assert_eq!(again.made[0].id, delivery(&alert, &email("b")));
    assert_eq!(outbox.assert_balanced().await.made, 2);
}

/// Without a contact the alert must wait visibly, and be sent when a contact appears.
#[tokio::test]
async fn an_alert_without_contact_waits_and_goes_to_the_contact_that_appears() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let alert = alert(&alice, 80);
    let none = waiting_delivery(&alert);
    let done = fanned(outbox.fan_out_new(&alert, &[]).await);
    assert_eq!((done.made[0].channel, done.waiting), (Channel::None, 1));
    assert_eq!(outbox.due(&none).await, Some(EXPIRES_AT.0), "it sleeps");
    assert_eq!(outbox.lease("early", LONG).await.leased.len(), 0);

    // Woken without a contact: rescheduled, nothing created, no attempt counted.
    assert_eq!(wake_subject(&outbox.client, &outbox.keys, &alice).await.expect("wake works"), 1);
    let leased = outbox.lease_one("t1", LONG).await;
    let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
    let still = fanned(outbox.fan_out(source, &alert, &[]).await);
    assert_eq!((still.source, still.made.len(), still.waiting), (SourceDisposition::Rescheduled, 0, 1));
    assert_eq!(outbox.due(&none).await, Some(EXPIRES_AT.0), "it sleeps on");
    assert_eq!(outbox.field(&none, "attempts").await.as_deref(), Some("0"));
    assert_eq!(outbox.fan_out(source, &alert, &[]).await, FanOutReply::Stale);

    // Woken with a contact: it gets the alert, and the waiting delivery ends.
    assert_eq!(wake_all(&outbox).await, 1);
    let leased = outbox.lease_one("t2", LONG).await;
    let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
    let done = fanned(outbox.fan_out(source, &alert, &[email("a")]).await);
    assert_eq!((done.source, done.waiting), (SourceDisposition::Cancelled, 0));
    assert_eq!(outbox.state(&none).await, "cancelled");
    assert_eq!(outbox.lease_one("t3", LONG).await.id, delivery(&alert, &email("a")));
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.cancelled, totals.waiting), (2, 1, 0));
}

/// A contact that is removed, added and removed again must not take the alert with it.
#[tokio::test]
async fn contacts_that_come_and_go_never_leave_an_alert_without_a_pending_delivery() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    let (a, to_a, none) = (email("a"), delivery(&alert, &email("a")), waiting_delivery(&alert));
    fanned(outbox.fan_out_new(&alert, std::slice::from_ref(&a)).await);
    for round in 0..3 {
        // Removed: cancelled, and the alert waits.
        let leased = outbox.lease_one(&format!("removed{round}"), LONG).await;
        assert_eq!((&leased.id, leased.attempts), (&to_a, 1));
        let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
        assert_eq!(fanned(outbox.fan_out(source, &alert, &[]).await).source, SourceDisposition::Cancelled);
        assert_eq!((outbox.state(&to_a).await.as_str(), outbox.state(&none).await.as_str()), ("cancelled", "pending"));
        assert_eq!(outbox.field(&to_a, "attempts").await.as_deref(), Some("0"), "no attempt took place");
        assert_eq!(outbox.assert_balanced().await.waiting, 1);
        // Added again: the same delivery is pending, without an end and without a TTL.
        outbox.let_time_pass(&none).await;
        let leased = outbox.lease_one(&format!("back{round}"), LONG).await;
        let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
        let back = fanned(outbox.fan_out(source, &alert, std::slice::from_ref(&a)).await);
        assert_eq!((back.source, back.made.len(), back.reopened.len()), (SourceDisposition::Cancelled, 0, 1));
        assert_eq!(outbox.state(&to_a).await, "pending");
        assert_eq!(outbox.field(&to_a, "ended_at_ms").await, None);
        assert_eq!(outbox.run::<i64>("TTL", outbox.keys.delivery(&to_a)).await, -1);
        assert_eq!(outbox.assert_balanced().await.made, 2);
    }
}

/// A removed contact's delivery ends, and the present contacts get the alert, but none twice.
#[tokio::test]
async fn a_removed_contact_is_replaced_by_those_present() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    fanned(outbox.fan_out_new(&alert, &[email("a"), email("b")]).await);
    let leased = outbox.lease("t", LONG).await.leased;
    let to_b = leased.iter().find(|leased| leased.id == delivery(&alert, &email("b"))).expect("b's");
    let to_a = leased.iter().find(|leased| leased.id == delivery(&alert, &email("a"))).expect("a's");
    let delivered = quotabell::outbox::Settlement::Delivered(outcome(OutcomeClass::Delivered));
    settle(&outbox.client, &outbox.keys, &to_b.id, &to_b.token, &delivered).await.expect("settles");
    let source = FanOutSource::Delivery { id: &to_a.id, token: &to_a.token };
    let done = fanned(outbox.fan_out(source, &alert, &[email("b"), webhook("c")]).await);
    assert_eq!(done.source, SourceDisposition::Cancelled);
    assert_eq!(done.made.iter().map(|made| made.channel).collect::<Vec<_>>(), [Channel::Webhook]);
    assert_eq!(outbox.state(&to_b.id).await, "delivered");
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.delivered, totals.cancelled, totals.pending), (3, 1, 1, 1));
}

/// Both deliveries of an alert may find at the same moment that their contacts are gone. The new contact gets one,
/// counted once.
#[tokio::test]
async fn two_deliveries_of_an_alert_are_replaced_by_one() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    fanned(outbox.fan_out_new(&alert, &[email("a"), email("b")]).await);
    let leased = outbox.lease("t", LONG).await.leased;
    let recipients = Recipients { contacts: vec![webhook("c")], ..Recipients::default() };
    let requests: Vec<FanOutRequest<'_>> = leased
        .iter()
        .map(|LeasedDelivery { id, token, json, .. }| FanOutRequest {
            source: FanOutSource::Delivery { id, token },
            notification: (&alert).into(),
            json,
            recipients: &recipients,
        })
        .collect();
    let answers = quotabell::outbox::fan_out(&outbox.client, &outbox.keys, &requests).await.expect("fan-out works");
    assert_eq!(answers.into_iter().map(|answer| fanned(answer).made.len()).collect::<Vec<_>>(), [1, 0]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.cancelled, totals.pending), (3, 2, 1));
}

/// Each saw the contacts at another moment and found the other pending: both used to end, and nobody was told.
#[tokio::test]
async fn two_deliveries_of_an_alert_that_want_each_other_do_not_both_end() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    fanned(outbox.fan_out_new(&alert, &[webhook("a"), webhook("b")]).await);
    let mut leased = outbox.lease("t", LONG).await.leased;
    leased.sort_by_key(|leased| leased.id != delivery(&alert, &webhook("a")));
    let recipients = ["b", "a"].map(|name| Recipients { contacts: vec![webhook(name)], ..Recipients::default() });
    let requests: Vec<FanOutRequest<'_>> = leased
        .iter()
        .zip(&recipients)
        .map(|(LeasedDelivery { id, token, json, .. }, recipients)| FanOutRequest {
            source: FanOutSource::Delivery { id, token },
            notification: (&alert).into(),
            json,
            recipients,
        })
        .collect();
    let answers = quotabell::outbox::fan_out(&outbox.client, &outbox.keys, &requests).await.expect("fan-out works");
    let reopened: Vec<usize> = answers.into_iter().map(|answer| fanned(answer).reopened.len()).collect();
    assert_eq!(reopened, [0, 1]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.cancelled, totals.pending), (2, 1, 1));
    let again = outbox.lease_one("t2", LONG).await;
    assert_eq!((again.id, again.attempts), (delivery(&alert, &webhook("a")), 1));
}

/// The platform may reuse an id for another channel. The delivery must continue with the lease of the new channel.
#[tokio::test]
async fn a_contact_whose_channel_changed_keeps_its_delivery_under_the_new_channel() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    let (mut old, mut new) = (webhook("a"), email("a"));
    old.id = quotabell::types::ContactId::from_stored("c_1");
    new.id = old.id.clone();
    fanned(outbox.fan_out_new(&alert, &[old]).await);
    let leased = outbox.lease_one("t", LONG).await;
    let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
    let done = fanned(outbox.fan_out(source, &alert, &[new]).await);
    assert_eq!((done.source, done.made.len()), (SourceDisposition::Rescheduled, 0));
    let again = outbox.lease_one("t2", LONG).await;
    assert_eq!((again.id, again.channel, again.attempts), (leased.id, Channel::Email, 1));
    outbox.assert_balanced().await;
}

/// After a take-over of its lease, the former holder must not end the delivery.
#[tokio::test]
async fn a_stale_token_changes_nothing() {
    let outbox = Outbox::start();
    let alert = alert(&subject("alice"), 80);
    fanned(outbox.fan_out_new(&alert, &[email("a")]).await);
    let old = outbox.lease_one("old", LONG).await;
    outbox.let_time_pass(&old.id).await;
    outbox.lease_one("new", LONG).await;
    let before = outbox.dump().await;
    let source = FanOutSource::Delivery { id: &old.id, token: &old.token };
    assert_eq!(outbox.fan_out(source, &alert, &[]).await, FanOutReply::Stale);
    assert_eq!(outbox.dump().await, before);
}

/// Waking must find exactly the subject's deliveries, for all names of subjects, and must end leases whose holders
/// looked before the change; otherwise the new contact waits for the periodic check.
#[tokio::test]
async fn waking_finds_one_subject_and_overrides_a_lease() {
    let outbox = Outbox::start();
    let names = ["a", "a:b", "a b", "aa", "{a}", "b"];
    for name in names {
        fanned(outbox.fan_out_new(&alert(&subject(name), 80), &[]).await);
    }
    assert_eq!(wake_subject(&outbox.client, &outbox.keys, &subject("a")).await.expect("wake works"), 1);
    let early = outbox.lease_one("early", LONG).await;
    assert_eq!(early.subject, "a");
    assert_eq!(wake_subject(&outbox.client, &outbox.keys, &subject("a")).await.expect("wake works"), 1);
    let source = FanOutSource::Delivery { id: &early.id, token: &early.token };
    assert_eq!(outbox.fan_out(source, &alert(&subject("a"), 80), &[]).await, FanOutReply::Stale);
    assert_eq!(outbox.lease_one("again", LONG).await.id, early.id);
    assert_eq!(wake_all(&outbox).await, names.len() as u64);
    assert_eq!(outbox.lease("all", LONG).await.leased.len(), names.len());
    assert_eq!(wake_subject(&outbox.client, &outbox.keys, &subject("nobody")).await.expect("wake works"), 0);
}

/// More deliveries than one call wakes must all be woken, and an entry without a delivery must be removed.
#[tokio::test]
async fn waking_works_through_any_number_in_bounded_calls() {
    let outbox = Outbox::start();
    for n in 0..1203 {
        fanned(outbox.fan_out_new(&alert(&subject(&format!("s{n}")), 80), &[]).await);
    }
    let () = outbox.run("ZADD", &[outbox.keys.waiting().as_str(), "0", "x\0delivery_gone"]).await;
    assert_eq!(wake_all(&outbox).await, 1203);
    assert_eq!(outbox.totals().await.waiting, 1203, "the leftover is gone, the others still wait");
}

/// A foreign value in one of our keys must stop the partition with an error and change nothing.
#[tokio::test]
async fn a_key_of_another_type_raises_and_writes_nothing() {
    let outbox = Outbox::start();
    let keys = &outbox.keys;
    let alert = alert(&subject("alice"), 80);
    let entry = outbox.raise(&alert).await;
    let queue = keys.due(&Destination::from_stored("email"));
    let names = [queue, keys.destinations(), keys.pending(), keys.waiting(), keys.deliveries(), keys.totals()];
    for name in names {
        let () = outbox.run("SET", &[name.as_str(), "x"]).await;
        let before = outbox.dump().await;
        let source = FanOutSource::Outbox { entry: &entry };
        let error = fan_out(&outbox.client, keys, source, &alert, &[email("a")]).await.expect_err("a wrong type");
        assert_eq!(error.error_kind(), ErrorKind::WrongType, "{name}");
        assert!(error.is_fatal());
        assert_eq!(outbox.dump().await, before, "{name}");
        let () = outbox.run("DEL", name).await;
    }
    // A total that is not a number.
    let foreign = keys.delivery(&delivery(&alert, &email("a")));
    let odd = [(keys.totals(), "made", "many"), (keys.totals(), "made", "007")];
    for (name, field, value) in odd {
        let () = outbox.run("HSET", &[name.as_str(), field, value]).await;
        let before = outbox.dump().await;
        let source = FanOutSource::Outbox { entry: &entry };
        let error = fan_out(&outbox.client, keys, source, &alert, &[email("a")]).await.expect_err("a wrong value");
        assert_eq!(error.error_kind(), ErrorKind::WrongType, "{name}");
        assert_eq!(outbox.dump().await, before, "{name}");
        let () = outbox.run("DEL", name).await;
    }
    // A delivery's key with a foreign value concerns only one alert.
    for (command, arguments) in [("SET", vec![foreign.as_str(), "x"]), ("HSET", vec![foreign.as_str(), "x", "many"])] {
        let () = outbox.run(command, &arguments).await;
        let before = outbox.dump().await;
        let source = FanOutSource::Outbox { entry: &entry };
        assert_eq!(outbox.fan_out(source, &alert, &[email("a")]).await, FanOutReply::WrongType);
        assert_eq!(outbox.dump().await, before);
        let () = outbox.run("DEL", &foreign).await;
    }
    fanned(outbox.fan_out(FanOutSource::Outbox { entry: &entry }, &alert, &[email("a")]).await);
}

/// A full server must still empty the outbox and accept outcomes, but must not send what it could not record.
#[tokio::test]
async fn a_full_server_refuses_leases_but_fans_out_and_settles() {
    let outbox = Outbox::start();
    let (first, second) = (alert(&subject("alice"), 80), alert(&subject("alice"), 100));
    fanned(outbox.fan_out_new(&first, &[email("a")]).await);
    let leased = outbox.lease_one("t", LONG).await;
    let entry = outbox.raise(&second).await;
    let () = outbox.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    until("writes are refused", || async {
        let refused = outbox.client.query::<()>(redis::cmd("SET").arg("x").arg("y")).await;
        refused.is_err_and(|error| error_kind(&error) == ErrorKind::Full)
    })
    .await;
    fanned(outbox.fan_out(FanOutSource::Outbox { entry: &entry }, &second, &[email("a")]).await);
    let error = quotabell::outbox::lease(&outbox.client, &outbox.keys, all_due("full", LONG)).await.expect_err("full");
    assert_eq!(error.error_kind(), ErrorKind::Full);
    let delivered = quotabell::outbox::Settlement::Delivered(outcome(OutcomeClass::Delivered));
    let settled = settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &delivered).await;
    assert!(matches!(settled, Ok(quotabell::outbox::SettleReply::Done(_))));
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.delivered, totals.pending, totals.outbox), (1, 1, 0));
}

/// An erasure takes a subject out of a stored alert: a worker that leased the delivery before must not bring it back.
#[tokio::test]
async fn an_alert_is_given_on_as_it_is_stored_now() {
    for stays in [false, true] {
        let outbox = Outbox::start();
        let alert = alert(&subject("acme"), 80);
        fanned(outbox.fan_out_new(&alert, &[email("a")]).await);
        let leased = outbox.lease_one("t", LONG).await;
        let (id, token) = (&leased.id, leased.token.as_str());
        let key = outbox.keys.delivery(id);
        let _: u64 = outbox.run("HSET", &[key.as_str(), "alert", r#"{"changed":true}"#]).await;
        let source = if stays { FanOutSource::StaysLeased { id, token } } else { FanOutSource::Delivery { id, token } };
        fanned(outbox.fan_out(source, &alert, &[email("b")]).await);
        let stored = outbox.field(&delivery(&alert, &email("b")), "alert").await;
        assert_eq!(stored.as_deref(), Some(r#"{"changed":true}"#));
    }
}
