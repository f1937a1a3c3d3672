//! Digests on the real binary: one message for all alerts of a commit or of an interval, to real receivers.

use crate::support::binary::quotabell;
use crate::support::contacts_api::ContactsApi;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::subject;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::webhook_receiver::{Verified, secret, verify};
use serde_json::{Value, json};

/// A daemon whose subjects have limits by day and by month, so that a commit raises two alerts.
async fn api_with_two_limits() -> ContactsApi {
    ContactsApi::start_with(|setup| {
        setup.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","100/month"]}"#)
    })
    .await
}

async fn next_mail(api: &mut ContactsApi) -> (String, ParsedMail) {
    let mail = tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time");
    (mail.to[0].clone(), ParsedMail::parse(&mail.text()))
}

async fn next_request(receiver: &mut HttpCatcher) -> Verified {
    let caught = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    verify(&caught, &secret(7))
}

async fn deliveries(api: &ContactsApi, filter: &str) -> Vec<Value> {
    let listed = api.caller.get(&format!("/v1/deliveries?subject=alice&{filter}")).await.json();
    listed["deliveries"].as_array().expect("a list").clone()
}

/// Nobody gets an email for each threshold, nobody hears an hour late of a used up day, and a kill loses nothing that
/// waits.
#[tokio::test]
async fn a_digest_tells_everything_once_and_a_used_up_limit_at_once() {
    let mut api = api_with_two_limits().await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run();
    run(&["contact", "add", "alice", "--email", "plain@b.test"]).expect_done();
    run(&["contact", "add", "alice", "--email", "later@b.test", "--digest", "1h"]).expect_done();
    let hook = json!([{"id": "hook", "channel": "webhook", "url": receiver.url("/hook"), "secret": secret(7), "digest": "1h"}]);
    let stored: String = api.outbox.run("HGET", &["quota_subject:alice", "contacts"]).await;
    let mut contacts: Vec<Value> = serde_json::from_str(&stored).expect("JSON");
    contacts.extend(hook.as_array().expect("a list").clone());
    let _: u64 = api.outbox.run("HSET", &["quota_subject:alice", "contacts", &json!(contacts).to_string()]).await;
    assert!(run(&["contact", "list", "alice"]).expect_done().contains("all, digest 1h"));

    api.use_units("alice", 80).await;
    let (to, mail) = next_mail(&mut api).await;
    let text = &mail.parts[0].content;
    assert_eq!((to.as_str(), mail.header("Subject").as_str()), ("plain@b.test", "alice: 2 quota alerts"));
    assert!(
        text.contains("80 of 100 requests a day (80.0%)") && text.contains("80 of 100 requests a month (80.0%)"),
        "{text}"
    );
    // It names the threads of both periods.
    let threads = mail.header("In-Reply-To");
    assert_eq!((threads.matches("<period_").count(), mail.count("References")), (2, 0), "{threads}");
    let quoted = mail.header("Message-ID");
    let message = quoted.split(['<', '@']).nth(1).expect("a Message-ID").to_owned();
    assert!(message.starts_with("digest_"), "{quoted}");
    let explained = run(&["explain", &quoted]).expect_done().replace("\n  ", " ");
    assert!(explained.starts_with(&format!("{message} is a message to one contact with 2 deliveries.")), "{explained}");
    assert_eq!(explained.matches("raised alert").count(), 2, "{explained}");
    let waiting = eventually("four deliveries wait for their digests", || async {
        let pending = deliveries(&api, "state=pending").await;
        let wait = |of: &Value| of["next_due"].as_str() > of["created_at"].as_str() && of["attempts"] == 0;
        (pending.len() == 4 && pending.iter().all(wait)).then_some(pending)
    })
    .await;
    let of = |channel: &str| {
        waiting.iter().find(|of| of["channel"] == channel).expect("one")["id"].as_str().expect("an id").to_owned()
    };
    let (by_mail, by_hook) = (of("email"), of("webhook"));
    let explained = run(&["explain", &by_mail]).expect_done().replace("\n  ", " ");
    assert!(explained.contains("one message tells what comes within 1h; alerts at 100 %"), "{explained}");

    // A lease of the killed daemon would delay what follows at its destination.
    let recorded = || async { (deliveries(&api, "state=delivered").await.len() == 2).then_some(()) };
    eventually("the outcomes are recorded", recorded).await;
    let mut api = api
        .restart_after_kill(|setup| {
            setup
                .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","100/month"]}"#)
                .env("QUOTABELL__RETRY__FIRST", "100ms")
        })
        .await;
    receiver.then(Answer::status(503));
    run(&["deliveries", "retry", &by_mail, &by_hook]).expect_done();
    let (to, mail) = next_mail(&mut api).await;
    let subject = "alice: 2 quota alerts".to_owned();
    assert_eq!((to.as_str(), mail.header("Subject")), ("later@b.test", subject.clone()));
    let (refused, digest) = (next_request(&mut receiver).await, next_request(&mut receiver).await);
    assert_eq!((&refused.id, &refused.body), (&digest.id, &digest.body), "a repetition tells the same");
    assert_eq!(digest.body["type"], "quota.digest");
    let data = &digest.body["data"];
    let items = data["items"].as_array().expect("a list");
    assert_eq!((data.as_object().expect("an object").len(), items.len()), (1, 2), "{data}");
    for (item, window) in items.iter().zip(["day", "month"]) {
        let names: Vec<&str> = item.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!((names, &item["type"]), (vec!["data", "type"], &json!("quota.threshold_reached")));
        assert_eq!((&item["data"]["window"], &item["data"]["threshold_percent"]), (&json!(window), &json!(80)));
    }
    // A used up limit is told at once: to people in one message, to programs one by one.
    api.use_units("alice", 20).await;
    let mails = [next_mail(&mut api).await, next_mail(&mut api).await];
    assert!(mails.iter().all(|(_, mail)| mail.header("In-Reply-To") == threads), "{threads}");
    let mut told = mails.map(|(to, mail)| (to, mail.header("Subject")));
    told.sort();
    assert_eq!(told, [("later@b.test".to_owned(), subject.clone()), ("plain@b.test".to_owned(), subject.clone())]);
    let at_once = [next_request(&mut receiver).await, next_request(&mut receiver).await];
    assert!(
        at_once
            .iter()
            .all(|one| one.body["type"] == "quota.threshold_reached" && one.body["data"]["threshold_percent"] == 100)
    );

    eventually("everything is told", || async { deliveries(&api, "state=pending").await.is_empty().then_some(()) })
        .await;
    assert_eq!(deliveries(&api, "state=delivered").await.len(), 12);
    let shown: Value =
        serde_json::from_str(&run(&["deliveries", "show", &by_hook, "--json"]).expect_done()).expect("JSON");
    assert_eq!((&shown["sent_in"], &shown["attempts"]), (&json!(digest.id), &json!(2)), "{shown}");
    assert!(api.mailbox.try_next().is_none(), "each contact was told once of each alert");
    let logged = run(&["alerts", "export", "--since", "1h"]).expect_json();
    let ends = || logged.iter().flat_map(|one| one["deliveries"].as_array().expect("a list"));
    let named =
        |message: &str, to: &str| ends().filter(|end| end["sent_in"] == message && end["address"] == to).count();
    assert_eq!((named(&message, "p***@b.test"), named(&digest.id, &receiver.url("/hook"))), (2, 2), "{logged:?}");
    assert_eq!(ends().filter(|end| end.get("sent_in").is_none()).count(), 2, "what left alone: {logged:?}");
    assert_eq!(api.outbox.run::<u64>("ZCARD", api.outbox.keys.grouped()).await, 0);
}

/// Who paid for more would get a message for each window beside the digest, or read of limits that are not theirs.
#[tokio::test]
async fn ends_are_one_digest_of_what_was_told() {
    let api = ContactsApi::start_with(|setup| {
        let setup = setup.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","100/month"]}"#);
        setup.env("QUOTABELL__RETRY__FIRST", "100ms")
    })
    .await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run();
    let mut hook = json!({"id": "hook", "channel": "webhook", "url": receiver.url("/"), "secret": secret(7)});
    (hook["digest"], hook["resolved"]) = (json!("1h"), json!(true));
    api.outbox.set_contacts(&subject("alice"), &json!([hook]).to_string()).await;
    let waiting = async |count: usize| {
        eventually("they wait for the digest", || async {
            let pending = deliveries(&api, "state=pending").await;
            let wait = |of: &Value| of["next_due"].as_str() > of["created_at"].as_str() && of["attempts"] == 0;
            (pending.len() == count && pending.iter().all(wait)).then_some(pending)
        })
        .await
    };
    api.use_units("alice", 80).await;
    waiting(2).await;
    api.use_units("alice", 20).await;
    for _ in ["day", "month"] {
        assert_eq!(next_request(&mut receiver).await.body["data"]["threshold_percent"], 100);
    }
    eventually("both are recorded", || async { (deliveries(&api, "state=delivered").await.len() == 2).then_some(()) })
        .await;
    run(&["subject", "set", "alice", "--limit", "requests=200/day 200/month"]).expect_done();
    let all = waiting(4).await;
    receiver.then(Answer::status(503));
    run(&["deliveries", "retry", all[0]["id"].as_str().expect("an id")]).expect_done();
    let (refused, digest) = (next_request(&mut receiver).await, next_request(&mut receiver).await);
    assert_eq!((&refused.id, &refused.body), (&digest.id, &digest.body), "a repetition tells the same");
    let items = digest.body["data"]["items"].as_array().expect("a list").clone();
    let told: Vec<Value> =
        items.iter().map(|item| json!([item["type"], item["data"]["window"], item["data"]["thresholds"]])).collect();
    let expected = json!([["quota.resolved", "day", [100]], ["quota.resolved", "month", [100]]]);
    assert_eq!(json!(told), expected, "the alerts at 80 % are not true any more");
    eventually("everything is told", || async { deliveries(&api, "state=pending").await.is_empty().then_some(()) })
        .await;
    assert_eq!(deliveries(&api, "state=delivered").await.len(), 4);
    assert_eq!(deliveries(&api, "state=expired").await.len(), 2);
    assert!(receiver.try_next().is_none(), "each was told once");
}

/// A mute or a wrong setting of one contact must not silence others, and the API says what is wrong.
#[tokio::test]
async fn the_api_sets_digests_and_a_mute_ends_only_its_own_alerts() {
    let mut api = api_with_two_limits().await;
    let id = api.add_email("alice", "later@b.test").await;
    let code = api.next_verification().await.code;
    api.submit_code("alice", &id, &code).await;
    let path = format!("/v1/subjects/alice/contacts/{id}");
    for (bad, said) in [
        (json!({"digest": "0s"}), "from 1s to 7d"),
        (json!({"digest": "8d"}), "\"8d\" is not the interval of a digest"),
        (json!({"digest": 3600}), "digest"),
        (json!({"digest_all": "yes"}), "digest_all"),
    ] {
        api.caller.put(&path, &bad).await.expect_problem(400, said);
    }
    let shown = api.caller.put(&path, &json!({"digest": "2s", "digest_all": true})).await.json();
    assert_eq!((&shown["digest"], &shown["digest_all"]), (&json!("2s"), &json!(true)), "{shown}");

    // Both alerts at 80 % and both at 100 % come in one message.
    api.use_units("alice", 100).await;
    let (_, mail) = next_mail(&mut api).await;
    assert_eq!(mail.header("Subject"), "alice: 4 quota alerts");
    let plain = api.caller.put(&path, &json!({})).await.json();
    assert!(plain["digest"].is_null() && plain["digest_all"].is_null(), "{plain}");
    eventually("they are recorded", || async { (deliveries(&api, "state=delivered").await.len() == 5).then_some(()) })
        .await;
}

/// A customer who has bought more meanwhile would read of a limit that is not theirs any more.
#[tokio::test]
async fn an_alert_that_a_higher_limit_has_ended_is_left_out_of_a_digest() {
    let mut api = api_with_two_limits().await;
    let url = api.outbox.server.url();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&url).run();
    run(&["contact", "add", "alice", "--email", "later@b.test", "--digest", "1h"]).expect_done();
    api.use_units("alice", 80).await;
    let waiting = eventually("two deliveries wait for their digest", || async {
        let pending = deliveries(&api, "state=pending").await;
        (pending.len() == 2).then_some(pending)
    })
    .await;
    let ids: Vec<&str> = waiting.iter().filter_map(|of| of["id"].as_str()).collect();
    run(&["subject", "set", "alice", "--limit", "requests=1000/day 100/month"]).expect_done();
    run(&["deliveries", "retry", ids[0], ids[1]]).expect_done();
    let (to, mail) = next_mail(&mut api).await;
    let text = &mail.parts[0].content;
    assert!(to == "later@b.test" && text.contains("requests a month") && !text.contains("requests a day"), "{text}");
    let expired = eventually("the other one has ended", || async {
        deliveries(&api, "state=expired").await.first().map(|of| of["id"].as_str().expect("an id").to_owned())
    })
    .await;
    let explained = run(&["explain", &expired]).expect_done().replace("\n  ", " ");
    assert!(explained.contains("a higher limit or a credit had ended the alert"), "{explained}");
}
