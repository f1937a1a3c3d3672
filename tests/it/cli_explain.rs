//! `explain` on a real server: a sentence for each state of a delivery, understandable without further knowledge.

use std::sync::Arc;
use std::time::Duration;

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::books::{hide_what_varies, record, run};
use crate::support::daemon::DaemonSetup;
use crate::support::grant_notices::grant_notice;
use crate::support::outbox::{
    LONG, Outbox, RESETS_AT, alert, delivery, email, in_period, json as stored, outcome, settle, subject,
    waiting_delivery, webhook,
};
use crate::support::recorded_usage::RecordedUsage;
use crate::support::redis_server::RedisServer;
use crate::support::table::Table;
use quotabell::contacts::Contact;
use quotabell::outbox::{DeliveryAction, FanOutSource, NewDelivery, Settlement, act, enqueue, pause, resume};
use quotabell::redis_client::Partitions;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{
    Alert, Channel, ConsentId, Day, DeliveryId, DisableReason, DisabledNotice, DisabledState, Keys, Mute, Notification,
    Outcome, OutcomeClass, PartitionNumber, RaisedRecord, UnixMs, VerificationRequest,
};
use quotabell_throttle::{Rate, SlidingWindow};
use serde_json::json;

/// An alert of a subject with this name, fanned out to the subject's webhook with this name.
async fn made(outbox: &Outbox, name: &str) -> (Alert, DeliveryId) {
    let (raised, contact) = (alert(&subject(name), 80), webhook(name));
    outbox.set_contacts(&subject(name), &stored(std::slice::from_ref(&contact))).await;
    outbox.fan_out_new(&raised, std::slice::from_ref(&contact)).await;
    (raised.clone(), delivery(&raised, &contact))
}

/// The same with one attempt and this outcome.
async fn ended(outbox: &Outbox, name: &str, settlement: Settlement) -> DeliveryId {
    let (_, id) = made(outbox, name).await;
    let leased = outbox.lease_one(name, LONG).await;
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &settlement).await.expect("settles");
    id
}

/// A request for consent to a new contact, after one postponed attempt.
async fn asked_and_put_off(outbox: &Outbox) -> DeliveryId {
    let (name, contact) = (subject("asked"), Contact { verified: false, ..email("asked") });
    outbox.set_contacts(&name, &stored(std::slice::from_ref(&contact))).await;
    let request = VerificationRequest {
        id: "verification_1".to_owned(),
        subject: name,
        contact: contact.id.clone(),
        consent: ConsentId::from_stored("digest.nonce"),
        requested_at_ms: UnixMs(1_795_250_220_123),
        expires_at_ms: UnixMs(1_795_250_820_123),
    };
    let notification = Notification::Verification(request);
    let new = NewDelivery { notification: &notification, contact: &contact };
    enqueue(&outbox.client, &outbox.keys, new).await.expect("enqueue works");
    let leased = outbox.lease_one("asked", LONG).await;
    let retry = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(3600));
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &retry).await.expect("settles");
    leased.id
}

fn refused() -> Outcome {
    Outcome {
        error: Some("HTTP 410".to_owned()),
        reply: Some("no such hook".to_owned()),
        peer: Some("dead.test:443".to_owned()),
        ..outcome(OutcomeClass::Permanent)
    }
}

/// The question why an alert has not arrived must be answered completely, in every state.
#[tokio::test]
async fn each_state_of_a_delivery_gives_its_sentence() {
    let outbox = Outbox::start();
    let mut deliveries = vec![
        ("delivered", ended(&outbox, "delivered", Settlement::Delivered(outcome(OutcomeClass::Delivered))).await),
        ("dead", ended(&outbox, "dead", Settlement::Dead(refused())).await),
        ("discarded", ended(&outbox, "discarded", Settlement::Dead(refused())).await),
        ("muted", ended(&outbox, "muted", Settlement::Muted("the contact is muted: new office".to_owned())).await),
        ("expired because a higher limit came", ended(&outbox, "expired", Settlement::Expired).await),
        ("retried later", {
            let retry = Settlement::Retry(outcome(OutcomeClass::Transient), Duration::from_secs(3600));
            ended(&outbox, "later", retry).await
        }),
    ];
    deliveries.push(("expired long after its period", {
        let (long_ago, contact) = (Some(Rfc3339(UnixMs(1_700_000_000_000))), webhook("late"));
        let late = Alert { resets_at: long_ago, ..alert(&subject("late"), 80) };
        outbox.set_contacts(&subject("late"), &stored(std::slice::from_ref(&contact))).await;
        outbox.fan_out_new(&late, std::slice::from_ref(&contact)).await;
        let leased = outbox.lease_one("late", LONG).await;
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &Settlement::Expired).await.expect("settles");
        leased.id
    }));
    deliveries.push(("refused, tried for a day", {
        let retry = Settlement::Retry(outcome(OutcomeClass::Rejected), Duration::from_secs(3600));
        ended(&outbox, "refused", retry).await
    }));
    deliveries.push(("that asks for consent and was put off", asked_and_put_off(&outbox).await));
    let id = ended(&outbox, "gone", Settlement::ContactDisabled(refused())).await;
    let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(0) };
    let gone = Contact { disabled: Some(state), ..webhook("gone") };
    outbox.set_contacts(&subject("gone"), &stored(&[gone])).await;
    deliveries.push(("whose contact is disabled", id));
    let id = deliveries[2].1.clone();
    act(&outbox.client, &outbox.keys, DeliveryAction::Discard, &[id]).await.expect("it works");
    let (_, id) = made(&outbox, "cancelled").await;
    act(&outbox.client, &outbox.keys, DeliveryAction::Cancel, std::slice::from_ref(&id)).await.expect("it works");
    deliveries.push(("cancelled by an operator", id));
    let (raised, id) = made(&outbox, "moved").await;
    let leased = outbox.lease_one("moved", LONG).await;
    let source = FanOutSource::Delivery { id: &leased.id, token: &leased.token };
    outbox.fan_out(source, &raised, &[email("moved")]).await;
    outbox.set_contacts(&subject("moved"), &stored(&[email("moved")])).await;
    deliveries.push(("whose contact was removed", id));
    deliveries.push(("attempted right now", outbox.lease_one("leased", LONG).await.id));
    let (_, id) = made(&outbox, "open").await;
    let state = format!("{}https://open.test", outbox.keys.destination_prefix());
    let far = outbox.totals().await.now.plus(900_000).0.to_string();
    let open = [state.as_str(), "bound", "1", "failures", "9", "probe_at_ms", &far, "probes", "4"];
    let () = outbox.run("HSET", &open).await;
    deliveries.push(("behind an open circuit", id));
    let (_, id) = made(&outbox, "mutedsoon").await;
    let muted = Contact { mute: Some(Mute::default()), ..webhook("mutedsoon") };
    outbox.set_contacts(&subject("mutedsoon"), &stored(&[muted])).await;
    deliveries.push(("to a muted contact", id));
    let nobody = alert(&subject("nobody"), 80);
    outbox.fan_out_new(&nobody, &[]).await;
    deliveries.push(("without a contact", waiting_delivery(&nobody)));
    let unverified = alert(&subject("unverified"), 80);
    outbox.fan_out_new(&unverified, &[]).await;
    let contact = Contact { verified: false, ..email("new") };
    outbox.set_contacts(&subject("unverified"), &stored(&[contact])).await;
    deliveries.push(("whose contact nobody confirmed", waiting_delivery(&unverified)));
    let (_, id) = made(&outbox, "due").await;
    deliveries.push(("due", id.clone()));

    let mut told = Table::default();
    for (state, id) in &deliveries {
        told.add(state, run(&outbox.server, &format!("explain {id}")).told());
    }
    let partitions = Partitions::new(&outbox.server.client(), &outbox.keys);
    pause(&partitions, Some("mail server moves")).await.expect("it works");
    told.add("while sending is paused", run(&outbox.server, &format!("explain {id}")).told());
    let due = run(&outbox.server, "explain due").expect_done();
    let paused = due.lines().find(|line| line.starts_with("All sending is paused since "));
    assert!(paused.is_some_and(|line| line.contains("(mail server moves)")), "{due}");
    resume(&partitions).await.expect("it works");
    // The configuration defines caps.
    let capped = || {
        let explain = quotabell(["explain", id.as_str()]).redis(&outbox.server.url());
        explain.env("QUOTABELL__WEBHOOK__PER_DESTINATION", "30/1m").run()
    };
    let free = capped().expect_done();
    assert!(free.contains("\nIts cap is 30/1m. If the cap is exhausted, a delivery is delayed"), "{free}");
    let cap = SlidingWindow::new(Rate::new(30, Duration::from_secs(60)).expect("a rate")).expect("few enough");
    let counted_at = outbox.keys.cap(Channel::Webhook, Some("https://due.test"));
    cap.take(&mut outbox.client.connection(), &counted_at, 30).await.expect("Redis answers");
    told.add("whose cap is used up", capped().told());
    hide_what_varies().bind(|| insta::assert_snapshot!("deliveries", told));
}

/// All deliveries of an alert lead to the same explanation.
#[tokio::test]
async fn an_alert_is_explained_with_its_deliveries_or_with_why_there_are_none() {
    let outbox = Outbox::start();
    let now = outbox.totals().await.now;
    let today = quotabell::types::Day::in_utc(now).expect("a day");
    let alert = |name: &str| {
        let of_today = crate::support::outbox::in_period(alert(&subject(name), 80), today);
        Alert { raised_at_ms: now, ..of_today }
    };
    let (told, lost, waits) = (alert("told"), alert("lost"), alert("waits"));
    for alert in [&told, &lost, &waits] {
        record(&outbox.client, alert).await;
    }
    outbox.fan_out_new(&told, &[webhook("a"), email("b")]).await;
    // Neither an earlier storm nor a later one hides it.
    let storm = async || {
        for _ in 0..2 {
            let mut entries = redis::pipe();
            for _ in 0..1000 {
                entries.cmd("XADD").arg(outbox.keys.outbox()).arg("*").arg("alert").arg("x").ignore();
            }
            let () = outbox.client.pipe(&entries).await.expect("added");
        }
    };
    storm().await;
    outbox.raise(&waits).await;
    storm().await;
    let explained = run(&outbox.server, &format!("explain {} --json", told.id)).expect_json().remove(0);
    assert_eq!((&explained["about"], explained["deliveries"].as_array().map(Vec::len)), (&json!("alert"), Some(2)));
    let sentences = explained["explanation"].as_array().expect("sentences");
    let crossings =
        sentences.iter().filter(|said| said.as_str().is_some_and(|said| said.contains("raised alert"))).count();
    assert_eq!(crossings, 1, "{sentences:?}");
    // The first digits are enough, as in a list.
    let short = &told.id.as_str()["alert_".len()..][..8];
    assert_eq!(run(&outbox.server, &format!("explain {short} --json")).expect_json()[0]["id"], json!(told.id));
    for (alert, said) in [(&lost, "No delivery of it is kept"), (&waits, "It lies in the outbox: no daemon runs")] {
        let explained = run(&outbox.server, &format!("explain {}", alert.id)).expect_done();
        assert!(explained.contains(said), "{explained}");
    }
}

/// A mistyped or expired id must not be explained as a subject without usage.
#[tokio::test]
async fn an_id_that_is_not_kept_is_no_subject() {
    let outbox = Outbox::start();
    let whole = "0".repeat(32);
    for unknown in
        ["delivery_00000000", "alert_00000000", "delivery_x", "alert_", "00000000", &whole, "forecast_09ba", "digest_0"]
    {
        let refused = run(&outbox.server, &format!("explain {unknown}"));
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{unknown}: {}", refused.told());
        let said = format!(
            "error: no delivery, alert or notice that is kept has the id {unknown}, and no subject of this name"
        );
        assert!(refused.stderr.starts_with(&said), "{}", refused.stderr);
    }
    insta::assert_snapshot!(run(&outbox.server, "explain deadbeef").told(), @"
    error: no delivery, alert or notice that is kept has the id deadbeef, and no subject of this name has settings, counts, alerts or deliveries
    hint: deliveries stay readable for 14 days after their end, alerts until 48 hours after the end of their period; `quotabell alerts export` shows ids for longer; with --subject any name is taken for a subject
    exit 1
    ");
    // With an explicit subject, the subject is explained even before it exists.
    for line in ["explain --subject deadbeef", "explain alice"] {
        let told = run(&outbox.server, line).expect_done();
        assert!(told.starts_with("Nothing is stored of ") && told.contains(" has plan free"), "{told}");
    }
    // Subjects may have such names: any stored data makes a subject known.
    let now = outbox.totals().await.now;
    let yesterday = quotabell::types::Day::in_utc(now).and_then(|day| day.before(1)).expect("a day");
    let counted =
        outbox.keys.usage(&"requests".parse().expect("legal"), yesterday, quotabell::types::keys::bucket("0badcafe"));
    let () = outbox.run("SADD", &[outbox.keys.metrics(yesterday).as_str(), "requests"]).await;
    let () = outbox.run("HSET", &[counted.as_str(), "0badcafe", "7"]).await;
    for name in ["deadbeef", "delivery_00000000", "alert_00000000", "spike_1"] {
        let () = outbox.run("HSET", &[outbox.keys.subject(&subject(name)).as_str(), "plan", "free"]).await;
    }
    outbox.fan_out_new(&alert(&subject("12345678"), 80), &[]).await;
    // The newest day and its units in MessagePack, as in the history of a day without counters.
    let archived: &[u8] = &[0x92, 0xcd, 0x51, 0x2a, 0x05];
    let metric = "requests".parse().expect("legal");
    let () = outbox.run("ZADD", (outbox.keys.history_metrics(), 1, "requests")).await;
    for name in ["10023456", "idle"] {
        let history = outbox.keys.history(&metric, quotabell::types::keys::bucket(name));
        let () = outbox.run("HSET", (history, name, archived)).await;
    }
    // A listed item may have expired.
    let gone = format!("delivery_{}", "f".repeat(32));
    let () = outbox.run("ZADD", (outbox.keys.deliveries(), 1, &gone)).await;
    let refused = run(&outbox.server, "explain delivery_ffffffff");
    assert!(refused.stderr.starts_with("error: no delivery, alert or notice that is kept"), "{}", refused.told());
    let with_word = ["delivery_00000000", "alert_00000000", "spike_1"];
    for known in ["0badcafe", "deadbeef", "12345678", "10023456", "idle"].into_iter().chain(with_word) {
        let told = run(&outbox.server, &format!("explain {known}")).expect_done();
        assert!(told.starts_with(&format!("{known} has plan free")), "{told}");
    }
}

/// Receivers know a notice by its own id, which a customer quotes.
#[tokio::test]
async fn a_notice_is_explained_by_its_id_with_each_of_its_deliveries() {
    let outbox = Outbox::start();
    let (told, waits) = (grant_notice(&subject("alice"), RESETS_AT), grant_notice(&subject("bob"), RESETS_AT));
    outbox.fan_out_notice(&told, &[webhook("a"), email("b")]).await;
    outbox.raise_notice(&waits).await;
    // The first digits are enough.
    let prefix = &told.id["grant_notice_".len()..][..8];
    let explained = run(&outbox.server, &format!("explain grant_notice_{prefix} --json")).expect_json().remove(0);
    let deliveries = explained["deliveries"].as_array().map(Vec::len);
    assert_eq!((&explained["about"], &explained["id"], deliveries), (&json!("notice"), &json!(told.id), Some(2)));
    let sentences = explained["explanation"].as_array().expect("sentences");
    let with =
        |words: &str| sentences.iter().filter(|said| said.as_str().is_some_and(|said| said.contains(words))).count();
    assert_eq!((with(&told.id), with("was made at")), (1, 2), "{sentences:?}");
    let said = run(&outbox.server, &format!("explain {}", waits.id)).expect_done();
    assert!(said.starts_with("It lies in the outbox: no daemon runs"), "{said}");
}

/// The explanation of what happens next must say that a muted, disabled or removed contact gets nothing.
#[tokio::test]
async fn contacts_that_get_nothing_are_told_with_the_reason() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let (muted, gone, left) = (webhook("muted"), webhook("gone"), email("left"));
    let raised = alert(&alice, 80);
    outbox.fan_out_new(&raised, &[muted.clone(), gone.clone(), left.clone()]).await;
    let mute = Mute { until: None, reason: Some("new office".to_owned()) };
    let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(0) };
    let stored_now = [
        Contact { mute: Some(mute), ..muted.clone() },
        Contact { disabled: Some(state.clone()), ..gone.clone() },
        email("new"),
    ];
    outbox.set_contacts(&alice, &stored(&stored_now)).await;
    let told = run(&outbox.server, "explain alice").expect_done();
    for said in [
        format!("\nIts alerts go to its contacts {} (email).\n", email("new").id),
        format!("\nNothing goes to {} (webhook): it is muted: new office.\n", muted.id),
        format!("\nNothing goes to {} (webhook): it is disabled, because its receiver is gone (HTTP 410)", gone.id),
    ] {
        assert!(told.contains(&said), "{said} is not in {told}");
    }
    // On a terminal a sentence continues on the next line, indented.
    let shown = quotabell(["explain", "alice"]).redis(&outbox.server.url()).print_on_terminal();
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("  ")), "{shown}");
    let lost = "\nIts next attempt sends nothing: the alert goes to the subject's contacts at that time";
    for (contact, said, next) in [
        (&muted, ", which is now muted: new office.\n", "\nAt its next attempt it ends muted.\n"),
        (&gone, ", which is disabled, because its receiver is gone (HTTP 410).\n", lost),
        (&left, ", which the subject does not have any more.\n", lost),
    ] {
        let told = run(&outbox.server, &format!("explain {}", delivery(&raised, contact))).expect_done();
        assert!(told.contains(said) && told.contains(next), "{told}");
    }
    // A notice is not an alert: the output says what it is about.
    let address = "https://gone.test/".to_owned();
    let notice = DisabledNotice::new(&alice, &gone.id, (Channel::Webhook, address), state);
    let notification = Notification::ContactDisabled(notice);
    let new = NewDelivery { notification: &notification, contact: &email("new") };
    enqueue(&outbox.client, &outbox.keys, new).await.expect("it works");
    let told = run(&outbox.server, &format!("explain {}", notification.delivery_to(&new.contact.id))).expect_done();
    let said =
        format!("It is no alert but a notice: contact {} (webhook https://gone.test/) of alice was disabled", gone.id);
    assert!(told.starts_with(&said), "{told}");
}

/// "No alert yet" must say what is missing, and who would get the alert.
#[tokio::test]
async fn a_subject_is_told_what_is_missing_for_its_next_alert() {
    let usage = RecordedUsage::start();
    let [_, day, ..] = usage.periods("UTC", 1).await;
    usage.set("alice", &[("limit:requests", "5000"), ("muted:tokens", "true moving")]).await;
    usage.count("alice", "requests", day.period, 3950).await;
    let explained = run(&usage.server, "explain alice").expect_done();
    let expected = format!(
        "alice has plan free and the time zone UTC.\n\
         No daemon runs on this stream: nothing is counted and nothing is sent until one does.\n\
         It has used 3,950 of 5,000 units of requests (79%) in the day {}, which ends at {}.\n\
         The next alert is due at 80%, which is 4,000 units: 50 more are needed.\n\
         Now metric tokens of the subject is muted: moving: alerts are recorded and not sent.\n\
         Nobody would hear of an alert: the subject has no contact, and there is no fallback contact.\n",
        day.period, day.end
    );
    // The day may have ended since.
    if usage.periods("UTC", 1).await[1].period == day.period {
        assert_eq!(explained, expected);
    }
    let reached = |used| usage.count("bob", "requests", day.period, used);
    reached(5000).await;
    let explained = run(&usage.server, "explain --subject bob").expect_done();
    assert!(explained.contains("none was raised") || explained.contains("0 of 5,000"), "{explained}");
    // Unreadable settings may differ from the last good ones that a daemon uses.
    usage.set("carol", &[("limit:requests", "5000"), ("timezone", "Mars/Phobos")]).await;
    usage.count("carol", "requests", day.period, 4500).await;
    let explained = run(&usage.server, "explain carol").expect_done();
    assert!(explained.contains("alerts follow the last good values") && !explained.contains("next"), "{explained}");
    let none = run(&usage.server, "explain");
    assert!(none.code == 2, "{}", none.told());
}

/// The explanation of a subject must say what happened to its alert.
#[tokio::test]
async fn a_subject_is_told_what_became_of_its_alerts() {
    let outbox = Outbox::start();
    let now = outbox.totals().await.now;
    let today = quotabell::types::Day::in_utc(now).expect("a day");
    let raised = |percent| {
        let of_today = crate::support::outbox::in_period(alert(&subject("alice"), percent), today);
        Alert { raised_at_ms: now, ..of_today }
    };
    let (first, second) = (raised(80), raised(100));
    for alert in [&first, &second] {
        record(&outbox.client, alert).await;
    }
    outbox.fan_out_new(&first, &[webhook("a"), email("b")]).await;
    let leased = outbox.lease("t", LONG).await.leased;
    let dead = leased.iter().find(|leased| leased.id == delivery(&first, &webhook("a"))).expect("leased");
    settle(&outbox.client, &outbox.keys, &dead.id, &dead.token, &Settlement::Dead(refused())).await.expect("settles");
    let explained = run(&outbox.server, "explain alice").expect_done();
    let (a, b) = (webhook("a").id, email("b").id);
    for said in [format!("to {a} (webhook): dead (HTTP 410)"), format!("to {b} (email): pending")] {
        assert!(explained.contains(&said), "{said} is not in {explained}");
    }
    assert!(explained.contains(&format!("; `quotabell explain {}` says more.", first.id)), "{explained}");
    let none = format!("No delivery of it is there; `quotabell explain {}` says why.", second.id);
    assert!(explained.contains(&none), "{explained}");
}

/// After an upgrade at noon the alerts of the old and the new limit must be distinguished, in order.
#[tokio::test]
async fn alerts_of_a_subject_name_their_limit_in_the_order_of_time() {
    let outbox = Outbox::start();
    let now = outbox.totals().await.now;
    let today = quotabell::types::Day::in_utc(now).expect("a day");
    let raised = |percent, limit: u64, seconds: i64| {
        let of_today = crate::support::outbox::in_period(alert(&subject("alice"), percent), today);
        let threshold_units = limit * u64::from(percent) / 100;
        Alert { raised_at_ms: now.plus(1000 * seconds), limit, threshold_units, ..of_today }
    };
    record(&outbox.client, &raised(100, 5000, -20)).await;
    let first = RaisedRecord::after(None, raised(80, 5000, -30));
    let both = RaisedRecord::after(Some(first), raised(80, 20000, -10));
    let (keys, bucket) = (&outbox.keys, quotabell::types::keys::bucket("alice"));
    let of = &both.alert;
    let hash = keys.raised(&of.metric, of.period, bucket);
    let field = quotabell::types::Keys::raised_field(of.threshold, &of.subject);
    let json = serde_json::to_string(&both).expect("JSON");
    let () = outbox.run("HSET", &[hash.as_str(), &field, &json]).await;
    let told = run(&outbox.server, "explain alice").expect_done();
    let alerts: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("Alert "))
        .filter_map(|line| line.split_once("Z: "))
        .map(|(_, said)| said)
        .collect();
    let expected = [
        "80% of the limit of 5,000 units in the day was reached, which is 4,000.",
        "100% of the limit of 5,000 units in the day was reached, which is 5,000.",
        "80% of the limit of 20,000 units in the day was reached, which is 16,000.",
    ];
    assert_eq!(alerts, expected);
}

/// The platform shows its customers the reason; the receiver's reply is not for them.
#[tokio::test]
async fn the_api_explains_a_delivery_without_what_the_other_side_said() {
    let outbox = Outbox::start();
    let id = ended(&outbox, "dead", Settlement::Dead(refused())).await;
    let token = "a-token-for-one-test-0123456789";
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", token).argument("--no-send");
    let mut daemon = setup.start().await;
    let api = Caller::of(&mut daemon).await.with_token(token);
    let answer = api.get(&format!("/v1/deliveries/{id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let operator = run(&outbox.server, &format!("explain {id} --json")).expect_json().remove(0);
    let of_operator: Vec<_> = operator["explanation"].as_array().expect("sentences").clone();
    let secret = |said: &serde_json::Value| {
        said.as_str().is_some_and(|said| said.contains("no such hook") || said.contains("dead.test:443"))
    };
    assert_eq!(of_operator.iter().filter(|said| secret(said)).count(), 2);
    let kept: Vec<_> = of_operator.into_iter().filter(|said| !secret(said)).collect();
    assert_eq!(answer.json()["explanation"], json!(kept));
    assert!(!answer.text.contains("no such hook"), "{}", answer.text);
    daemon.drain().await;
}

/// A customer whose contact filters other alerts used to see only the operator's delivery, without a reason.
#[tokio::test]
async fn what_each_contact_hears_is_told() {
    let outbox = Outbox::start();
    let (alice, raised) = (subject("alice"), alert(&subject("alice"), 80));
    let mut late = email("late");
    late.filter.thresholds = vec!["100".parse().expect("legal")];
    outbox.set_contacts(&alice, &stored(std::slice::from_ref(&late))).await;
    outbox.fan_out_new(&raised, &[webhook("copy")]).await;
    record(&outbox.client, &raised).await;
    let told = run(&outbox.server, "explain alice").expect_done();
    let hears = format!("{} (email, hears 100)", late.id);
    assert!(told.contains(&format!("\nIts alerts go to its contacts {hears}.\n")), "{told}");
    let told = run(&outbox.server, &format!("explain {}", raised.id)).expect_done();
    assert!(told.contains(&format!("\nNot sent to these contacts, by their filters: {hears}.\n")), "{told}");
}

/// After a credit a raised threshold is ahead of the count again: reaching it again does not raise it.
#[tokio::test]
async fn a_threshold_that_was_raised_is_not_predicted_again() {
    let usage = RecordedUsage::start();
    let day = Day::in_utc(usage.now().await).expect("a day");
    usage.set("alice", &[("limit:requests", "100")]).await;
    usage.count("alice", "requests", day, 35).await;
    let raised = |percent, units| {
        let alert = Alert { limit: 100, threshold_units: units, ..alert(&subject("alice"), percent) };
        in_period(alert, day)
    };
    let told = || run(&usage.server, "explain alice").expect_done();
    assert!(told().contains("The next alert is due at 80%, which is 80 units: 45 more are needed."), "{}", told());
    usage.raise(&raised(80, 80), &[]).await;
    assert!(told().contains("The next alert is due at 100%, which is 100 units: 65 more are needed."), "{}", told());
    usage.raise(&raised(100, 100), &[]).await;
    assert!(
        told().contains("Every threshold ahead was raised before; the next alert comes in the next period"),
        "{}",
        told()
    );
}

/// A cap counts in the first partition for all: read elsewhere it always looked unused.
#[tokio::test]
async fn a_cap_is_told_whatever_the_partition() {
    let server = RedisServer::start();
    let keys = Keys::of_partition("usage", PartitionNumber::of_subject(b"alice", quotabell::types::Separator::NONE, 4));
    let outbox = Outbox { client: Arc::new(server.client()), server, keys };
    let (_, id) = made(&outbox, "alice").await;
    let first = Keys::of_partition("usage", PartitionNumber::first(4));
    let cap = SlidingWindow::new(Rate::new(1, Duration::from_secs(600)).expect("a rate")).expect("few enough");
    let key = first.cap(Channel::Webhook, Some("https://alice.test"));
    cap.take(&mut outbox.client.connection(), &key, 1).await.expect("Redis answers");
    let explain = quotabell(["explain", id.as_str()]).redis(&outbox.server.url());
    let explain = explain.env("QUOTABELL__STREAM__PARTITIONS", "4").env("QUOTABELL__WEBHOOK__PER_DESTINATION", "1/10m");
    let told = explain.run().expect_done();
    assert!(told.contains("is used up: no message leaves before "), "{told}");
}

/// A fallback contact does not count as a lost contact of the subject.
#[tokio::test]
async fn a_fallback_contact_is_explained_as_one() {
    let outbox = Outbox::start();
    let raised = alert(&subject("alice"), 80);
    let contact = Contact::email("ops@b.test");
    outbox.fan_out_new(&raised, std::slice::from_ref(&contact)).await;
    outbox.set_contacts(&subject("alice"), &stored(&[email("own")])).await;
    let fallback = r#"[{"channel":"email","address":"ops@b.test"}]"#;
    let explain = quotabell(["explain", delivery(&raised, &contact).as_str()]).redis(&outbox.server.url());
    let said = explain.env("QUOTABELL__FALLBACK__CONTACTS", fallback).run().expect_done();
    assert!(
        said.contains("a fallback contact, which gets nothing while the subject has contacts of its own"),
        "{said}"
    );
    assert!(!said.contains("does not have any more"), "{said}");
}
