//! The customer's own contacts in the portal, on the real daemon: added, confirmed, tested, muted, removed.

use crate::support::console::{Visitor, found, judge_html};
use crate::support::contacts_api::{ContactsApi, wrong};
use crate::support::outbox::subject;
use crate::support::receivers::HttpCatcher;
use serde_json::{Value, json};

/// A visitor with a link that may change the contacts of `alice`.
struct Portal {
    api: ContactsApi,
    visitor: Visitor,
    path: String,
}

impl Portal {
    async fn start(contacts: &Value) -> Self {
        let mut api = ContactsApi::start().await;
        api.outbox.set_contacts(&subject("alice"), &contacts.to_string()).await;
        let answer = api.caller.post("/v1/subjects/alice/portal", &json!({"may": ["view", "contacts"]})).await;
        let link = answer.json()["url"].as_str().expect("a URL").to_owned();
        let path = link.strip_prefix("https://quota.example.com/base").expect("below the public URL").to_owned();
        let visitor = Visitor::new(api.daemon.http().await);
        Self { api, visitor, path }
    }

    /// Sends a form, and returns the status of the page that follows and what it says.
    async fn send(&self, below: &str, body: &str) -> (u16, String) {
        let mut answer = self.visitor.send("POST", &format!("{}{below}", self.path), &[], body).await;
        if answer.status == 303 {
            let next = answer.header("location").trim_start_matches("./").to_owned();
            answer = self.visitor.get(&format!("{}{next}", self.path)).await;
        }
        judge_html(below, &answer);
        let said = found(&answer.text, "role=\"(?:status|alert)\">([^<]*)<");
        (answer.status, said.first().copied().unwrap_or_default().to_owned())
    }

    async fn does(&self, body: &str) -> (u16, String) {
        self.send("contact", body).await
    }

    async fn contact(&self, id: &str) -> Value {
        let contacts = self.api.contacts("alice").await;
        contacts.into_iter().find(|contact| contact["id"] == id).unwrap_or_default()
    }
}

fn starts(said: &(u16, String), status: u16, text: &str) {
    assert!(said.0 == status && said.1.starts_with(text), "{said:?} is not {status} {text}");
}

/// A colleague must be asked, and must get alerts afterwards; nobody may use the form to send mail to strangers.
#[tokio::test]
async fn a_colleague_is_added_confirms_and_can_be_removed() {
    let mut portal = Portal::start(&json!([])).await;
    let add = "channel=email&address=%20New%40b.test&thresholds=80";
    starts(&portal.send("contacts", add).await, 200, "The contact is added.");
    let id = portal.api.contacts("alice").await[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(portal.contact(&id).await["thresholds"], json!([80]));
    let mail = portal.api.next_verification().await;
    assert_eq!(mail.to, "New@b.test");
    starts(&portal.send("contacts", add).await, 409, "This address is one of your contacts already.");
    let code = |code: &str| format!("do=confirm&contact={id}&code={code}");
    starts(&portal.does(&code(wrong(&mail.code))).await, 403, "This is not the newest code");
    starts(&portal.does(&code("")).await, 403, "This is not the newest code");
    starts(&portal.does(&format!("do=test&contact={id}")).await, 409, "This contact is not confirmed yet.");
    starts(&portal.does(&code(&mail.code)).await, 200, "The contact is confirmed");
    assert_eq!(portal.contact(&id).await["verified"], true);
    starts(&portal.does(&format!("do=ask&contact={id}")).await, 409, "This contact is confirmed already.");
    portal.api.use_units("alice", 90).await;
    assert_eq!(portal.api.next_alert().await, "New@b.test");
    crate::support::eventually::eventually("the page says who received it", || async {
        let page = portal.visitor.get(&portal.path).await;
        page.text.contains("New@b.test</bdi>: received").then_some(())
    })
    .await;
    starts(&portal.does(&format!("do=remove&contact={id}")).await, 200, "The contact is removed.");
    starts(&portal.does(&format!("do=remove&contact={id}")).await, 404, "This contact is gone.");
    // Three requests an hour for one address, whoever asks.
    for _ in 0..2 {
        starts(&portal.send("contacts", add).await, 200, "The contact is added.");
        portal.does(&format!("do=remove&contact={id}")).await;
    }
    starts(&portal.send("contacts", add).await, 429, "That was asked often enough.");
    for (body, said) in [
        ("channel=email&address=", "This is not an address"),
        ("channel=email&address=no", "This is not an address"),
        ("channel=email&address=%C3%A9%40b.test", "This is not an address"),
        ("channel=webhook&address=file%3A%2F%2F%2Fetc", "This is not an address"),
        ("channel=email&address=a%40b.test&thresholds=many", "Thresholds are percentages"),
        ("channel=fax&address=1", "Something in the form is wrong."),
        ("%ff%00=", "Something in the form is wrong."),
    ] {
        starts(&portal.send("contacts", body).await, 400, said);
    }
    portal.api.daemon.drain().await;
}

/// The secret of a webhook is shown once, and its receiver must answer before it gets alerts.
#[tokio::test]
async fn a_webhook_is_added_with_a_secret_that_is_shown_once() {
    let portal = Portal::start(&json!([])).await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let body = format!("channel=webhook&address={}", receiver.url("/hook").replace(':', "%3A").replace('/', "%2F"));
    let answer = portal.visitor.send("POST", &format!("{}contacts", portal.path), &[], &body).await;
    let shown = found(&answer.text, "<code>(whsec_[^<]*)</code>");
    assert!(answer.status == 200 && shown.len() == 1, "{}", answer.text);
    let asked = tokio::time::timeout(crate::support::eventually::WAIT_MAX, receiver.next()).await.expect("in time");
    assert!(asked.headers.contains_key("webhook-signature"), "{:?}", asked.headers);
    assert!(!portal.visitor.get(&portal.path).await.text.contains("whsec_"));
    portal.api.daemon.drain().await;
}

/// A customer must not end what the operator or the owner of a mailbox began, nor remove the operator's contacts.
#[tokio::test]
async fn a_customer_changes_only_what_is_its_own() {
    let mut portal = Portal::start(&json!([
        {"id": "main", "channel": "email", "address": "main@b.test"},
        {"id": "quiet", "channel": "email", "address": "quiet@b.test", "muted": true, "muted_reason": "unsubscribed by the link of a mail"},
        {"id": "weekend", "channel": "email", "address": "w@b.test", "muted": true, "muted_until": "2026-11-21T08:37:00Z"},
        {"id": "own", "channel": "email", "address": "own@b.test", "verified": true},
    ]))
    .await;
    starts(&portal.does("do=remove&contact=main").await, 409, "Whoever runs the service added this contact");
    for wanted in ["do=mute&for=1d", "do=end_mute"] {
        let said = portal.does(&format!("{wanted}&contact=quiet")).await;
        starts(&said, 409, "Somebody else muted this contact");
    }
    assert_eq!(portal.contact("quiet").await["muted_reason"], "unsubscribed by the link of a mail");
    for (id, wanted) in [("main", ""), ("weekend", "7d"), ("own", "30d")] {
        starts(&portal.does(&format!("do=mute&for={wanted}&contact={id}")).await, 200, "The contact is muted.");
        let stored = portal.contact(id).await;
        assert_eq!((&stored["muted"], &stored["muted_reason"]), (&json!(true), &json!("muted in the portal")));
        assert_eq!(stored["muted_until"].is_null(), wanted.is_empty(), "{stored}");
        starts(&portal.does(&format!("do=end_mute&contact={id}")).await, 200, "The contact gets alerts again.");
        assert_ne!(portal.contact(id).await["muted"], true);
    }
    for (body, said) in [
        ("do=mute&for=soon&contact=main", "Something in the form is wrong."),
        ("do=erase&contact=main", "Something in the form is wrong."),
        ("do=thresholds&thresholds=80,80&contact=main", "Thresholds are percentages"),
    ] {
        starts(&portal.does(body).await, 400, said);
    }
    starts(
        &portal.does("do=thresholds&thresholds=100,+used%3A70&contact=main").await,
        200,
        "The thresholds are changed.",
    );
    assert_eq!(portal.contact("main").await["thresholds"], json!([100, "used:70"]));
    starts(&portal.does("do=thresholds&thresholds=all&contact=main").await, 200, "The thresholds are changed.");
    assert_eq!(portal.contact("main").await["thresholds"], Value::Null);

    starts(&portal.does("do=test&contact=main").await, 200, "The receiver accepted the test message.");
    let wait = tokio::time::timeout(crate::support::eventually::WAIT_MAX, portal.api.mailbox.next());
    assert!(wait.await.expect("a mail in time").text().contains("test message"));
    starts(&portal.does("do=test&contact=main").await, 429, "That was asked often enough.");
    starts(&portal.does("do=test&contact=nobody").await, 404, "This contact is gone.");
    starts(&portal.does("do=remove&contact=own").await, 200, "The contact is removed.");
    portal.api.daemon.drain().await;
}
