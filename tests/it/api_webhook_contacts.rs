//! Verification of webhook contacts, on the real binary: alerts only for receivers that echo a signed challenge.

use crate::support::contacts_api::{ContactsApi, VerificationMail};
use crate::support::echo_receiver::{Echo, EchoReceiver};
use crate::support::eventually::eventually;
use crate::support::outbox::subject;
use crate::support::webhook_receiver::{Verified, secret, verify, verify_as};
use quotabell::types::Channel;
use serde_json::json;

/// A receiver that echoes the challenge gets alerts, signed with the secret that was shown once.
#[tokio::test]
async fn a_webhook_that_echoes_its_challenge_is_verified_at_once() {
    let api = ContactsApi::start().await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let new = json!({"channel": "webhook", "url": receiver.url("/hook")});
    let answer = api.caller.post("/v1/subjects/alice/contacts", &new).await;
    assert_eq!((answer.status, answer.header("cache-control")), (202, Some("no-store")));
    let (id, made) = (answer.json()["id"].clone(), answer.json()["secret"].clone());
    let (id, made) = (id.as_str().expect("an id"), made.as_str().expect("a secret"));

    let Verified { id: message, body } = verify(&receiver.next().await, made);
    assert!(message.starts_with("verification_") && !message.contains('.'), "{message}");
    assert_eq!((&body["type"], &body["data"]["subject"]), (&json!("contact.verification"), &json!("alice")));
    eventually("verified", || async { api.is_verified("alice", id).await.then_some(()) }).await;
    api.use_units("alice", 80).await;
    let alert = verify(&receiver.next().await, made);
    assert_eq!(alert.body["type"], "quota.threshold_reached");

    // The same URL with the caller's own secret: the receiver is asked again, and it stays one contact.
    let own = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
    let answer = api.caller.post("/v1/subjects/alice/contacts", &own).await;
    assert_eq!((answer.status, answer.json()), (202, json!({"id": id, "channel": "webhook", "verified": false})));
    verify(&receiver.next().await, &secret(9));
    eventually("one contact", || async { (api.contacts("alice").await.len() == 1).then_some(()) }).await;
    api.use_units("alice", 20).await;
    verify(&receiver.next().await, &secret(9));
    api.counted("verified", 2).await;
    api.daemon.drain().await;
}

/// A foreign URL, or a receiver that ignores the challenge, must get no alerts.
#[tokio::test]
async fn a_webhook_that_does_not_echo_stays_unverified() {
    for (echo, outcome) in
        [(Echo::Wrong, "rejected"), (Echo::Nothing, "rejected"), (Echo::TooLate, "rejected"), (Echo::Refused, "failed")]
    {
        // Requests are repeated only at the end: anything after the first would be another request.
        let mut api = ContactsApi::start_with(|setup| {
            setup.env("QUOTABELL__RETRY__FIRST", "1h").env("QUOTABELL__RETRY__MAX_INTERVAL", "1h")
        })
        .await;
        let mut receiver = EchoReceiver::start(echo).await;
        let new = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
        let id = api.add("alice", &new).await;
        verify(&receiver.next().await, &secret(9));
        api.counted(outcome, 1).await;
        assert!(!api.is_verified("alice", &id).await, "{echo:?}");
        api.use_units("alice", 80).await;
        api.daemon.says("no contact is known").await;
        api.submit_code("alice", &id, "000000").await.expect_problem(403, "ask for another");
        assert!(receiver.try_next().is_none(), "{echo:?}");
        assert!(!api.daemon.has_said("/hook"), "the log names the address");
        api.daemon.drain().await;
    }
}

/// A verification must not let callers reach internal addresses. A forbidden URL is refused at once; a forbidden
/// address behind a name is found at the attempt.
#[tokio::test]
async fn a_webhook_inside_the_network_is_not_called() {
    let api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "false")).await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let url = receiver.url("/hook");
    let refused = api.caller.post("/v1/subjects/alice/contacts", &json!({"channel": "webhook", "url": url})).await;
    refused.expect_problem(400, "url: blocked address (loopback)");
    let url = url.replace("127.0.0.1", "localhost");
    let id = api.add("alice", &json!({"channel": "webhook", "url": url})).await;
    api.counted("failed", 1).await;
    assert!(!api.is_verified("alice", &id).await);
    assert!(receiver.try_next().is_none());
    api.daemon.drain().await;
}

/// A cap counts all messages: requests for consent must not bypass it and flood a receiver under many paths.
#[tokio::test]
async fn messages_that_ask_for_consent_keep_to_the_caps() {
    let mut api = ContactsApi::start_with(|setup| {
        setup.env("QUOTABELL__EMAIL__PER_MINUTE", "1").env("QUOTABELL__WEBHOOK__PER_DESTINATION", "1/1h")
    })
    .await;
    let id = api.add_email("alice", "alice@b.test").await;
    let VerificationMail { code, .. } = api.next_verification().await;
    api.add_email("bob", "bob@b.test").await;
    api.counted("throttled", 1).await;
    // It waits, and is sent when the cap admits it.
    let _: u64 = api.outbox.run("DEL", api.outbox.keys.cap(Channel::Email, None)).await;
    api.make_all_due().await;
    assert_eq!(api.next_verification().await.to, "bob@b.test");
    let mut receiver = EchoReceiver::start(Echo::Nothing).await;
    for path in ["/1", "/2"] {
        api.add("carol", &json!({"channel": "webhook", "url": receiver.url(path), "secret": secret(9)})).await;
    }
    verify(&receiver.next().await, &secret(9));
    api.counted("throttled", 2).await;
    assert!(api.mailbox.try_next().is_none() && receiver.try_next().is_none());
    // A message that the cap does not admit leaves the earlier code valid.
    api.request_verification("alice", &id).await;
    api.counted("throttled", 3).await;
    assert_eq!(api.submit_code("alice", &id, &code).await.status, 200);
    api.daemon.drain().await;
}

/// Unreadable contacts of the platform are reported, and no request ends in an error half-way.
#[tokio::test]
async fn a_contact_that_is_a_list_is_no_contact() {
    let api = ContactsApi::start().await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let url = receiver.url("/hook");
    let stored = json!([[null, "webhook", null, url, secret(8), false, false]]);
    api.outbox.set_contacts(&subject("alice"), &stored.to_string()).await;
    api.add("alice", &json!({"channel": "webhook", "url": url, "secret": secret(9)})).await;
    verify(&receiver.next().await, &secret(9));
    api.counted("verified", 1).await;
    let contacts = api.contacts("alice").await;
    assert_eq!((contacts.len(), &contacts[0]), (2, &stored[0]));
    api.daemon.drain().await;
}

/// A slow receiver must not restore a webhook that was removed meanwhile.
#[tokio::test]
async fn an_echo_for_a_webhook_that_was_removed_verifies_nothing() {
    let api = ContactsApi::start().await;
    let mut receiver = EchoReceiver::start(Echo::Held).await;
    let hook = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
    let id = api.add("alice", &hook).await;
    verify(&receiver.next().await, &secret(9));
    api.remove_existing("alice", &id).await;
    // With the same secret and within a minute: the earlier challenge was for another entry.
    assert_eq!(api.add("alice", &hook).await, id);
    receiver.let_go();
    api.counted("rejected", 1).await;
    assert!(!api.is_verified("alice", &id).await);
    // One attempt at a time at a new destination: the second challenge waited for the first.
    verify(&receiver.next().await, &secret(9));
    receiver.let_go();
    api.counted("verified", 1).await;
    assert!(api.is_verified("alice", &id).await);

    // Verified, with a waiting entry of another secret: if the address must get nothing more, both are removed.
    api.add("alice", &json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(8)})).await;
    verify(&receiver.next().await, &secret(8));
    assert_eq!(api.contacts("alice").await.len(), 2);
    api.remove_existing("alice", &id).await;
    receiver.let_go();
    api.counted("rejected", 2).await;
    assert!(api.contacts("alice").await.is_empty());
    api.use_units("alice", 80).await;
    let mut daemon = api.daemon;
    daemon.says("no contact is known").await;
    assert!(receiver.try_next().is_none());
    daemon.drain().await;
}

/// A chat can't echo a challenge, so nobody could prove its owner's consent: only the operator adds chats.
#[tokio::test]
async fn a_subjects_own_side_adds_formats_that_can_answer() {
    let api = ContactsApi::start().await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    for format in ["slack", "discord", "teams", "pagerduty", "template:ops"] {
        let new = json!({"channel": "webhook", "url": receiver.url("/chat"), "format": format});
        let answer = api.caller.post("/v1/subjects/alice/contacts", &new).await;
        answer.expect_problem(400, "can't send the challenge back that confirms a contact, allowed are \"standard\"");
    }
    for (field, value) in [("format", json!("slakc")), ("headers", json!({"Host": "x"})), ("headers", json!(["x"]))] {
        let mut new = json!({"channel": "webhook", "url": receiver.url("/chat")});
        new[field] = value;
        let answer = api.caller.post("/v1/subjects/alice/contacts", &new).await;
        answer.expect_problem(400, &format!("{field}: "));
    }
    let mail = json!({"channel": "email", "address": "a@b.test", "format": "standard"});
    let answer = api.caller.post("/v1/subjects/alice/contacts", &mail).await;
    answer.expect_problem(400, "format: does not belong to channel \"email\"");
    assert!(receiver.try_next().is_none());

    let headers = json!({"Authorization": "Bearer topsecret"});
    let new = json!({"channel": "webhook", "url": receiver.url("/events"), "secret": secret(9), "format": "cloudevents",
                     "headers": headers});
    let id = api.add("alice", &new).await;
    let asked = verify_as(&receiver.next().await, &secret(9), "application/cloudevents+json");
    assert_eq!((&asked.body["type"], &asked.body["id"]), (&json!("contact.verification"), &json!(asked.id)));
    eventually("verified", || async { api.is_verified("alice", &id).await.then_some(()) }).await;
    let listed = api.caller.get("/v1/subjects/alice/contacts").await.json();
    assert_eq!(listed["contacts"][0]["headers"], json!({"Authorization": "***"}), "{listed}");
    api.use_units("alice", 80).await;
    let alert = receiver.next().await;
    assert_eq!(alert.headers["authorization"], "Bearer topsecret");
    assert_eq!(verify_as(&alert, &secret(9), "application/cloudevents+json").body["specversion"], "1.0");

    // After it has agreed, the same receiver in another format stays one contact.
    let again = json!({"channel": "webhook", "url": receiver.url("/events"), "secret": secret(9)});
    api.add("alice", &again).await;
    verify(&receiver.next().await, &secret(9));
    eventually("one contact", || async { (api.contacts("alice").await.len() == 1).then_some(()) }).await;
    api.use_units("alice", 20).await;
    verify(&receiver.next().await, &secret(9));
    api.daemon.drain().await;
}
