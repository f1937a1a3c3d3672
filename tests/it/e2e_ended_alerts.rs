//! Alerts that have ended before anybody could be told, on the real binary: they are not told, and neither are their
//! ends.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::binary::quotabell;
use crate::support::contacts_api::ContactsApi;
use crate::support::eventually::eventually;
use crate::support::outbox::subject;
use crate::support::receivers::{Answer, HttpCatcher, Phase, Reply, Times};
use quotabell::types::UnixMs;
use quotabell::types::timestamp::Rfc3339;
use serde_json::{Value, json};

/// How long an alert is sent without another look at it.
const FRESH_MS: i64 = 3_000;

/// An email contact and an incident, which both ask for ends.
fn contacts(receiver: &HttpCatcher) -> Value {
    json!([
        {"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true},
        {"id": "page", "channel": "webhook", "url": receiver.url("/"), "format": "pagerduty",
            "secret": "0123456789abcdef0123456789abcdef"}
    ])
}

async fn deliveries(api: &ContactsApi, of: &str) -> Vec<Value> {
    let listed = api.caller.get(&format!("/v1/deliveries?subject={of}")).await.json();
    listed["deliveries"].as_array().expect("a list").clone()
}

/// Waits until the alert of a subject has ended and is not fresh any more.
async fn is_over(api: &ContactsApi, of: &str) {
    eventually(&format!("the alert of {of} has ended"), || async {
        let listed = api.caller.get(&format!("/v1/subjects/{of}/alerts")).await.json();
        let alert = listed["alerts"].get(0)?;
        let raised: Rfc3339 = serde_json::from_value(alert["raised_at"].clone()).expect("a time");
        let UnixMs(now) = api.outbox.totals().await.now;
        (alert["state"] == "ended" && now >= raised.0.0 + FRESH_MS).then_some(())
    })
    .await;
}

/// Waits until everything about a subject has ended: neither its alert nor the end of it was told.
async fn nothing_is_told(api: &mut ContactsApi, of: &str) {
    let listed = eventually(&format!("nothing of {of} is pending"), || async {
        let listed = deliveries(api, of).await;
        let is_left = listed.iter().any(|delivery| delivery["state"] == "pending");
        (listed.iter().any(|delivery| delivery["type"] == "resolved") && !is_left).then_some(listed)
    })
    .await;
    let told: Vec<&Value> = listed.iter().filter(|of| of["state"] != "expired" && of["channel"] != "none").collect();
    assert!(told.is_empty() && listed.len() >= 4, "{listed:?}");
    assert!(api.mailbox.try_next().is_none());
    api.outbox.assert_balanced().await;
}

/// Contacts that are told, or paged, of what has been over for an hour trust no alert.
#[tokio::test]
async fn an_alert_that_ended_while_it_waited_is_not_told() {
    let mut api = ContactsApi::start().await;
    let mut page = HttpCatcher::start([]).await.expect("a receiver");
    let url = api.outbox.server.url();
    let run = |line: &str| quotabell(line.split_whitespace()).redis(&url).run().expect_done();

    // For a contact.
    api.use_units("alone", 85).await;
    eventually("the alert waits", || async { (!deliveries(&api, "alone").await.is_empty()).then_some(()) }).await;
    run("subject set alone --limit requests=500");
    is_over(&api, "alone").await;
    api.outbox.set_contacts(&subject("alone"), &contacts(&page).to_string()).await;
    eventually("its deliveries have ended", || async {
        let listed = deliveries(&api, "alone").await;
        (listed.len() >= 3 && listed.iter().all(|of| of["state"] != "pending")).then_some(())
    })
    .await;
    let states = deliveries(&api, "alone").await;
    let sent = states.iter().any(|of| of["channel"] != "none" && of["state"] != "expired");
    assert!(!sent && api.mailbox.try_next().is_none() && page.try_next().is_none(), "{states:?}");

    // For the end of a pause.
    api.outbox.set_contacts(&subject("paused"), &contacts(&page).to_string()).await;
    run("deliveries pause");
    api.use_units("paused", 85).await;
    eventually("it is fanned out", || async { (deliveries(&api, "paused").await.len() == 2).then_some(()) }).await;
    run("subject set paused --limit requests=500");
    is_over(&api, "paused").await;
    run("deliveries resume");
    nothing_is_told(&mut api, "paused").await;
    assert!(page.try_next().is_none());

    // What is open is told, however late.
    run("deliveries pause");
    api.use_units("paused", 400).await;
    eventually("it is fanned out", || async { (deliveries(&api, "paused").await.len() > 4).then_some(()) }).await;
    run("deliveries resume");
    assert_eq!(api.next_alert().await, "asks@b.test");
    let body: Value = serde_json::from_slice(&page.next().await.body).expect("JSON");
    assert_eq!(body["event_action"], "trigger");
}

/// An incident that is opened for what is over wakes somebody for nothing.
#[tokio::test]
async fn an_alert_that_ended_before_its_receiver_was_back_is_not_told() {
    let mut api = ContactsApi::start_with(|setup| {
        let setup = setup.env("QUOTABELL__RETRY__FIRST", "500ms").env("QUOTABELL__RETRY__MAX_INTERVAL", "1s");
        setup.env("QUOTABELL__DELIVERY__PROBE_FIRST", "1s").env("QUOTABELL__DELIVERY__PROBE_MAX", "1s")
    })
    .await;
    let is_back = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_back);
    let respond = move |_: &[u8]| Answer::status(if answers.load(Ordering::SeqCst) { 202 } else { 503 });
    let mut page = HttpCatcher::start_on((Ipv4Addr::LOCALHOST, 0).into(), respond).await.expect("a receiver");
    // The address is refused while the alert is open.
    api.mailbox.program(Phase::Rcpt, Reply::Say("451 4.3.0 later"), Times::Always);
    api.outbox.set_contacts(&subject("late"), &contacts(&page).to_string()).await;
    api.use_units("late", 85).await;
    eventually("both receivers have refused it", || async {
        let listed = deliveries(&api, "late").await;
        let was_refused = |of: &Value| of["state"] == "pending" && !of["last_error"].is_null();
        (listed.len() == 2 && listed.iter().all(was_refused)).then_some(())
    })
    .await;
    let _: String = api.outbox.run("XADD", &["usage", "*", "subject", "late", "credit", "50"]).await;
    is_over(&api, "late").await;
    is_back.store(true, Ordering::SeqCst);
    nothing_is_told(&mut api, "late").await;
    let accepted = std::iter::from_fn(|| page.try_next()).filter(|request| request.status < 300).count();
    assert_eq!(accepted, 0, "an incident was opened");
    let listed = deliveries(&api, "late").await;
    let of_alert = listed.iter().find(|of| of["type"] == "alert").expect("its delivery");
    let id = of_alert["id"].as_str().expect("an id");
    let explained = quotabell(["explain", id]).redis(&api.outbox.server.url()).run().expect_done();
    assert!(explained.contains("a higher limit or a credit had ended the alert"), "{explained}");
}
