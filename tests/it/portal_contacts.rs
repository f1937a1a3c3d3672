//! The customer's own contacts in the portal, on the real daemon: added, confirmed, tested, muted, removed.

use crate::support::console::{Visitor, found, judge_html};
use crate::support::contacts_api::{ContactsApi, wrong};
use crate::support::outbox::subject;
use crate::support::receivers::HttpCatcher;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

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
    starts(&portal.does(&code(wrong(&mail.code))).await, 403, "This code is wrong: check it and try again.");
    starts(&portal.does(&code("")).await, 403, "This code is wrong");
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
    // A click on the words alone must not remove it.
    let page = portal.visitor.get(&portal.path).await.text;
    let asked =
        "<summary>Remove this contact</summary><button name=\"do\" value=\"remove\">Remove it</button></details>";
    assert!(page.contains(asked), "{page}");
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
        starts(&portal.does(&format!("do=end_mute&contact={id}")).await, 200, "The mute of the contact has ended.");
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

/// A test message is a message too: it must not wake who is muted, nor be a way to flood somebody.
#[tokio::test]
async fn messages_that_a_customer_causes_are_bounded() {
    let gone = json!({"reason": "no_mailbox", "detail": "x", "at": "2026-11-21T08:37:00Z"});
    let portal = Portal::start(&json!([
        {"id": "main", "channel": "email", "address": "main@b.test"},
        {"id": "other", "channel": "email", "address": "other@b.test"},
        {"id": "muted", "channel": "email", "address": "m@b.test", "muted": true},
        {"id": "gone", "channel": "email", "address": "g@b.test", "disabled": gone},
    ]))
    .await;
    for id in ["muted", "gone"] {
        starts(&portal.does(&format!("do=test&contact={id}")).await, 409, "This contact is muted or off");
    }
    starts(&portal.does("do=test&contact=main").await, 200, "The receiver accepted the test message.");
    starts(&portal.send("contacts", "channel=email&address=new@b.test").await, 200, "The contact is added.");
    let actions = portal.api.caller.get("/v1/actions").await.json().to_string();
    assert!(actions.contains("\"portal\"") && actions.contains("addContact"), "{actions}");
    let kept: Vec<String> = portal.api.outbox.run("KEYS", "quota_portal_sent:*").await;
    assert_eq!(kept.len(), 2, "{kept:?}");
    for key in kept {
        let [member, expiry]: [String; 2] = portal.api.outbox.run("ZRANGE", &[&key, "0", "0", "WITHSCORES"]).await;
        for at in 1..20 {
            let _: u64 = portal.api.outbox.run("ZADD", &[&key, &expiry, &format!("{member}{at}")]).await;
        }
    }
    starts(&portal.does("do=test&contact=other").await, 429, "That was asked often enough.");
    let said = portal.send("contacts", "channel=email&address=stranger@b.test").await;
    starts(&said, 429, "That was asked often enough.");
    assert_eq!(portal.api.contacts("alice").await.len(), 5);
    portal.api.daemon.drain().await;
}

/// Slow bodies must not hold the connections of everybody else.
#[tokio::test]
async fn a_form_that_does_not_arrive_is_given_up() {
    let portal = Portal::start(&json!([])).await;
    let given_up = async |below: &str| {
        let head = format!("POST {}{below} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\ndo=", portal.path);
        let mut slow = TcpStream::connect(portal.visitor.address).await.expect("connected");
        slow.write_all(head.as_bytes()).await.expect("written");
        let mut first = [0; 13];
        slow.read_exact(&mut first).await.expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 400 ", "{below}");
    };
    tokio::join!(given_up("contacts"), given_up("contact"));
    portal.api.daemon.drain().await;
}

/// A customer must not wait for alerts that a mute of the operator stops.
#[tokio::test]
async fn contacts_that_a_mute_of_the_subject_silences_are_muted() {
    let portal = Portal::start(&json!([
        {"id": "main", "channel": "email", "address": "main@b.test"},
        {"id": "of-tokens", "channel": "email", "address": "t@b.test", "metrics": ["tokens"]},
        {"id": "own", "channel": "email", "address": "own@b.test", "muted": true, "muted_until": "2100-01-02T00:00:00Z"},
    ]))
    .await;
    let key = portal.api.outbox.keys.subject(&subject("alice"));
    let mute = async |field: &str, value: &str| {
        let _: u64 = portal.api.outbox.run("HSET", &[key.as_str(), field, value]).await;
    };
    let states = async || {
        let page = portal.visitor.get(&portal.path).await;
        judge_html("/", &page);
        let text = page.text.replace("<time datetime=\"", "").replace("</time>", "");
        let states = found(&text, "(Gets alerts|Muted)(?: until [^\"]*\">[0-9: -]*)?\\.\\s*<span class=\"soft\">");
        let ends = found(&text, "Muted until [^\"]*\">([0-9-]*)").join(" ");
        let said = found(&text, "<p>(Alerts [a-z ]*are muted)");
        let place = |text: &str| page.text.find(text).unwrap_or_else(|| panic!("{text} is not in {}", page.text));
        let is_above = |text: &&str| place(&format!("<p>{text}")) < place("<div class=\"cards\">");
        assert!(said.iter().all(is_above), "whoever reads the limits must know first: {}", page.text);
        assert!(!page.text.contains("<header"), "nothing is in it: {}", page.text);
        (states.join(" "), ends, said.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let told = |states: &str, ends: &str, said: &[&str]| {
        (states.to_owned(), ends.to_owned(), said.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(states().await, told("Gets alerts Gets alerts Muted", "2100-01-02", &[]));
    mute("muted:tokens", "2100-01-01T00:00:00Z not paid").await;
    let of_tokens = "Alerts of tokens are muted";
    assert_eq!(states().await, told("Gets alerts Muted Muted", "2100-01-01 2100-01-02", &[of_tokens]));
    mute("muted", "2100-01-03T00:00:00Z not paid").await;
    let all = told("Muted Muted Muted", "2100-01-03 2100-01-03 2100-01-03", &["Alerts are muted", of_tokens]);
    assert_eq!(states().await, all);
    mute("muted", "true not paid").await;
    assert_eq!(states().await.1, "", "until somebody ends it");
    portal.api.daemon.drain().await;
}

/// A fault at the top of a long page is not seen by whoever looks at the form.
#[tokio::test]
async fn a_fault_is_told_beside_its_form_with_what_was_sent() {
    let portal = Portal::start(&json!([
        {"id": "main", "channel": "email", "address": "main@b.test"},
        {"id": "other", "channel": "email", "address": "other@b.test"},
    ]))
    .await;
    let page = portal.visitor.get(&portal.path).await.text;
    assert!(page.contains("action=\"contact#c2\"") && !page.contains("value=\"remove\""));
    let send = async |below: &str, body: &str| {
        let answer = portal.visitor.send("POST", &format!("{}{below}", portal.path), &[], body).await;
        judge_html(below, &answer);
        assert_eq!(found(&answer.text, "(role=\"alert\")").len(), 1, "{}", answer.text);
        answer.text
    };
    let page = send("contact", "do=thresholds&thresholds=many&contact=other").await;
    let [first, second] =
        ["c1", "c2"].map(|id| found(&page, &format!("(?s)<section class=\"card\" id=\"{id}\">(.*?)</section>"))[0]);
    assert!(!first.contains("role=\"alert\"") && second.contains("role=\"alert\">Thresholds are"), "{page}");
    assert!(second.contains("<details open>") && second.contains("value=\"many\""), "{second}");
    let page = send("contacts", "channel=webhook&address=nowhere&thresholds=90").await;
    let add = found(&page, "(?s)<details id=\"add\" open>(.*?)</details>")[0];
    assert!(add.contains("role=\"alert\">This is not an address"), "{add}");
    assert!(add.contains("value=\"webhook\" selected") && add.contains("value=\"nowhere\""), "{add}");
    assert!(add.contains("value=\"90\""), "{add}");
    // A form that the page does not have.
    let page = send("contact", "do=mute&for=1d&contact=nobody").await;
    assert!(page.contains("<p id=\"told\" class=\"fault\" role=\"alert\">This contact is gone."), "{page}");
    portal.api.daemon.drain().await;
}
