//! Contacts whose receivers return 410, and a daemon that is killed while it disables them: between the mark, the
//! notice to the others, their alerts and the settlement.
//!
//! Each daemon gets a new subject with a contact whose receiver is gone and two others. Wherever the kill happened, the
//! contact ends disabled, the others get one notice and each alert, and the contact's own deliveries end cancelled.

use quotabell::types::{AlertId, ContactId, DeliveryId, DisabledState};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::seed::seed_of_run;
use crate::support::contact_receiver::{AlertAtContact, AnswerMode, ContactReceiver, ReceivingContact};
use crate::support::daemon::{DaemonSetup, own_address};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::{Outbox, subject};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;

/// Number of kills.
const KILLS: usize = 40;
/// The deadline of a webhook. A daemon killed with a lease delays the test by this time and 5 s.
const WEBHOOK_TIMEOUT: &str = "1s";
/// A daemon makes about 15 round trips to Redis between the receiver's response and the settlement.
const ROUND_TRIPS_MAX: u32 = 40;

/// The contacts of each subject.
const CONTACTS: [(&str, AnswerMode); 3] =
    [("gone", AnswerMode::Gone), ("good", AnswerMode::Good), ("flaky", AnswerMode::Flaky)];

/// If a contact were marked without alerts or a notice to the others, only its customer would find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_a_contact_is_disabled_the_others_are_told_once_and_get_its_alerts() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let outbox = Outbox::on(RedisServer::start());
    let receiver = ContactReceiver::start(outbox.server.client(), outbox.keys.clone()).await;
    let setup = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__WEBHOOK__TIMEOUT", WEBHOOK_TIMEOUT)
        // A daemon on the address of the killed one need not wait for its lease of the stream.
        .at(own_address())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#);
    let mut met = Met::default();
    for number in 0..KILLS {
        let mut requests = receiver.requests();
        add_subject(&outbox, &receiver, number).await;
        let daemon = setup.spawn();
        // The next daemon counts what this one has not counted.
        use_units(&outbox, number, 80).await;
        if random.random_bool(0.5) {
            use_units(&outbox, number, 20).await;
        }
        let gone = contact_id(number, "gone");
        let asked = async {
            while !receiver.arrived().keys().any(|letter| letter.contact == gone) {
                let _ = requests.changed().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, asked).await.expect("its receiver is asked in time");
        for _ in 0..random.random_range(0..ROUND_TRIPS_MAX) {
            let _: String = outbox.client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
        daemon.kill().await;
        met.look(&outbox, number).await;
    }
    // Its receiver was never asked, so the contact must not be disabled.
    add_subject(&outbox, &receiver, KILLS).await;
    use_units(&outbox, KILLS, 79).await;
    let survivor = setup.start().await;
    eventually("everything is counted and sent", || async {
        let read: Option<u64> = outbox.run("HGET", &[outbox.keys.checkpoint().as_str(), "entries_read"]).await;
        let added: u64 = outbox.run("XLEN", outbox.keys.stream()).await;
        let totals = outbox.totals().await;
        let is_done = read.is_some_and(|read| read >= added) && totals.outbox == 0 && totals.pending == 0;
        (is_done && totals.made > 0).then_some(())
    })
    .await;
    survivor.drain().await;

    assert_eq!(receiver.faults(), Vec::<String>::new());
    assert_eq!(mark_of(&outbox, KILLS).await, None, "disabled although it was never asked");
    for number in 0..KILLS {
        compare(&outbox, &receiver, number).await;
    }
    let totals = outbox.assert_balanced().await;
    assert_eq!(totals.dead + totals.expired + totals.muted, 0);
    eprintln!(
        "{KILLS} kills: {} left a contact that was not marked, {} one that was marked and not every delivery settled, {} all of it",
        met.unmarked, met.cut_off, met.finished
    );
    assert!(met.unmarked > 0 && met.cut_off > 0, "{met:?}");
}

/// The state that the kills left.
#[derive(Debug, Default)]
struct Met {
    unmarked: usize,
    cut_off: usize,
    finished: usize,
}

impl Met {
    async fn look(&mut self, outbox: &Outbox, number: usize) {
        outbox.assert_balanced().await;
        let is_pending =
            deliveries_of(outbox, number).await.iter().any(|one| one.contact == "gone" && one.state == "pending");
        match mark_of(outbox, number).await {
            None => self.unmarked += 1,
            Some(_) if is_pending => self.cut_off += 1,
            Some(_) => self.finished += 1,
        }
    }
}

/// A stored delivery.
#[derive(Debug)]
struct Stored {
    kind: String,
    /// The contact.
    contact: String,
    state: String,
    alert: String,
}

async fn compare(outbox: &Outbox, receiver: &ContactReceiver, number: usize) {
    let state = mark_of(outbox, number).await.expect("it is disabled");
    assert_eq!(state.reason.as_str(), "gone");
    let deliveries = deliveries_of(outbox, number).await;
    let of = |kind: &str, contact: &str| {
        deliveries.iter().filter(|one| one.kind == kind && one.contact == contact).collect::<Vec<_>>()
    };
    let raised: Vec<Value> = {
        let all: Vec<String> = outbox.run("KEYS", format!("quota_alert:*:{}:*", subject_of(number))).await;
        all.into_iter().map(Value::from).collect()
    };
    assert!((1..=2).contains(&raised.len()), "{raised:?}");
    let arrived = receiver.arrived();
    let came = |one: &Stored| {
        let letter = AlertAtContact { contact: contact_id(number, &one.contact), alert: one.alert.clone() };
        arrived.get(&letter).map_or(0, |arrived| arrived.accepted)
    };
    for (contact, mode) in CONTACTS {
        let (alerts, notices) = (of("alert", contact), of("contact_disabled", contact));
        if mode == AnswerMode::Gone {
            assert!(notices.is_empty(), "it is told of itself: {notices:?}");
            // An alert raised after the mark has no delivery to it.
            assert!((1..=raised.len()).contains(&alerts.len()), "{alerts:?}");
            assert!(alerts.iter().all(|one| one.state == "cancelled"), "{alerts:?}");
            continue;
        }
        assert_eq!(alerts.len(), raised.len(), "each alert once: {alerts:?}");
        assert_eq!(notices.len(), 1, "the notice once: {notices:?}");
        for one in alerts.iter().chain(&notices) {
            assert!(one.state == "delivered" && came(one) > 0, "{one:?}");
        }
    }
    let known: usize =
        CONTACTS.iter().map(|(contact, _)| of("alert", contact).len() + of("contact_disabled", contact).len()).sum();
    assert_eq!(known, deliveries.len(), "no delivery but these: {deliveries:?}");
}

fn subject_of(number: usize) -> String {
    format!("customer-{number}")
}

fn contact_id(number: usize, contact: &str) -> String {
    format!("c_{number}_{contact}")
}

/// Stores a subject with its contacts.
async fn add_subject(outbox: &Outbox, receiver: &ContactReceiver, number: usize) {
    // Each at its own destination, so that a delivery leased by a killed daemon delays no others.
    let contacts: Vec<Value> = (1..)
        .zip(CONTACTS)
        .map(|(which, (contact, mode))| {
            let contact = ReceivingContact { id: contact_id(number, contact), secret: secret(7), mode };
            receiver.add_contact_at(&format!("127.0.{which}.{}", number + 1), contact)
        })
        .collect();
    outbox.set_contacts(&subject(&subject_of(number)), &json!(contacts).to_string()).await;
}

async fn use_units(outbox: &Outbox, number: usize, units: u32) {
    let words = [outbox.keys.stream(), "*", "subject", &subject_of(number), "units", &units.to_string()];
    let _: String = outbox.run("XADD", &words).await;
}

/// The mark of the contact whose receiver is gone; the others never have one.
async fn mark_of(outbox: &Outbox, number: usize) -> Option<DisabledState> {
    let key = outbox.keys.subject(&subject(&subject_of(number)));
    let stored: String = outbox.run("HGET", &[key.as_str(), "contacts"]).await;
    let stored: Vec<Value> = serde_json::from_str(&stored).expect("a list");
    let (gone, others): (Vec<&Value>, Vec<&Value>) =
        stored.iter().partition(|one| one["id"] == contact_id(number, "gone"));
    assert!(gone.len() == 1 && others.iter().all(|one| one.get("disabled").is_none()), "{stored:?}");
    gone[0].get("disabled").map(|state| serde_json::from_value(state.clone()).expect("a mark"))
}

/// All deliveries of the subject, including the one without a contact.
async fn deliveries_of(outbox: &Outbox, number: usize) -> Vec<Stored> {
    let ids: Vec<String> = outbox.run("ZRANGE", &[outbox.keys.deliveries().as_str(), "0", "-1"]).await;
    let mut found = Vec::new();
    for id in ids.iter().map(|id| DeliveryId::from_stored(id)) {
        let mut command = redis::cmd("HMGET");
        command.arg(outbox.keys.delivery(&id)).arg(&[
            "subject",
            "type",
            "contact_id",
            "state",
            "alert_id",
            "contact_disabled",
        ]);
        let [of, kind, contact, state, alert, notice]: [Option<String>; 6] =
            outbox.client.query(&command).await.expect("redis answers");
        if of.as_deref() != Some(&subject_of(number)) {
            continue;
        }
        let notice: Option<Value> = notice.map(|json| serde_json::from_str(&json).expect("JSON"));
        let notice = notice.and_then(|notice| notice["id"].as_str().map(str::to_owned));
        let contact_id = contact.expect("a contact");
        let contact = contact_id.rsplit('_').next().unwrap_or_default().to_owned();
        let alert = alert.or(notice).expect("an alert or a notice");
        assert_eq!(id, DeliveryId::derive(&AlertId::from_stored(&alert), &ContactId::from_stored(&contact_id)));
        let (kind, state) = (kind.expect("a type"), state.expect("a state"));
        found.push(Stored { kind, contact, state, alert });
    }
    found
}
