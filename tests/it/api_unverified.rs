//! Contacts that nobody confirms: they are removed, and hanging ones delay no others.

use std::sync::Arc;
use std::time::Duration;

use quotabell::contacts::Contact;
use quotabell::outbox::{ConsentRequests, NewDeliveries};
use quotabell::redis_client::Partitions;
use quotabell::types::{DeliveryId, UnixMs, VerificationRequest};
use quotabell::verification::{
    ForgottenRequests, VerificationConfig, VerificationError, VerificationService, forget_requests,
};
use serde_json::{Value, json};

use crate::support::contacts_api::ContactsApi;
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, email, subject};
use crate::support::scripted_server::{REQUEST, ScriptedServer, Step};
use crate::support::webhook_receiver::secret;

/// After a request: two lifetimes of 10 minutes in which its messages can confirm, and a day.
const KEPT_MS: i64 = (2 * 600 + 86_400) * 1000;

/// The service of one daemon, with its own client.
fn service(outbox: &Outbox) -> Arc<VerificationService> {
    let requests = "100000/1ms".parse().expect("a rate");
    Arc::new(VerificationService {
        partitions: Partitions::new(&outbox.server.client(), &outbox.keys),
        config: VerificationConfig { requests, lifetime: Duration::from_secs(600) },
        contacts_max: 16,
        public_url: None,
        new_deliveries: NewDeliveries::new(1),
    })
}

async fn now(outbox: &Outbox) -> UnixMs {
    outbox.client.server_time().await.expect("redis answers")
}

async fn exists(outbox: &Outbox, key: String) -> bool {
    outbox.run::<u64>("EXISTS", key).await == 1
}

/// Callers that add contacts must not fill Redis, and a repeated request must restart the time.
#[tokio::test]
async fn a_contact_that_nobody_confirms_leaves_nothing() {
    let outbox = Outbox::start();
    let (service, alice) = (service(&outbox), subject("alice"));
    let before = now(&outbox).await;
    let id = service.add(alice.clone(), &Contact::email("a@b.test")).await.expect("added");
    let after = now(&outbox).await;
    assert_eq!(service.remove_unverified(before.plus(KEPT_MS - 1)).await.expect("redis answers"), 0);
    // After another request it stays for the same time again.
    let scores = || async {
        let key = outbox.keys.unverified();
        outbox.run::<Vec<(Vec<u8>, i64)>>("ZRANGE", &[key.as_str(), "0", "-1", "WITHSCORES"]).await
    };
    let (member, first) = scores().await.remove(0);
    assert!((before.0 + KEPT_MS..=after.0 + KEPT_MS).contains(&first), "{first}");
    eventually("the clock goes on", || async { (now(&outbox).await.0 + KEPT_MS > first).then_some(()) }).await;
    service.request(alice.clone(), &id).await.expect("asked again");
    let [(same, second)] = scores().await.try_into().expect("one contact");
    assert!(same == member && second > first, "{second}");
    // A daemon that recorded only the first request looks too early.
    let _: u64 =
        outbox.run("ZADD", &[outbox.keys.unverified().as_bytes(), first.to_string().as_bytes(), &member]).await;
    assert_eq!(service.remove_unverified(UnixMs(first)).await.expect("redis answers"), 0);
    assert_eq!(scores().await, [(member, second)]);

    assert_eq!(service.remove_unverified(UnixMs(second)).await.expect("redis answers"), 1);
    assert!(!exists(&outbox, outbox.keys.subject(&alice)).await && !exists(&outbox, outbox.keys.unverified()).await);
    let sent: Vec<String> = outbox.run("KEYS", "quota_verify_sent:*").await;
    assert!(sent.is_empty(), "{sent:?}");
    let gone = service.request(alice, &id).await.expect_err("it is gone");
    assert!(matches!(gone, VerificationError::NotFound), "{gone:?}");
}

/// A message in progress while its subject is erased must leave neither a code nor a link, because these would name the
/// subject until they expire.
#[tokio::test]
async fn a_message_that_is_under_way_during_an_erasure_leaves_nothing() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let public_url = Some("https://quota.example.com".parse().expect("a URL"));
    let with_links =
        VerificationService { public_url, ..Arc::into_inner(service(&outbox)).expect("nobody else has it") };
    let id = with_links.add(alice.clone(), &Contact::email("a@b.test")).await.expect("added");
    let json = {
        let pending: Vec<String> = outbox.run("ZRANGE", &[outbox.keys.pending().as_str(), "0", "-1"]).await;
        outbox.field(&DeliveryId::from_stored(&pending[0]), "verification").await.expect("a request")
    };
    let request: VerificationRequest = serde_json::from_str(&json).expect("a request");
    assert_eq!(request.contact, id);
    with_links.generate(&request).await.expect("it is stored");
    with_links.generate(&request).await.expect("it is stored");
    let stored = async || -> Vec<String> {
        let mut keys: Vec<String> = outbox.run("KEYS", "quota_*").await;
        let names = ["quota_verify_code", "quota_verify_link", "quota_verify_sent", "quota_unverified"];
        keys.retain(|key| names.iter().any(|name| key.starts_with(name)));
        keys
    };
    assert_eq!(stored().await.len(), 5);
    let forgotten = forget_requests(&with_links.partitions, &alice).await.expect("redis answers");
    assert_eq!(forgotten, ForgottenRequests { codes: 1, links: 2 });
    assert_eq!(stored().await, [] as [String; 0]);
    let error = with_links.generate(&request).await.expect_err("the subject is erased");
    assert_eq!(error.source.to_string(), "the subject was erased");
    assert_eq!(stored().await, [] as [String; 0]);
}

/// After its time a contact is gone for all readers and writers, even before the removal ran, and its place is free.
#[tokio::test]
async fn a_contact_whose_time_is_over_is_gone_for_everybody_at_once() {
    let outbox = Outbox::start();
    let (service, alice) = (service(&outbox), subject("alice"));
    let over = r#"{"channel":"email","address":"NUMBER@b.test","verified":false,"unverified_until":"2026-01-01T00:00:00.000Z"}"#;
    let all: Vec<String> = (0..16).map(|number| over.replace("NUMBER", &number.to_string())).collect();
    outbox.set_contacts(&alice, &format!("[{}]", all.join(","))).await;
    assert!(service.list(&alice).await.expect("redis answers").0.is_empty());
    let asked = service.request(alice.clone(), &Contact::email("3@b.test").id).await.expect_err("it is gone");
    assert!(matches!(asked, VerificationError::NotFound), "{asked:?}");
    service.add(alice.clone(), &Contact::email("new@b.test")).await.expect("there is room");
    let stored: String = outbox.run("HGET", &[outbox.keys.subject(&alice).as_str(), "contacts"]).await;
    let stored: Vec<Value> = serde_json::from_str(&stored).expect("a list");
    assert_eq!(stored.iter().map(|one| &one["address"]).collect::<Vec<_>>(), ["new@b.test"]);
}

/// A confirmed address must get alerts, even if its time ends at that very moment. Contacts of the operator stay in any
/// case.
#[tokio::test]
async fn a_confirmation_at_the_last_moment_wins_or_is_refused() {
    let outbox = Outbox::start();
    let (service, other) = (service(&outbox), service(&outbox));
    let (mut confirmed, mut removed) = (0, 0);
    for round in 0..40 {
        let name = subject(&format!("s{round}"));
        let key = outbox.keys.subject(&name);
        let own = r#"[{"channel":"email","address":"own@b.test"}]"#;
        let _: u64 = outbox.run("HSET", &[key.as_str(), "plan", "pro", "contacts", own]).await;
        let id = service.add(name.clone(), &Contact::email("a@b.test")).await.expect("added");
        let request = outbox.field(&last_delivery(&outbox).await, "verification").await.expect("a request");
        let request: VerificationRequest = serde_json::from_str(&request).expect("JSON");
        let end = now(&outbox).await.plus(KEPT_MS);
        let grant = ConsentRequests::grant(&*other, &request);
        // The one that starts first is ahead by a command or two.
        let (granted, looked) = if round % 2 == 0 {
            tokio::join!(grant, service.remove_unverified(end))
        } else {
            let (looked, granted) = tokio::join!(service.remove_unverified(end), grant);
            (granted, looked)
        };
        granted.expect("redis answers");
        let gone = looked.expect("redis answers");
        let stored: String = outbox.run("HGET", &[key.as_str(), "contacts"]).await;
        let stored: Vec<Value> = serde_json::from_str(&stored).expect("a list");
        assert_eq!(stored[0]["address"], "own@b.test");
        assert_eq!(outbox.run::<String>("HGET", &[key.as_str(), "plan"]).await, "pro");
        match stored.get(1) {
            Some(contact) => {
                assert_eq!((&contact["id"], &contact["verified"], gone), (&json!(id), &json!(true), 0));
                assert!(contact.get("unverified_until").is_none(), "{contact}");
                confirmed += 1;
            }
            None => {
                assert_eq!(gone, 1);
                removed += 1;
            }
        }
        assert!(!exists(&outbox, outbox.keys.unverified()).await, "nothing is left to look at");
    }
    assert_eq!(confirmed + removed, 40);
    assert_eq!(service.remove_unverified(UnixMs(i64::MAX)).await.expect("redis answers"), 0);
}

async fn last_delivery(outbox: &Outbox) -> DeliveryId {
    let ids: Vec<String> = outbox.run("ZREVRANGE", &[outbox.keys.deliveries().as_str(), "0", "0"]).await;
    DeliveryId::from_stored(&ids[0])
}

/// Unreadable contacts must neither stop the removal of others nor be lost; the operator repairs them.
#[tokio::test]
async fn contacts_that_cannot_be_read_hold_up_no_others() {
    let outbox = Outbox::start();
    let service = service(&outbox);
    for name in ["a", "b", "c"] {
        service.add(subject(name), &Contact::email("a@b.test")).await.expect("added");
    }
    outbox.set_contacts(&subject("a"), "broken").await;
    let _: u64 = outbox.run("DEL", outbox.keys.subject(&subject("b"))).await;
    let _: u64 = outbox.run("RPUSH", &[outbox.keys.subject(&subject("b")).as_str(), "a list"]).await;
    let _: u64 = outbox.run("ZADD", &[&outbox.keys.unverified(), "1", "no contact"]).await;
    let end = now(&outbox).await.plus(KEPT_MS);
    assert_eq!(service.remove_unverified(end).await.expect("redis answers"), 1);
    assert!(!exists(&outbox, outbox.keys.subject(&subject("c"))).await);
    assert_eq!(outbox.run::<u64>("ZCARD", outbox.keys.unverified()).await, 2);
    // It looks again a day later.
    outbox.set_contacts(&subject("a"), "[]").await;
    assert_eq!(service.remove_unverified(end.plus(86_400_000)).await.expect("redis answers"), 0);
    assert_eq!(outbox.run::<u64>("ZCARD", outbox.keys.unverified()).await, 1);
}

/// The daemon removes it by itself.
#[tokio::test]
async fn a_daemon_removes_what_nobody_confirmed() {
    let mut api = ContactsApi::start().await;
    api.add_email("alice", "alice@b.test").await;
    api.next_verification().await;
    let stored = api.contacts("alice").await;
    assert!(stored[0]["unverified_until"].is_string() && stored[0]["verified"] == false, "{stored:?}");
    let mut over = stored.clone();
    over[0]["unverified_until"] = "2026-01-01T00:00:00Z".into();
    api.outbox.set_contacts(&subject("alice"), &json!(over).to_string()).await;
    let member: Vec<Vec<u8>> = api.outbox.run("ZRANGE", &[&api.outbox.keys.unverified(), "0", "-1"]).await;
    let _: u64 = api.outbox.run("ZADD", &[api.outbox.keys.unverified().as_bytes(), b"1", &member[0]]).await;
    // It looks at its start and every minute.
    let api = api.restart_after_kill(|setup| setup).await;
    let key = api.outbox.keys.subject(&subject("alice"));
    eventually("it is gone", || async { (!exists(&api.outbox, key.clone()).await).then_some(()) }).await;
    api.daemon.drain().await;
}

/// Hanging receivers of one customer, whatever that customer adds and removes, must not delay another customer's code:
/// 184 hanging ones delayed one by four of its ten minutes.
#[tokio::test]
async fn challenges_that_hang_do_not_delay_a_code() {
    const HANGING: usize = 184;
    let receiver = ScriptedServer::start_everywhere([REQUEST, Step::Ignore]).await;
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__WEBHOOK__TIMEOUT", "10m")).await;
    for number in 0..HANGING {
        let url = format!("http://127.0.1.{}:{}/", number + 1, receiver.port());
        api.add(&format!("c{}", number / 16), &json!({"channel": "webhook", "url": url, "secret": secret(9)})).await;
    }
    receiver.has_heard(HANGING).await;
    api.add_email("alice", "alice@b.test").await;
    let mail = api.next_verification().await;
    assert_eq!(mail.to, "alice@b.test");
    assert_eq!(receiver.served(), 0, "none of them has ended");
    api.daemon.kill().await;
}

/// Removing and adding contacts must not create more hanging messages than a subject may have contacts.
#[tokio::test]
async fn a_subject_has_so_many_requests_open_and_no_more() {
    let receiver = ScriptedServer::start_everywhere([REQUEST, Step::Ignore]).await;
    let mut api = ContactsApi::start_with(|setup| setup.env("QUOTABELL__WEBHOOK__TIMEOUT", "10m")).await;
    let hook = |number: usize| {
        let url = format!("http://127.0.2.{}:{}/", number + 1, receiver.port());
        json!({"channel": "webhook", "url": url, "secret": secret(9)})
    };
    let first = api.add("alice", &hook(0)).await;
    for number in 1..16 {
        let id = api.add("alice", &hook(number)).await;
        // A request that was removed before its attempt has ended, and occupies no place.
        receiver.has_heard(number + 1).await;
        api.remove_existing("alice", &id).await;
    }
    let full = api.try_add("alice", &hook(16)).await;
    full.expect_problem(429, "16 messages that ask contacts of this subject to confirm are on their way");
    let seconds: u64 = full.header("retry-after").expect("when").parse().expect("seconds");
    assert!((1..=600).contains(&seconds), "{seconds}");
    api.request_verification("alice", &first).await.expect_problem(429, "are on their way");
    assert_eq!(api.contacts("alice").await.len(), 1, "what was refused is not written");
    api.counted("throttled", 2).await;
    let ended = DeliveryId::from_stored(api.outbox.queued().await.first().expect("one that hangs"));
    // Other subjects have their own places.
    api.add_email("bob", "bob@b.test").await;
    assert_eq!(api.next_verification().await.to, "bob@b.test");
    // A request that ended for any reason frees its place.
    let _: u64 = api.outbox.run("HSET", &[&api.outbox.keys.delivery(&ended), "state", "cancelled"]).await;
    api.add_email("alice", "alice@b.test").await;
    assert_eq!(api.next_verification().await.to, "alice@b.test");
    api.daemon.kill().await;
}

/// A request refused for its address must not occupy a place of the subject.
#[tokio::test]
async fn a_request_that_was_refused_is_not_open() {
    let outbox = Outbox::start();
    let mut service = service(&outbox);
    Arc::get_mut(&mut service).expect("its only owner").config.requests = "1/1h".parse().expect("a rate");
    let alice = subject("alice");
    let id = service.add(alice.clone(), &email("alice")).await.expect("added");
    for _ in 0..20 {
        let refused = service.request(alice.clone(), &id).await.expect_err("asked too often");
        assert!(matches!(refused, VerificationError::TooManyRequests { .. }), "{refused:?}");
    }
    service.add(alice, &email("other")).await.expect("there is room");
}
