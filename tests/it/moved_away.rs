//! The marks of a migration: no script counts or starts a delivery if everything was moved away, or if only a part has
//! arrived. A paused daemon checks nothing before its next call.

use quotabell::contacts::Contact;
use quotabell::ledger::audit::audit;
use quotabell::outbox::{
    EnqueueReply, FanOutReply, FanOutSource, NewDelivery, OutboxError, SettleReply, Settlement, enqueue, lease,
};
use quotabell::redis_client::{ErrorKind, error_kind};
use quotabell::types::{
    Channel, DisableReason, DisabledNotice, DisabledState, Notification, OutcomeClass, StreamId, UnixMs,
};

use crate::support::ledger::{Change, Ledger, raising};
use crate::support::outbox::{LONG, alert, all_due, email, fan_out, outcome, settle, subject};

/// Each mark with its removal.
const MARKS: [(&str, &str); 2] =
    [("moved_to", "redis://new:6379/0 with stream.partitions = 1"), ("migration", "copying x")];

fn notice(contact: &Contact) -> Notification {
    let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(0) };
    let address = "https://gone.test/".to_owned();
    Notification::ContactDisabled(DisabledNotice::new(
        &subject("alice"),
        &contact.id,
        (Channel::Webhook, address),
        state,
    ))
}

/// A daemon that does not know about the migration would count and send what the target also counts and sends.
#[tokio::test]
async fn no_script_counts_or_begins_to_send_where_everything_was_moved_away() {
    let ledger = Ledger::open();
    let Ledger { client, keys, .. } = &ledger;
    let batch = raising(ledger.batch(StreamId::ZERO, Change { subject: "alice", before: 0, total: 8 }).await, 80);
    let alice = alert(&subject("alice"), 80);
    let json = serde_json::to_string(&alice).expect("JSON");
    let entry: String = ledger.run(&["XADD", &keys.outbox(), "*", "alert", &json]).await;
    let (source, notice) = (FanOutSource::Outbox { entry: &entry }, notice(&email("gone")));
    let new = NewDelivery { notification: &notice, contact: &email("other") };
    assert_eq!(enqueue(client, keys, new).await.expect("made"), EnqueueReply::Made, "one that may be leased");
    let disabled = NewDelivery { notification: &notice, contact: &email("another") };
    let of_outbox = |error: OutboxError| error.error_kind();
    for (field, mark) in MARKS {
        ledger.run::<u64>(&["HSET", &keys.checkpoint(), field, mark]).await;
        let before = ledger.dump().await;
        let refused = [
            ("commit", ledger.committer.commit(client, &batch).await.map(drop).map_err(|error| error_kind(&error))),
            ("audit", audit(client, keys, StreamId::ZERO, 0).await.map(drop).map_err(|error| error_kind(&error))),
            ("fan_out", fan_out(client, keys, source, &alice, &[email("a")]).await.map(drop).map_err(of_outbox)),
            ("lease", lease(client, keys, all_due("t", LONG)).await.map(drop).map_err(of_outbox)),
            ("enqueue", enqueue(client, keys, disabled).await.map(drop).map_err(of_outbox)),
        ];
        for (script, answer) in refused {
            assert_eq!(answer, Err(ErrorKind::MovedAway), "{script} under {field}");
        }
        assert!(ledger.dump().await == before, "{field}: something was written");
        ledger.run::<u64>(&["HDEL", &keys.checkpoint(), field]).await;
    }
    // A completed migration to this deployment blocks nobody.
    ledger.run::<u64>(&["HSET", &keys.checkpoint(), "migration", "done x"]).await;
    ledger.committed(&batch).await;
    let answer = fan_out(client, keys, source, &alice, &[email("a")]).await.expect("answered");
    assert!(matches!(answer, FanOutReply::Done(_)), "{answer:?}");
}

/// The outcome of an attempt that was running during the move is recorded and copied: otherwise the target would send
/// the message again.
#[tokio::test]
async fn the_outcome_of_an_attempt_under_way_is_recorded() {
    let ledger = Ledger::open();
    let Ledger { client, keys, .. } = &ledger;
    let (notice, contact) = (notice(&email("gone")), email("other"));
    let made = enqueue(client, keys, NewDelivery { notification: &notice, contact: &contact }).await.expect("made");
    assert_eq!(made, EnqueueReply::Made);
    let leased = lease(client, keys, all_due("t", LONG)).await.expect("leased").leased.remove(0);
    ledger.run::<u64>(&["HSET", &keys.checkpoint(), "moved_to", MARKS[0].1]).await;
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    let answer = settle(client, keys, &leased.id, &leased.token, &delivered).await.expect("answered");
    assert!(matches!(answer, SettleReply::Done(_)), "{answer:?}");
}
