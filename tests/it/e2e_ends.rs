//! The end of alerts on the real binary: who hears of it, when, and what the lists show.

use crate::support::binary::quotabell;
use crate::support::contacts_api::ContactsApi;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::{in_period, subject};
use crate::support::receivers::HttpCatcher;
use crate::support::webhook_receiver::{secret, verify};
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{Alert, ContactId, Day, DaySpan, DeliveryId, Metric, UnixMs, keys};
use quotabell::zones::Zone;
use serde_json::{Value, json};

const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";

async fn receiver() -> HttpCatcher {
    HttpCatcher::start([]).await.expect("a receiver")
}

/// The next email: its recipient, subject line and text.
async fn next(api: &mut ContactsApi) -> (String, String, String) {
    let mail = tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time");
    let parsed = ParsedMail::parse(&mail.text());
    (mail.to[0].clone(), parsed.header("Subject"), parsed.parts[0].content.clone())
}

/// The body of the next request.
async fn next_body(receiver: &mut HttpCatcher) -> Value {
    let request = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    serde_json::from_slice(&request.body).expect("JSON")
}

async fn set_contacts(api: &ContactsApi, of: &str, contacts: &Value) {
    api.outbox.set_contacts(&subject(of), &contacts.to_string()).await;
}

/// The alerts of a subject as the API lists them.
async fn alerts(api: &ContactsApi, of: &str) -> Vec<Value> {
    let listed = api.caller.get(&format!("/v1/subjects/{of}/alerts")).await.json();
    listed["alerts"].as_array().expect("a list").clone()
}

/// Waits until each alert of a subject has this state.
async fn all_are(api: &ContactsApi, of: &str, state: &str) -> Vec<Value> {
    eventually(&format!("the alerts of {of} are {state}"), || async {
        let listed = alerts(api, of).await;
        (!listed.is_empty() && listed.iter().all(|alert| alert["state"] == state)).then_some(listed)
    })
    .await
}

/// The deliveries of ends to a subject.
async fn ends(api: &ContactsApi, of: &str) -> Vec<Value> {
    let listed = api.caller.get(&format!("/v1/deliveries?subject={of}")).await.json();
    let deliveries = listed["deliveries"].as_array().expect("a list").clone();
    deliveries.into_iter().filter(|delivery| delivery["type"] == "resolved").collect()
}

/// A customer who paid for more must hear that it is settled, once, and the page must close by itself; nobody else may
/// be told.
#[tokio::test]
async fn a_higher_limit_is_told_to_those_who_ask_and_had_the_alert() {
    let mut api = ContactsApi::start().await;
    let (mut hook, mut page, mut unpaged) = (receiver().await, receiver().await, receiver().await);
    let url = api.outbox.server.url();
    let run = |line: &str| quotabell(line.split_whitespace()).redis(&url).run();
    let pagerduty = |id: &str, url: String| json!({"id": id, "channel": "webhook", "url": url, "secret": ROUTING_KEY, "format": "pagerduty"});
    let mut unasked = pagerduty("unpaged", unpaged.url("/"));
    unasked["resolved"] = json!(false);
    let mut contacts = json!([
        {"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true},
        {"id": "silent", "channel": "email", "address": "silent@b.test"},
        {"id": "late", "channel": "email", "address": "late@b.test", "thresholds": [100], "resolved": true},
        {"id": "hook", "channel": "webhook", "url": hook.url("/"), "secret": secret(1), "resolved": true},
        pagerduty("page", page.url("/")),
        unasked,
    ]);
    set_contacts(&api, "alice", &contacts).await;
    api.use_units("alice", 85).await;
    let mut told = [next(&mut api).await.0, next(&mut api).await.0];
    told.sort_unstable();
    assert_eq!(told, ["asks@b.test", "silent@b.test"]);
    for receiver in [&mut hook, &mut page, &mut unpaged] {
        next_body(receiver).await;
    }
    eventually("all are recorded", || async {
        let listed = api.caller.get("/v1/deliveries?subject=alice&state=delivered").await.json();
        (listed["deliveries"].as_array().map(Vec::len) == Some(5)).then_some(())
    })
    .await;
    let open = all_are(&api, "alice", "open").await.remove(0);
    assert!(open["ended_at"].is_null() && open["end_reason"].is_null(), "{open}");

    // Somebody who had no alert waits for no end.
    contacts.as_array_mut().expect("a list").push(json!(
        {"id": "new", "channel": "email", "address": "new@b.test", "resolved": true}
    ));
    set_contacts(&api, "alice", &contacts).await;
    run("subject set alice --limit requests=200").expect_done();
    let (to, heading, text) = next(&mut api).await;
    assert_eq!((to.as_str(), heading.as_str()), ("asks@b.test", "alice: the limit of requests a day was raised"));
    assert!(text.contains("The limit was raised to 200 requests a day") && text.contains("Reached   80%"), "{text}");
    let request = tokio::time::timeout(WAIT_MAX, hook.next()).await.expect("a request in time");
    let body = verify(&request, &secret(1)).body;
    let data = &body["data"];
    assert_eq!(
        (&body["type"], &data["reason"], &data["thresholds"]),
        (&json!("quota.resolved"), &json!("limit_raised"), &json!([80]))
    );
    assert_eq!((&data["used"], &data["limit"], &data["threshold_percent"]), (&json!(85), &json!(200), &json!(80)));
    let closed = next_body(&mut page).await;
    assert_eq!(closed, json!({"routing_key": ROUTING_KEY, "event_action": "resolve", "dedup_key": open["id"]}));

    let ended = all_are(&api, "alice", "ended").await.remove(0);
    assert_eq!((&ended["end_reason"], &ended["id"]), (&json!("limit_raised"), &open["id"]));
    assert_eq!(ended["ended_at"], data["resolved_at"]);
    let states = eventually("every end has its outcome", || async {
        let mut states: Vec<(String, String)> = ends(&api, "alice")
            .await
            .iter()
            .map(|of| {
                let text = |field: &str| of[field].as_str().expect(field).to_owned();
                (text("contact_id"), text("state"))
            })
            .collect();
        states.sort();
        states.iter().all(|(_, state)| state != "pending").then_some(states)
    })
    .await;
    let delivered = |id: &str| (id.to_owned(), "delivered".to_owned());
    assert_eq!(
        states,
        [delivered("asks"), delivered("hook"), ("new".to_owned(), "expired".to_owned()), delivered("page")]
    );
    assert!(api.mailbox.try_next().is_none() && unpaged.try_next().is_none());

    for list in ["alerts", "usage alice"] {
        let listed = run(list).expect_done();
        assert!(listed.contains("80% ended"), "{listed}");
    }
    for of in [open["id"].as_str().expect("an id"), "alice"] {
        let explained = run(&format!("explain {of}")).expect_done();
        assert!(explained.contains("because a higher limit or a grant put the count"), "{explained}");
    }
    let all = api.caller.get("/v1/alerts/newest").await.json();
    assert_eq!(all["alerts"][0]["state"], "ended");
    let exported = run("alerts export --since 1h").expect_done();
    let exported: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let told = exported.iter().filter(|line| line["type"] == "resolved").count();
    assert_eq!(told, 2, "the end for people and that for the incident: {exported:?}");
    let exported = exported.iter().find(|line| line["alert"].is_object()).expect("the alert");
    assert_eq!((&exported["state"], &exported["end_reason"]), (&json!("ended"), &json!("limit_raised")));
    assert_eq!(exported["alert"]["state"], Value::Null, "as it was raised");
    let metrics = api.caller.get("/metrics").await.text;
    assert!(metrics.contains("quotabell_alerts_ended_total{reason=\"limit_raised\"} 1"), "{metrics}");
    assert!(!metrics.contains("quotabell_notices_raised_total{type=\"quota.resolved\"} 0"), "{metrics}");

    // A higher threshold under the new limit is another alert, with an end of its own.
    api.use_units("alice", 100).await;
    let mut told = [next(&mut api).await.0, next(&mut api).await.0, next(&mut api).await.0];
    told.sort_unstable();
    assert_eq!(told, ["asks@b.test", "new@b.test", "silent@b.test"]);
    next_body(&mut hook).await;
    assert_eq!(next_body(&mut page).await["event_action"], "trigger");
    run("grant add alice 500 --window day").expect_done();
    let mut told = [next(&mut api).await.0, next(&mut api).await.0];
    told.sort_unstable();
    assert_eq!(told, ["asks@b.test", "new@b.test"]);
    assert_eq!(next_body(&mut hook).await["data"]["reason"], "limit_raised");
    assert_eq!(next_body(&mut page).await["event_action"], "resolve");
}

/// A fallback contact that got the alert waits for its end, although the subject has contacts of its own meanwhile; a
/// contact that was removed, or that comes instead of it, must hear nothing.
#[tokio::test]
async fn an_end_goes_to_those_who_had_the_alert_whoever_the_contacts_are_now() {
    let mut fallback = receiver().await;
    let contact = json!([{"channel": "webhook", "url": fallback.url("/"), "secret": secret(1), "resolved": true}]);
    let of_all = contact.to_string();
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__FALLBACK__CONTACTS", &of_all)).await;
    let own = json!([{"id": "own", "channel": "email", "address": "own@b.test", "resolved": true}]);
    set_contacts(&api, "gone", &own).await;
    for of in ["late", "gone"] {
        api.use_units(of, 85).await;
    }
    assert_eq!(next_body(&mut fallback).await["data"]["subject"], "late");
    assert!(next(&mut api).await.1.starts_with("gone"));
    eventually("both are recorded", || async { (api.outbox.totals().await.delivered == 2).then_some(()) }).await;
    set_contacts(&api, "late", &own).await;
    set_contacts(&api, "gone", &json!([])).await;
    let url = api.outbox.server.url();
    for of in ["late", "gone"] {
        let words = ["subject", "set", of, "--limit", "requests=200"];
        quotabell(words).redis(&url).run().expect_done();
    }
    let told = next_body(&mut fallback).await;
    assert_eq!((&told["type"], &told["data"]["subject"]), (&json!("quota.resolved"), &json!("late")));
    let states = eventually("every end has its outcome", || async {
        let ends = [ends(&api, "late").await, ends(&api, "gone").await];
        let state = |of: &Value| of["state"].as_str().expect("a state").to_owned();
        let mut states = ends.map(|of| of.iter().map(state).collect::<Vec<_>>());
        states[0].sort_unstable();
        (states[0].len() == 2 && states[1].len() == 1 && !states.concat().contains(&"pending".to_owned()))
            .then_some(states)
    })
    .await;
    assert_eq!(states, [vec!["delivered".to_owned(), "expired".to_owned()], vec!["expired".to_owned()]]);
    assert!(fallback.try_next().is_none() && api.mailbox.try_next().is_none());
}

/// A contact would never hear the end of an alert that it had before its filter changed, or if its subject's contacts
/// can't be read just then; a fallback contact that had no alert must cause no delivery.
#[tokio::test]
async fn an_end_reaches_contacts_that_have_changed_since_the_alert() {
    let mut fallback = receiver().await;
    let of_all = json!([{"channel": "webhook", "url": fallback.url("/"), "secret": secret(1), "resolved": true}]);
    let of_all = of_all.to_string();
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__FALLBACK__CONTACTS", &of_all)).await;
    let own = |of: &str, thresholds: &[u8], resolved: bool| {
        json!([{"id": "own", "channel": "email", "address": format!("{of}@b.test"), "thresholds": thresholds,
            "resolved": resolved}])
    };
    for of in ["narrow", "broken", "silent"] {
        set_contacts(&api, of, &own(of, &[80], of != "silent")).await;
        api.use_units(of, 85).await;
        assert_eq!(next(&mut api).await.0, format!("{of}@b.test"));
    }
    eventually("all are recorded", || async { (api.outbox.totals().await.delivered == 3).then_some(()) }).await;
    set_contacts(&api, "narrow", &own("narrow", &[100], true)).await;
    api.outbox.set_contacts(&subject("broken"), "[{").await;
    let url = api.outbox.server.url();
    for of in ["narrow", "broken", "silent"] {
        quotabell(["subject", "set", of, "--limit", "requests=200"]).redis(&url).run().expect_done();
        all_are(&api, of, "ended").await;
    }
    assert_eq!(next(&mut api).await.0, "narrow@b.test");
    // That of the alert, and that of the quota: nobody knows which of them the contact asks for.
    eventually("both ends wait", || async { (api.outbox.totals().await.waiting == 2).then_some(()) }).await;
    set_contacts(&api, "broken", &own("broken", &[80], true)).await;
    assert_eq!(next(&mut api).await.0, "broken@b.test");
    eventually("both are recorded", || async {
        let totals = api.outbox.totals().await;
        ((totals.delivered, totals.pending) == (5, 0)).then_some(())
    })
    .await;
    // Those that waited are cancelled. What goes to the contacts of then is judged for each.
    let of_broken = &["cancelled", "cancelled", "delivered", "expired"][..];
    for (of, expected) in [("narrow", &["delivered"][..]), ("broken", of_broken), ("silent", &[])] {
        let ends = ends(&api, of).await.into_iter();
        let mut states: Vec<String> = ends.map(|end| end["state"].as_str().expect("a state").to_owned()).collect();
        states.sort_unstable();
        assert_eq!(states, expected, "{of}");
    }
    assert_eq!(api.outbox.totals().await.outbox, 0);
    assert!(fallback.try_next().is_none() && api.mailbox.try_next().is_none());
}

/// A page would stay open for ever; and who unsubscribed or was muted would get a message.
#[tokio::test]
async fn a_mute_holds_an_end_back_but_closes_the_incident() {
    let mut api = ContactsApi::start().await;
    let mut page = receiver().await;
    let contacts = json!([
        {"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true},
        {"id": "page", "channel": "webhook", "url": page.url("/"), "secret": ROUTING_KEY, "format": "pagerduty"},
    ]);
    set_contacts(&api, "gina", &contacts).await;
    api.use_units("gina", 85).await;
    assert_eq!(next(&mut api).await.0, "asks@b.test");
    assert_eq!(next_body(&mut page).await["event_action"], "trigger");
    eventually("both are recorded", || async { (api.outbox.totals().await.delivered == 2).then_some(()) }).await;
    let url = api.outbox.server.url();
    for line in [
        "contact mute gina asks",
        "contact mute gina page",
        "subject mute gina --metric requests",
        "subject set gina --limit requests=200",
    ] {
        quotabell(line.split_whitespace()).redis(&url).run().expect_done();
    }
    assert_eq!(next_body(&mut page).await["event_action"], "resolve");
    eventually("the end is muted", || async {
        let ends = ends(&api, "gina").await;
        ends.iter().any(|end| end["contact_id"] == "asks" && end["state"] == "muted").then_some(())
    })
    .await;
    assert!(api.mailbox.try_next().is_none());
}

/// An end would be told while an alert is open, and that of the other alert minutes late.
#[tokio::test]
async fn an_alert_at_a_threshold_that_was_taken_out_is_open_until_it_ends() {
    let mut api = ContactsApi::start().await;
    let contacts = json!([{"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true}]);
    set_contacts(&api, "hugo", &contacts).await;
    let url = api.outbox.server.url();
    let set = |line: &str| {
        let line = format!("subject set hugo {line}");
        quotabell(line.split_whitespace()).redis(&url).run().expect_done();
    };
    set("--threshold 50,80");
    api.use_units("hugo", 95).await;
    assert_eq!(next(&mut api).await.1, "hugo: 2 quota alerts");
    eventually("both are recorded", || async { (api.outbox.totals().await.delivered == 2).then_some(()) }).await;
    set("--threshold 80 --limit requests=150");
    eventually("95 are below 80 % and not below 50 %", || async {
        let listed = alerts(&api, "hugo").await;
        let state = |percent: u16| listed.iter().find(|alert| alert["threshold_percent"] == percent)?["state"].as_str();
        (state(80) == Some("ended") && state(50) == Some("open")).then_some(())
    })
    .await;
    set("--limit requests=200");
    let (_, heading, text) = next(&mut api).await;
    assert_eq!(heading, "hugo: the limit of requests a day was raised");
    assert!(text.contains("Reached   50%, 80%"), "{text}");
    let listed = all_are(&api, "hugo", "ended").await;
    assert!(listed.iter().all(|alert| alert["end_reason"] == "limit_raised"), "{listed:?}");
    assert_eq!(ends(&api, "hugo").await.len(), 1);
}

/// Credits around a threshold would be told again and again, or the end of an alert that is open again.
#[tokio::test]
async fn a_credit_ends_an_alert_once_and_a_new_crossing_opens_it_again() {
    let mut api = ContactsApi::start().await;
    let contacts = json!([{"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true}]);
    for of in ["bob", "carol"] {
        set_contacts(&api, of, &contacts).await;
    }
    api.use_units("bob", 80).await;
    let (_, heading, _) = next(&mut api).await;
    assert!(heading.contains("80"), "{heading}");
    let _: String = api.outbox.run("XADD", &["usage", "*", "subject", "bob", "credit", "1"]).await;
    let ended = all_are(&api, "bob", "ended").await.remove(0);
    assert_eq!(ended["end_reason"], "credited");
    let (_, heading, text) = next(&mut api).await;
    assert_eq!(heading, "bob: usage of requests in the day is below every threshold again");
    assert!(text.contains("Used      79 of 100 requests"), "{text}");
    api.use_units("bob", 1).await;
    all_are(&api, "bob", "open").await;
    let _: String = api.outbox.run("XADD", &["usage", "*", "subject", "bob", "credit", "1"]).await;
    all_are(&api, "bob", "ended").await;
    assert_eq!(ends(&api, "bob").await.len(), 1, "the alert was told once, and so is its end");
    assert!(api.mailbox.try_next().is_none());
    // Counted together, they leave a count that is not lower than before.
    let mut both = redis::pipe();
    both.atomic();
    for (kind, units) in [("units", 80), ("credit", 1)] {
        both.cmd("XADD").arg("usage").arg("*").arg("subject").arg("carol").arg(kind).arg(units).ignore();
    }
    let () = api.outbox.client.pipe(&both).await.expect("appended");
    let (_, heading, _) = next(&mut api).await;
    assert!(heading.contains("80"), "{heading}");
    let (_, heading, _) = next(&mut api).await;
    assert_eq!(heading, "carol: usage of requests in the day is below every threshold again");
}

/// An end that waits, here for a quiet time, must not be sent while its alert is open again; and it must not be lost.
#[tokio::test]
async fn an_end_is_judged_again_when_it_is_sent() {
    let mut api = ContactsApi::start().await;
    let url = api.outbox.server.url();
    let run = |line: &str| quotabell(line.split_whitespace()).redis(&url).run();
    let contact = json!({"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true});
    set_contacts(&api, "carol", &json!([contact.clone()])).await;
    api.use_units("carol", 90).await;
    next(&mut api).await;
    eventually("the alert is recorded", || async {
        let listed = api.caller.get("/v1/deliveries?subject=carol&state=delivered").await.json();
        (listed["deliveries"].as_array().map(Vec::len) == Some(1)).then_some(())
    })
    .await;
    // Nothing leaves while sending is paused.
    run("deliveries pause").expect_done();
    run("subject set carol --limit requests=200").expect_done();
    all_are(&api, "carol", "ended").await;
    eventually("the end is fanned out", || async { (ends(&api, "carol").await.len() == 1).then_some(()) }).await;
    run("subject set carol --limit requests=100").expect_done();
    all_are(&api, "carol", "open").await;
    run("deliveries resume").expect_done();
    eventually("it is withdrawn", || async {
        (ends(&api, "carol").await.remove(0)["state"] == "expired").then_some(())
    })
    .await;
    assert!(api.mailbox.try_next().is_none());
    run("subject set carol --limit requests=300").expect_done();
    all_are(&api, "carol", "ended").await;
    let ended = alerts(&api, "carol").await.remove(0);
    let (_, heading, text) = next(&mut api).await;
    assert_eq!(heading, "carol: the limit of requests a day was raised");
    let at = ended["ended_at"].as_str().expect("a time").get(11..16).expect("a clock").to_owned();
    assert!(text.contains(&at), "it has the last end: {text}");
    assert_eq!(ends(&api, "carol").await.len(), 2, "the next end is another notice");
}

/// A period that ended while no daemon ran must be told when one starts again, once however often it is killed.
#[tokio::test]
async fn the_end_of_a_period_is_told_after_the_daemon_was_away() {
    let api = ContactsApi::start().await;
    let contacts = json!([
        {"id": "asks", "channel": "email", "address": "asks@b.test", "resolved": true},
        {"id": "dead", "channel": "email", "address": "dead@b.test", "resolved": true}
    ]);
    set_contacts(&api, "dora", &contacts).await;
    // Something must have been counted.
    api.use_units("other", 1).await;
    eventually("it is counted", || async { (api.outbox.totals().await.counted == 1).then_some(()) }).await;
    let now = api.outbox.totals().await.now;
    let yesterday = Day::in_utc(UnixMs(now.0 - 86_400_000)).expect("a day");
    let end = DaySpan::for_day(Zone::UTC, yesterday).expect("a day").end;
    let of_yesterday = |percent| {
        let alert = in_period(crate::support::outbox::alert(&subject("dora"), percent), yesterday);
        Alert { resets_at: Some(Rfc3339(end)), raised_at_ms: UnixMs(end.0 - 3_600_000), ..alert }
    };
    for percent in [80, 100] {
        let alert = of_yesterday(percent);
        crate::support::books::record(&api.outbox.client, &alert).await;
        for (contact, state) in [("asks", "delivered"), ("dead", "dead")] {
            let id = DeliveryId::derive(&alert.id, &ContactId::from_stored(contact));
            let key = api.outbox.keys.delivery(&id);
            let fields = [&key, "state", state, "type", "alert", "subject", "dora", "channel", "email"];
            let _: u64 = api.outbox.run("HSET", &fields).await;
        }
    }
    let counter = api.outbox.keys.usage(&Metric::default(), yesterday, keys::bucket("dora"));
    let _: u64 = api.outbox.run("HSET", &[counter.as_str(), "dora", "5000"]).await;
    let mut api = api.restart_after_kill(|setup| setup).await;
    let (to, heading, text) = next(&mut api).await;
    assert_eq!((to.as_str(), heading.as_str()), ("asks@b.test", "dora: a new day has begun for requests"));
    assert!(text.contains("Reached   80%, 100%"), "{text}");
    let listed = all_are(&api, "dora", "ended").await;
    assert!(listed.iter().all(|alert| alert["end_reason"] == "reset"), "{listed:?}");
    eventually("the other one had no alert", || async {
        let states: Vec<Value> = ends(&api, "dora").await.into_iter().map(|of| of["state"].clone()).collect();
        (states.len() == 2 && states.contains(&json!("expired")) && states.contains(&json!("delivered"))).then_some(())
    })
    .await;
    let mut api = api.restart_after_kill(|setup| setup).await;
    // The search after the start is over when a change is noticed behind it.
    set_contacts(&api, "erin", &contacts).await;
    api.use_units("erin", 80).await;
    assert!(next(&mut api).await.1.starts_with("erin") && next(&mut api).await.1.starts_with("erin"));
    let _: String = api.outbox.run("XADD", &["usage", "*", "subject", "erin", "credit", "1"]).await;
    assert!(next(&mut api).await.1.starts_with("erin") && next(&mut api).await.1.starts_with("erin"));
    assert!(api.mailbox.try_next().is_none(), "told twice");
    // The deliveries that this test made are in no list.
    let made: Vec<String> = api.outbox.run("KEYS", &["quota_delivery:*"]).await;
    for key in made {
        let listed: Option<String> = api.outbox.run("HGET", &[key.as_str(), "resolved"]).await;
        if listed.is_none() {
            let _: u64 = api.outbox.run("DEL", &[&key]).await;
        }
    }
    let url = api.outbox.server.url();
    quotabell(["subject", "remove", "dora", "--everything"]).redis(&url).run().expect_done();
    let left: Vec<String> = api.outbox.run("KEYS", &["*"]).await;
    for key in left {
        // A stream keeps the bytes of removed entries for a while.
        let content: String = match api.outbox.run::<String>("TYPE", &[&key]).await.as_str() {
            "stream" => format!("{:?}", api.outbox.run::<redis::Value>("XRANGE", &[key.as_str(), "-", "+"]).await),
            _ => {
                let dump: Option<Vec<u8>> = api.outbox.run("DUMP", &[&key]).await;
                String::from_utf8_lossy(&dump.unwrap_or_default()).into_owned()
            }
        };
        assert!(!key.contains("dora") && !content.contains("dora"), "{key} still names the subject");
    }
}
