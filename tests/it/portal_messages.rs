//! Links to the portal in messages about quotas, on the real daemon.

use crate::support::console::{Visitor, forms};
use crate::support::contacts_api::ContactsApi;
use crate::support::eventually::WAIT_MAX;
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::subject;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::webhook_receiver::secret;
use serde_json::json;

const PUBLIC: &str = "https://quota.example.com/base";

async fn next_mail(api: &mut ContactsApi) -> ParsedMail {
    ParsedMail::parse(&tokio::time::timeout(WAIT_MAX, api.mailbox.next()).await.expect("a mail in time").text())
}

/// The link of a text part.
fn link_in(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("See your usage: "))?;
    Some(line.trim().to_owned())
}

/// A reader of an alert wants to see the rest; the link must only show, and must not differ between two attempts under
/// one id.
#[tokio::test]
async fn emails_and_chats_link_to_the_portal_with_the_same_link_in_each_attempt() {
    let mut api = ContactsApi::start().await;
    let mut hook = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    let mut chat = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    let contacts = json!([
        {"channel": "email", "address": "a@b.test"},
        {"channel": "webhook", "url": hook.url("/hook"), "secret": secret(7)},
        {"channel": "webhook", "url": chat.url("/chat"), "format": "slack"},
    ]);
    api.outbox.set_contacts(&subject("alice"), &contacts.to_string()).await;
    api.use_units("alice", 85).await;
    let mail = next_mail(&mut api).await;
    let link = link_in(&mail.parts[0].content).expect("a link");
    assert!(mail.parts[1].content.contains(">See your usage</a>"), "{}", mail.parts[1].content);
    for (receiver, is_read) in [(&mut hook, false), (&mut chat, true)] {
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let caught = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
            bodies.push(String::from_utf8(caught.body.to_vec()).expect("text"));
        }
        assert_eq!(bodies[0], bodies[1], "an attempt that is repeated has another body");
        assert_eq!(bodies[0].contains(link.as_str()), is_read, "{link} in {}", bodies[0]);
        assert!(is_read || !bodies[0].contains("links"), "a program gets no link for people: {}", bodies[0]);
    }
    let visitor = Visitor::new(api.daemon.http().await);
    let page = visitor.get(link.strip_prefix(PUBLIC).expect("below the public URL")).await;
    assert!(page.status == 200 && page.text.contains("85 of 100") && forms(&page.text).is_empty(), "{}", page.text);
    assert_eq!(api.caller.delete("/v1/subjects/alice/portal").await.status, 204);
    assert_eq!(visitor.get(link.strip_prefix(PUBLIC).expect("a path")).await.status, 410);
    api.daemon.drain().await;
}

/// The operator's own page comes first, and an operator who wants no links gets none.
#[tokio::test]
async fn a_plan_with_a_page_of_its_own_and_a_lifetime_of_zero_have_no_links_to_the_portal() {
    let contacts = json!([{"channel": "email", "address": "a@b.test"}]).to_string();
    let mut api = ContactsApi::start_with(|setup| {
        setup.env("QUOTABELL__PLANS__FREE__USAGE_URL", "https://example.com/usage/{{ subject }}")
    })
    .await;
    api.outbox.set_contacts(&subject("alice"), &contacts).await;
    api.use_units("alice", 85).await;
    let mail = next_mail(&mut api).await;
    assert_eq!(link_in(&mail.parts[0].content).as_deref(), Some("https://example.com/usage/alice"));
    api.ended("delivered", 1).await;
    let mut api = api.restart_after_kill(|setup| setup.env("QUOTABELL__PORTAL__LINK_LIFETIME", "0s")).await;
    api.use_units("alice", 15).await;
    let mail = next_mail(&mut api).await;
    assert_eq!(link_in(&mail.parts[0].content), None, "{}", mail.parts[0].content);
    assert!(!mail.parts[1].content.contains("portal"), "{}", mail.parts[1].content);
    api.daemon.drain().await;
}
