//! Unsubscribing on the real binary: the headers of emails, the page behind their link, and the effect of its button.

use serde_json::json;

use crate::support::api::Caller;
use crate::support::contacts_api::{ContactsApi, TOKEN};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::mail_server::ParsedMail;

const BASE: &str = "https://quota.example.com/base";
/// The request of a mail provider (RFC 8058).
const ONE_CLICK: &str = "List-Unsubscribe=One-Click";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];

/// The path of the link in the next email, which must be an alert.
async fn next_link(api: &mut ContactsApi) -> String {
    let mail = tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time");
    let text = mail.text();
    let parsed = ParsedMail::parse(&text);
    assert_eq!(parsed.header("List-Unsubscribe-Post"), ONE_CLICK);
    let link = parsed.header("List-Unsubscribe");
    assert!(text.contains(&format!("List-Unsubscribe: {link}\r\n")), "neither folded nor encoded: {text}");
    let link = link.trim_matches(['<', '>']).strip_prefix(BASE).expect("below the public URL").to_owned();
    assert!(link.starts_with("/unsubscribe/") && link.is_ascii(), "{link}");
    link
}

async fn state_of_the_last_delivery(api: &ContactsApi) -> Option<String> {
    let deliveries: Vec<String> = api.outbox.run("ZRANGE", &["quota_deliveries:{usage}", "-1", "-1"]).await;
    let key = format!("quota_delivery:{{usage}}:{}", deliveries.first()?);
    api.outbox.run("HGET", &[key.as_str(), "state"]).await
}

/// One click must be enough, mail software that opens every link must change nothing, and a provider that posts twice
/// must get success.
#[tokio::test]
async fn a_mail_can_be_unsubscribed_from_by_its_link_alone() {
    let mut api = ContactsApi::start().await;
    let name = "Ngọc & \"Sons\"";
    let contacts = json!([{"id": "main", "channel": "email", "address": "a@b.test"},
                          {"id": "other", "channel": "email", "address": "b@b.test"}]);
    api.outbox.set_contacts(&crate::support::outbox::subject(name), &contacts.to_string()).await;
    api.use_units(name, 80).await;
    let links = [next_link(&mut api).await, next_link(&mut api).await];
    let muted = async || {
        let contacts = api.contacts(name).await;
        contacts
            .iter()
            .filter(|contact| contact["muted"] == true)
            .map(|contact| contact["id"].clone())
            .collect::<Vec<_>>()
    };
    for link in &links {
        for method in ["GET", "HEAD"] {
            let page = api.caller.send(method, link, &[], "").await;
            assert_eq!((page.status, page.header("cache-control")), (200, Some("no-store")));
        }
    }
    assert!(muted().await.is_empty(), "looking at it changed something");
    let page = api.caller.send("GET", &links[0], &[("accept-language", "vi-VN,vi;q=0.9,en;q=0.8")], "").await;
    assert!(page.text.contains("<h1>Ngừng nhận cảnh báo hạn mức?</h1>"), "{}", page.text);
    for _ in 0..2 {
        let done = api.caller.send("POST", &links[0], &FORM, ONE_CLICK).await;
        assert!(done.status == 200 && done.text.contains("<h1>Unsubscribed</h1>"), "{}", done.text);
        assert!(!done.text.contains("Ngọc"), "{}", done.text);
    }
    assert_eq!(muted().await.len(), 1, "the other one goes on");
    // The button of the page.
    let done = api.caller.send("POST", &links[1], &FORM, "").await;
    assert_eq!((done.status, muted().await.len()), (200, 2));
    api.use_units(name, 20).await;
    eventually("the next alert is muted", || async {
        (state_of_the_last_delivery(&api).await.as_deref() == Some("muted")).then_some(())
    })
    .await;
    assert!(api.mailbox.try_next().is_none());
    api.daemon.drain().await;
}

/// A contact that was muted for a weekend and unsubscribes must get nothing on Monday. A permanent mute keeps the
/// operator's reason.
#[tokio::test]
async fn a_mute_that_would_end_lasts_once_somebody_unsubscribes() {
    let mut api = ContactsApi::start().await;
    let contacts = json!([{"id": "main", "channel": "email", "address": "a@b.test"}]);
    api.outbox.set_contacts(&crate::support::outbox::subject("alice"), &contacts.to_string()).await;
    api.use_units("alice", 80).await;
    let link = next_link(&mut api).await;
    for (mute, reason) in [
        (json!({"for": "2h", "reason": "weekend"}), "unsubscribed by the link of a mail"),
        // It could be ended in the portal.
        (json!({"reason": "muted in the portal"}), "unsubscribed by the link of a mail"),
        (json!({"reason": "asked by phone"}), "asked by phone"),
    ] {
        let muted = api.caller.send("PUT", "/v1/subjects/alice/contacts/main/mute", &JSON, mute.to_string()).await;
        assert_eq!(muted.status, 200, "{}", muted.text);
        assert_eq!(api.caller.send("POST", &link, &FORM, ONE_CLICK).await.status, 200);
        let stored = api.contacts("alice").await.remove(0);
        assert_eq!((&stored["muted"], &stored["muted_reason"]), (&json!(true), &json!(reason)));
        assert!(stored.get("muted_until").is_none(), "{stored}");
    }
    api.daemon.drain().await;
}

/// Without a sent link nobody may mute a contact or learn who exists.
#[tokio::test]
async fn a_link_that_was_not_made_here_does_and_tells_nothing() {
    let mut api = ContactsApi::start().await;
    let alice = crate::support::outbox::subject("alice");
    let contact = |address: &str| json!([{"id": "main", "channel": "email", "address": address}]).to_string();
    api.outbox.set_contacts(&alice, &contact("a@b.test")).await;
    api.use_units("alice", 80).await;
    let link = next_link(&mut api).await;
    let (head, signature) = link.rsplit_once('.').expect("a signature");
    let forged = [
        format!("{head}.{}", signature.chars().rev().collect::<String>()),
        format!("{head}."),
        head.to_owned(),
        "/unsubscribe/YWxpY2U.bWFpbg.AAAA".to_owned(),
        "/unsubscribe/nobody".to_owned(),
    ];
    for forged in &forged {
        let refused = api.caller.send("POST", forged, &FORM, ONE_CLICK).await;
        assert_eq!(refused.status, 410, "{forged}: {}", refused.text);
    }
    let mut pages = std::collections::BTreeSet::new();
    for link in [&link, &forged[0], &forged[4]] {
        let page = api.caller.get(link).await.text;
        pages.insert(page.split("<body>").nth(1).expect("a body").to_owned());
    }
    assert_eq!(pages.len(), 1, "a page tells a token");
    // The id belongs to another address now, to which the link was never sent.
    api.outbox.set_contacts(&alice, &contact("other@b.test")).await;
    assert_eq!(api.caller.send("POST", &link, &FORM, ONE_CLICK).await.status, 410);
    assert_eq!(api.contacts("alice").await[0].get("muted"), None);
    api.outbox.set_contacts(&alice, &contact("a@B.test")).await;
    assert_eq!(api.caller.send("POST", &link, &FORM, ONE_CLICK).await.status, 200, "the same address again");
    api.daemon.drain().await;
}

/// Links must stay valid with another daemon; and without a public URL there must be no link.
#[tokio::test]
async fn links_outlive_the_daemon_and_the_fallback_has_none() {
    let mut api = ContactsApi::start().await;
    let alice = crate::support::outbox::subject("alice");
    api.outbox.set_contacts(&alice, r#"[{"channel":"email","address":"a@b.test"}]"#).await;
    api.use_units("alice", 80).await;
    let link = next_link(&mut api).await;
    // Otherwise the daemon would wait for a lost outcome.
    eventually("it is recorded", || async {
        (state_of_the_last_delivery(&api).await.as_deref() == Some("delivered")).then_some(())
    })
    .await;
    let fallback = r#"[{"channel":"email","address":"ops@b.test"}]"#;
    let mut api = api.restart_after_kill(|setup| setup.env("QUOTABELL__FALLBACK__CONTACTS", fallback)).await;
    assert_eq!(api.caller.send("POST", &link, &FORM, ONE_CLICK).await.status, 200);
    api.use_units("bob", 80).await;
    let mail = tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time");
    let parsed = ParsedMail::parse(&mail.text());
    assert_eq!((mail.to[0].as_str(), parsed.count("List-Unsubscribe")), ("ops@b.test", 0));
    assert_eq!(parsed.count("List-Unsubscribe-Post"), 0);
    api.daemon.drain().await;
}

/// Deleting the key must invalidate all sent links at once in every daemon; and daemons with different keys would
/// refuse each other's links.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_links_that_is_deleted_is_drawn_anew_once_for_all_daemons() {
    let mut api = ContactsApi::start().await;
    let contacts = json!([{"id": "main", "channel": "email", "address": "a@b.test"}]);
    api.outbox.set_contacts(&crate::support::outbox::subject("alice"), &contacts.to_string()).await;
    api.use_units("alice", 80).await;
    let before = next_link(&mut api).await;
    let mut other = DaemonSetup::on(&api.outbox.server.url())
        .env("QUOTABELL__HTTP__PUBLIC_URL", &format!("{BASE}/"))
        .env("QUOTABELL__HTTP__TOKEN", TOKEN)
        .argument("--no-send")
        .start()
        .await;
    let caller_of_other = Caller::of(&mut other).await.with_token(TOKEN);
    let click = async |caller: &Caller, link: &str| caller.send("POST", link, &FORM, ONE_CLICK).await.status;
    assert_eq!(click(&caller_of_other, &before).await, 200, "both know the same key");
    let unmuted = api.caller.send("DELETE", "/v1/subjects/alice/contacts/main/mute", &[], "").await;
    assert!(unmuted.status < 300, "{}", unmuted.text);
    let _: u64 = api.outbox.run("DEL", &["quota_unsubscribe_key:{usage}"]).await;
    for caller in [&api.caller, &caller_of_other] {
        assert_eq!(click(caller, &before).await, 410, "a link of the deleted key");
    }
    api.use_units("alice", 20).await;
    let after = next_link(&mut api).await;
    for caller in [&api.caller, &caller_of_other] {
        assert_eq!(click(caller, &after).await, 200, "a link of the key that is stored");
    }
    other.drain().await;
    api.daemon.drain().await;
}
