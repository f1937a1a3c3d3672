//! Contacts that a subject's own side adds, on the real binary: added, listed, removed, with clear errors for
//! conflicts.

use crate::support;
use crate::support::api::Caller;
use crate::support::contacts_api::{ContactsApi, TOKEN, VerificationMail};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::subject;
use crate::support::receivers::{Phase, Reply, Times};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;
use nix::sys::signal::Signal;
use quotabell::types::Keys;
use serde_json::{Value, json};

/// A form that is sent twice must neither invalidate the code of the earlier email nor use up the owner's requests.
#[tokio::test]
async fn an_address_that_is_added_twice_is_asked_once_and_the_second_is_a_conflict() {
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    let body = json!({"channel": "email", "address": "alice@b.test"});
    let (first, second) = tokio::join!(api.try_add("alice", &body), api.try_add("alice", &body));
    let (added, refused) = if first.status == 202 { (first, second) } else { (second, first) };
    assert_eq!(added.status, 202, "{}", added.text);
    refused.expect_problem(409, "waits for its verification");
    let id = added.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(refused.json()["contact"], id.as_str());
    let mail = api.next_verification().await;
    for _ in 0..3 {
        api.try_add("alice", &body).await.expect_problem(409, "waits for its verification");
    }
    assert_eq!(api.submit_code("alice", &id, &mail.code).await.status, 200);
    let verified = api.try_add("alice", &body).await;
    verified.expect_problem(409, "and it is verified");
    assert_eq!(verified.json()["contact"], id.as_str());
    assert!(api.is_verified("alice", &id).await);
    api.counted("sent", 1).await;
    api.daemon.drain().await;
}

/// The caller has the platform's token, so errors say what exists and what does not.
#[tokio::test]
async fn contacts_are_listed_without_their_secrets_and_unknown_ones_are_404() {
    let mut api = ContactsApi::start().await;
    assert!(api.list("nobody").await.is_empty());
    let stored = json!([
        {"id": "main", "channel": "email", "address": "bob@b.test", "muted": true},
        {"id": "hook", "channel": "webhook", "url": "https://x.test/hook", "secret": secret(7), "verified": true},
        {"channel": "sms", "to": "+1"},
    ]);
    api.outbox.set_contacts(&subject("bob"), &stored.to_string()).await;
    let added = api.add_email("bob", "new@b.test").await;
    let mail = api.next_verification().await;
    let list = json!([
        {"id": "main", "channel": "email", "address": "bob@b.test", "muted": true, "verified": true, "added_by": "operator"},
        {"id": "hook", "channel": "webhook", "url": "https://x.test/hook", "secret": "***", "muted": false, "verified": true, "added_by": "subject"},
        {"id": added, "channel": "email", "address": "new@b.test", "muted": false, "verified": false, "added_by": "subject"},
    ]);
    assert_eq!(Value::from(api.list("bob").await), list);

    for (of, contact) in [("bob", "c_0"), ("nobody", added.as_str()), ("bob", "sms")] {
        api.submit_code(of, contact, &mail.code).await.expect_problem(404, "no such contact");
        api.request_verification(of, contact).await.expect_problem(404, "no such contact");
        api.remove(of, contact).await.expect_problem(404, "no such contact");
    }
    for verified in ["main", "hook"] {
        api.submit_code("bob", verified, &mail.code).await.expect_problem(409, "verified already");
        api.request_verification("bob", verified).await.expect_problem(409, "verified already");
    }
    api.remove("bob", "main").await.expect_problem(409, "only the operator can remove it");
    api.remove_existing("bob", "hook").await;
    api.remove("bob", "hook").await.expect_problem(404, "no such contact");
    api.remove_existing("bob", &added).await;
    let left: Vec<Value> = [0, 2].map(|place| stored[place].clone()).to_vec();
    assert_eq!(api.contacts("bob").await, left, "what the operator wrote is not as it was");
    let _: () = api.outbox.run("SET", &[Keys::new("usage").subject(&subject("odd")).as_str(), "not a hash"]).await;
    api.caller.get("/v1/subjects/odd/contacts").await.expect_problem(409, "can't be read");
    api.nothing_else_was_sent().await;
    api.daemon.drain().await;
}

/// A request that was cut off by the deadline still reaches Redis: a retry must not report that a message was sent.
#[tokio::test]
async fn an_add_that_met_a_stall_of_redis_is_asked_when_it_is_tried_again() {
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    // The first request loads the scripts, so that the next request's first command runs at once.
    api.add_email("dave", "dave@b.test").await;
    api.next_verification().await;
    let body = json!({"channel": "email", "address": "erin@b.test"});
    api.signal_redis(Signal::SIGSTOP);
    let path = "/v1/subjects/erin/contacts";
    api.caller.post(path, &body).await.expect_problem(503, "Redis does not answer");
    api.signal_redis(Signal::SIGCONT);
    eventually("added", || async { (api.caller.post(path, &body).await.status == 202).then_some(()) }).await;
    assert_eq!(api.next_verification().await.to, "erin@b.test");
    api.nothing_else_was_sent().await;
    api.daemon.drain().await;
}

/// The platform may have stored a contact under its own id: a caller that adds its address gets that id and verifies
/// with it.
#[tokio::test]
async fn a_contact_with_an_id_of_the_platforms_own_is_verified_under_it() {
    let mut api = ContactsApi::start().await;
    let stored = r#"[{"id":"main","channel":"email","address":"Mia@x.test","verified":false}]"#;
    api.outbox.set_contacts(&subject("mia"), stored).await;
    let there = api.try_add("mia", &json!({"channel": "email", "address": "Mia@X.test"})).await;
    there.expect_problem(409, "waits for its verification");
    assert_eq!(there.json()["contact"], "main");
    assert_eq!(api.request_verification("mia", "main").await.status, 202);
    let mail = api.next_verification().await;
    assert_eq!(mail.to, "Mia@x.test");
    assert_eq!(api.submit_code("mia", "main", &mail.code).await.status, 200);
    assert!(api.is_verified("mia", "main").await);
    api.daemon.drain().await;
}

/// If a contact was stored but its message could not be queued, a retry must ask it.
#[tokio::test]
async fn an_add_whose_message_was_not_queued_is_told_and_can_be_asked_again() {
    let mut api = ContactsApi::start().await;
    let deliveries = api.outbox.keys.deliveries();
    let () = api.outbox.run("SET", &[deliveries.as_str(), "no set"]).await;
    let new = json!({"channel": "email", "address": "new@b.test"});
    api.try_add("alice", &new).await.expect_problem(503, "holds unexpected data");
    let _: u64 = api.outbox.run("DEL", &deliveries).await;
    let there = api.try_add("alice", &new).await;
    there.expect_problem(409, "waits for its verification");
    let id = there.json()["contact"].as_str().expect("an id").to_owned();
    assert_eq!(api.request_verification("alice", &id).await.status, 202);
    assert_eq!(api.next_verification().await.to, "new@b.test");
    api.daemon.drain().await;
}

/// A full Redis must be reported differently from an unavailable one, because the fix differs.
#[tokio::test]
async fn a_full_redis_is_told_as_such() {
    let api = ContactsApi::start().await;
    let () = api.outbox.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    let new = json!({"channel": "email", "address": "new@b.test"});
    api.caller.post("/v1/subjects/alice/contacts", &new).await.expect_problem(503, "memory of Redis is full");
    let () = api.outbox.run("CONFIG", &["SET", "maxmemory", "0"]).await;
    api.add_email("alice", "new@b.test").await;
    api.daemon.drain().await;
}

/// A removed address expects no more messages, not even of earlier alerts that are being retried.
#[tokio::test]
async fn alerts_that_wait_for_a_contact_which_was_removed_are_not_sent() {
    let an_hour_later =
        |setup: DaemonSetup| setup.env("QUOTABELL__RETRY__FIRST", "1h").env("QUOTABELL__RETRY__MAX_INTERVAL", "1h");
    let mut api = ContactsApi::start_with(an_hour_later).await;
    let id = api.add_email("alice", "alice@b.test").await;
    let VerificationMail { code, .. } = api.next_verification().await;
    assert_eq!(api.submit_code("alice", &id, &code).await.status, 200);
    api.mailbox.program(Phase::Rcpt, Reply::Say("451 later"), Times::Once);
    api.use_units("alice", 80).await;
    api.daemon.says("attempt failed").await;
    assert_eq!(api.outbox.queued().await.len(), 1, "one delivery waits for its next attempt");
    api.remove_existing("alice", &id).await;
    api.make_all_due().await;
    api.daemon.says("delivery cancelled: the contacts changed").await;

    api.use_units("alice", 20).await;
    api.outbox.set_contacts(&subject("bob"), r#"[{"channel":"email","address":"bob@b.test"}]"#).await;
    api.use_units("bob", 80).await;
    assert_eq!(api.next_alert().await, "bob@b.test", "a mail was sent to a contact that was removed");
    // The waiting alert goes to the next contact.
    api.outbox.set_contacts(&subject("alice"), r#"[{"channel":"email","address":"next@b.test"}]"#).await;
    for _ in 0..2 {
        assert_eq!(api.next_alert().await, "next@b.test");
    }
    let totals = eventually("all delivered", || async {
        let totals = api.outbox.assert_balanced().await;
        // One of them was the request for confirmation.
        (totals.delivered == 4).then_some(totals)
    })
    .await;
    assert_eq!((totals.raised, totals.cancelled, totals.pending), (3, 3, 0), "{totals:?}");
    api.daemon.drain().await;
}

/// Different spellings of a domain must not turn one mailbox into several contacts with their own alerts and requests.
#[tokio::test]
async fn an_address_is_one_contact_however_its_domain_is_spelled() {
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")).await;
    let id = api.add_email("alice", "Alice@B.Test").await;
    let mail = api.next_verification().await;
    assert_eq!(mail.to, "Alice@b.test");
    for spelled in ["Alice@b.test", "Alice@ｂ．test", "Alice@B.TEST"] {
        let other = json!({"channel": "email", "address": spelled});
        let there = api.try_add("alice", &other).await;
        there.expect_problem(409, "waits for its verification");
        assert_eq!(there.json()["contact"], id.as_str(), "{spelled}");
        api.try_add("other", &other).await.expect_problem(429, "too often");
    }
    let contacts = api.contacts("alice").await;
    assert_eq!((contacts.len(), &contacts[0]["address"]), (1, &json!("Alice@b.test")));
    assert_eq!(api.submit_code("alice", &id, &mail.code).await.status, 200);

    let umlaut = api.add_email("bob", "bob@bücher.test").await;
    assert_eq!(api.next_verification().await.to, "bob@xn--bcher-kva.test");
    let there = api.try_add("bob", &json!({"channel": "email", "address": "bob@XN--Bcher-kva.test"})).await;
    assert_eq!((there.status, &there.json()["contact"]), (409, &json!(umlaut)));
    // It is not another contact beside the operator's either.
    let operators = r#"[{"channel":"email","address":"carol@B.Test"}]"#;
    api.outbox.set_contacts(&subject("carol"), operators).await;
    let there = api.try_add("carol", &json!({"channel": "email", "address": "carol@b.test"})).await;
    there.expect_problem(409, "and it is verified");
    assert_eq!(api.contacts("carol").await, serde_json::from_str::<Vec<Value>>(operators).expect("a list"));
    api.daemon.drain().await;
}

/// Without a token anybody who reaches the port could make the daemon send email.
#[tokio::test]
async fn without_a_token_contacts_are_off_and_with_one_it_must_be_shown() {
    let server = RedisServer::start();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    let paths =
        ["/v1/subjects/a/contacts", "/v1/subjects/a/contacts/c/verification", "/v1/subjects/a/contacts/c/verify"];
    let bodies = [json!({"channel": "email", "address": "a@b.test"}), json!({}), json!({"code": "000000"})];
    let api = Caller::of(&mut daemon).await;
    for (path, body) in paths.iter().zip(&bodies) {
        api.post(path, body).await.expect_problem(403, "http.token");
        api.with_token(TOKEN).post(path, body).await.expect_problem(403, "http.token");
    }
    let contact = "/v1/subjects/a/contacts/c";
    api.send("DELETE", contact, &[], "").await.expect_problem(403, "http.token");
    api.get(paths[0]).await.expect_problem(403, "http.token");
    daemon.drain().await;
    let api = ContactsApi::start().await;
    for (path, body) in paths.iter().zip(&bodies) {
        api.caller.with_token("another").post(path, body).await.expect_problem(401, "token");
    }
    let stranger = api.caller.with_token("another").send("DELETE", contact, &[], "").await;
    stranger.expect_problem(401, "token");
    api.caller.without_token().get(paths[0]).await.expect_problem(401, "token");
    assert!(api.texts("quota_verify_*").await.is_empty() && api.contacts("a").await.is_empty());
    api.daemon.drain().await;
}

/// An invalid contact is answered with the wrong field, and nothing is written.
#[tokio::test]
async fn what_is_no_contact_is_refused_with_its_field() {
    let api = ContactsApi::start().await;
    let long = format!("https://x.test/{}", "x".repeat(2048));
    for (body, said) in [
        (json!({}), "missing field `channel`"),
        (json!({"channel": "email", "address": null}), "address: invalid type: null"),
        (json!({"channel": "sms"}), "\"email\" or \"webhook\""),
        (json!({"channel": "email"}), "address: is missing"),
        (json!({"channel": "email", "address": "nobody"}), "address: \"nobody\" is not an email address"),
        (json!({"channel": "email", "address": "a@b.test\r\nBcc: c@d.test"}), "is not an email address"),
        (json!({"channel": "email", "address": format!("{}@b.test", "x".repeat(250))}), "at most 254"),
        (json!({"channel": "email", "address": "a@[192.0.2.1]"}), "address: \"a@[192.0.2.1]\" can't be used"),
        (json!({"channel": "email", "address": "\"a b\"@b.test"}), "can't be used"),
        (
            json!({"channel": "email", "address": "jörg@b.test"}),
            "address: \"jörg@b.test\" has quotes or letters beyond",
        ),
        (json!({"channel": "email", "address": "\"jorg\"@b.test"}), "only the operator can add it"),
        (json!({"channel": "email", "address": "a@b.test", "url": "https://x.test"}), "url: does not belong"),
        (json!({"channel": "email", "address": "a@b.test", "verified": true}), "unknown field `verified`"),
        (json!({"channel": "webhook"}), "url: is missing"),
        (json!({"channel": "webhook", "url": "x.test"}), "url: webhook URL \"x.test\" needs a scheme"),
        (json!({"channel": "webhook", "url": "https://u:p@x.test/"}), "user name or password"),
        (json!({"channel": "webhook", "url": long}), "at most 2048"),
        (json!({"channel": "webhook", "url": "https://x.test", "secret": "short"}), "secret: webhook secret must be"),
        (json!({"channel": "webhook", "url": "https://x.test", "address": "a@b.test"}), "address: does not belong"),
    ] {
        api.caller.post("/v1/subjects/alice/contacts", &body).await.expect_problem(400, said);
    }
    let good = json!({"channel": "email", "address": "a@b.test"});
    api.caller.post("/v1/subjects/%00/contacts", &good).await.expect_problem(400, "control character");
    api.caller.post("/v1/subjects/%ff/contacts", &good).await.expect_problem(400, "the path");
    api.caller
        .post(&format!("/v1/subjects/alice/contacts/{}/verify", "x".repeat(300)), &json!({"code": "000000"}))
        .await
        .expect_problem(400, "contact: has more");
    api.remove("alice", &"x".repeat(300)).await.expect_problem(400, "contact: has more");
    api.remove("%00", "c").await.expect_problem(400, "control character");
    api.remove("alice", "%ff").await.expect_problem(400, "the path");
    assert!(api.texts("quota_verify_*").await.is_empty() && api.contacts("alice").await.is_empty());

    api.outbox.set_contacts(&subject("alice"), "{not a list").await;
    api.caller.post("/v1/subjects/alice/contacts", &good).await.expect_problem(409, "can't be read");
    api.remove("alice", "c_0").await.expect_problem(409, "can't be read");
    let _: () = api.outbox.run("SET", &[Keys::new("usage").subject(&subject("odd")).as_str(), "not a hash"]).await;
    api.remove("odd", "c_0").await.expect_problem(409, "can't be read");
    let operators = (0..15).map(|n| json!({"channel": "email", "address": format!("{n}@b.test")}));
    let own = json!({"id": "own", "channel": "email", "address": "own@b.test", "verified": true});
    let many: Vec<Value> = operators.chain([own]).collect();
    api.outbox.set_contacts(&subject("alice"), &Value::from(many).to_string()).await;
    api.caller
        .post("/v1/subjects/alice/contacts", &good)
        .await
        .expect_problem(409, "16 contacts are the maximum of a subject");
    api.remove_existing("alice", "own").await;
    api.add("alice", &good).await;
    assert_eq!(api.contacts("alice").await.len(), 16);
    api.daemon.drain().await;
}

/// Without Redis the caller must get an error, and nothing may be half done afterwards.
#[tokio::test]
async fn without_redis_it_is_503_and_nothing_is_half_written() {
    let without_link = |setup: DaemonSetup| setup.env("QUOTABELL__HTTP__PUBLIC_URL", "");
    let mut api = ContactsApi::start_on(RedisServer::start_durable(), without_link).await;
    let id = api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    assert_eq!(mail.path, None, "no public URL, no link");
    assert!(!mail.html.contains("<a "), "{}", mail.html);
    api.outbox.server.kill();
    let new = json!({"channel": "email", "address": "new@b.test"});
    api.caller.post("/v1/subjects/alice/contacts", &new).await.expect_problem(503, "Redis does not answer");
    api.request_verification("alice", &id).await.expect_problem(503, "Redis does not answer");
    api.submit_code("alice", &id, &mail.code).await.expect_problem(503, "Redis does not answer");
    api.remove("alice", &id).await.expect_problem(503, "Redis does not answer");
    let page = api.caller.send("POST", "/confirm/any", &[], "").await;
    assert_eq!(page.status, 503);
    assert!(page.text.contains("Try again"), "{}", page.text);
    api.outbox.server.restart();
    let code = mail.code;
    eventually("the code is good as before", || async {
        (api.submit_code("alice", &id, &code).await.status == 200).then_some(())
    })
    .await;
    let contacts = api.contacts("alice").await;
    assert_eq!((contacts.len(), &contacts[0]["address"]), (1, &json!("alice@b.test")), "half of it was written");
    let added = eventually("added", || async {
        let answer = api.caller.post("/v1/subjects/alice/contacts", &new).await;
        (answer.status == 202).then(|| answer.json()["id"].as_str().expect("an id").to_owned())
    })
    .await;
    let mail = api.next_verification().await;
    assert_eq!((mail.to.as_str(), api.submit_code("alice", &added, &mail.code).await.status), ("new@b.test", 200));
    api.daemon.drain().await;
}

/// The port opens before Redis is reached: early requests must be answered with a request to retry.
#[tokio::test]
async fn before_redis_was_reached_it_is_503_too() {
    let nobody = format!("redis://127.0.0.1:{}", support::redis_server::free_port());
    let mut daemon = DaemonSetup::on(&nobody).env("QUOTABELL__HTTP__TOKEN", TOKEN).spawn();
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let new = json!({"channel": "email", "address": "new@b.test"});
    api.post("/v1/subjects/alice/contacts", &new).await.expect_problem(503, "Redis does not answer");
    api.post("/v1/subjects/alice/contacts/c/verify", &json!({"code": "000000"})).await.expect_problem(503, "Redis");
    api.get("/v1/subjects/alice/contacts").await.expect_problem(503, "Redis does not answer");
    assert_eq!(api.send("POST", "/confirm/any", &[], "").await.status, 503);
    api.send("DELETE", "/v1/subjects/alice/contacts/c", &[], "").await.expect_problem(503, "Redis");
}

/// A platform shows its customers why a contact gets nothing, and lets them choose their alerts.
#[tokio::test]
async fn a_contact_is_enabled_and_told_what_to_hear() {
    let api = ContactsApi::start().await;
    let stored = json!([{
        "id": "m", "channel": "email", "address": "a@b.test",
        "disabled": {"reason": "gone", "detail": "HTTP 410", "at": "2026-11-21T08:37:00.123Z"},
    }]);
    api.outbox.set_contacts(&subject("alice"), &stored.to_string()).await;
    assert_eq!(api.list("alice").await[0]["disabled"]["reason"], "gone");
    let path = "/v1/subjects/alice/contacts/m";
    for _ in 0..2 {
        let enabled = api.caller.send("POST", &format!("{path}/enable"), &[], "").await;
        assert_eq!((enabled.status, enabled.json().get("disabled")), (200, None), "{}", enabled.text);
    }
    let caller = &api.caller;
    let put = async |body: Value| caller.put(path, &body).await;
    let heard = put(json!({"thresholds": [100, 80], "metrics": ["requests"]})).await;
    assert_eq!((heard.status, &heard.json()["thresholds"]), (200, &json!([80, 100])), "{}", heard.text);
    let all = put(json!({"thresholds": null})).await;
    assert_eq!((all.status, all.json().get("thresholds"), all.json().get("metrics")), (200, None, None));
    put(json!({"thresholds": []})).await.expect_problem(400, "thresholds is an empty list");
    put(json!({"thresholds": [0]})).await.expect_problem(400, "1 to 1000");
    put(json!({"thresholds": ["80"]})).await.expect_problem(400, "expected a whole number of percent, 1 to 1000");
    put(json!({"thresholds": 80})).await.expect_problem(400, "thresholds: invalid type: integer `80`, expected a list");
    put(json!({"metrics": "requests"}))
        .await
        .expect_problem(400, "metrics: invalid type: string \"requests\", expected a list");
    put(json!({"threshold": [80]})).await.expect_problem(400, "threshold");
    put(json!({"subtree": true})).await.expect_problem(400, "subtree has no meaning: without subjects.separator");
    let below = json!({"channel": "email", "address": "c@b.test", "subtree": true});
    let added = caller.post("/v1/subjects/alice/contacts", &below).await;
    added.expect_problem(400, "subtree has no meaning: without subjects.separator");
    for missing in ["/v1/subjects/alice/contacts/x/enable", "/v1/subjects/bob/contacts/m/enable"] {
        assert_eq!(api.caller.send("POST", missing, &[], "").await.status, 404, "{missing}");
    }
    assert_eq!(api.caller.put("/v1/subjects/alice/contacts/x", &json!({})).await.status, 404);
    let added = json!({"channel": "email", "address": "b@b.test", "thresholds": [100]});
    api.add("alice", &added).await;
    assert_eq!(api.list("alice").await[1]["thresholds"], json!([100]));
    api.daemon.drain().await;
}
