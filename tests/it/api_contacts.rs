//! Contacts that a subject's own side adds, on the real binary: no alert before consent, and consent only by whoever is at the address.

use std::collections::BTreeSet;

use crate::support;
use crate::support::api::{Answer, Caller};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::echo_receiver::{Echo, EchoReceiver};
use crate::support::eventually::{PATIENCE, eventually};
use crate::support::mail_server::ParsedMail;
use crate::support::outbox::{Outbox, subject};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::{Verified, secret, verify};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use quotabell::contacts::Contact;
use quotabell::demo::receivers::{Phase, Reply, SmtpCatcher, SmtpSetup, Times};
use quotabell::types::Keys;
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A daemon with its Redis and a mail server, and a client that has the token.
struct Desk {
    outbox: Outbox,
    mailbox: SmtpCatcher,
    daemon: Daemon,
    api: Caller,
}

/// What a mail asks for.
struct Asked {
    to: String,
    code: String,
    /// Path of the confirm link, below the public URL.
    path: Option<String>,
    text: String,
    html: String,
}

impl Desk {
    async fn open() -> Self {
        Self::open_with(|setup| setup).await
    }

    async fn open_with(change: impl FnOnce(DaemonSetup) -> DaemonSetup) -> Self {
        Self::open_on(RedisServer::start(), change).await
    }

    async fn open_on(server: RedisServer, change: impl FnOnce(DaemonSetup) -> DaemonSetup) -> Self {
        let outbox = Outbox::on(server);
        let mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#)
            .env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url())
            .env("QUOTABELL__HTTP__TOKEN", TOKEN)
            .env("QUOTABELL__HTTP__PUBLIC_URL", "https://quota.example.com/base/");
        let mut daemon = change(setup).start().await;
        let api = Caller::of(&mut daemon).await.with_token(TOKEN);
        Self { outbox, mailbox, daemon, api }
    }

    /// Adds a contact and gives its id.
    async fn add(&self, of: &str, contact: &Value) -> String {
        let answer = self.api.post(&format!("/v1/subjects/{of}/contacts"), contact).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        assert_eq!(answer.json()["verified"], false);
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    async fn add_email(&self, of: &str, address: &str) -> String {
        self.add(of, &json!({"channel": "email", "address": address})).await
    }

    async fn show(&self, of: &str, contact: &str, code: &str) -> Answer {
        self.api.post(&format!("/v1/subjects/{of}/contacts/{contact}/verify"), &json!({"code": code})).await
    }

    async fn resend(&self, of: &str, contact: &str) -> Answer {
        self.api.send("POST", &format!("/v1/subjects/{of}/contacts/{contact}/verification"), &[], "").await
    }

    async fn remove(&self, of: &str, contact: &str) -> Answer {
        self.api.send("DELETE", &format!("/v1/subjects/{of}/contacts/{contact}"), &[], "").await
    }

    /// Takes a contact away, which must work.
    async fn take_away(&self, of: &str, contact: &str) {
        let answer = self.remove(of, contact).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    }

    /// The next mail; it must ask for a confirmation.
    async fn asked(&mut self) -> Asked {
        let mail = tokio::time::timeout(PATIENCE, self.mailbox.next()).await.expect("a mail in time");
        let parsed = ParsedMail::parse(&mail.text());
        assert_eq!(parsed.header("Auto-Submitted"), "auto-generated");
        assert_eq!(parsed.count("X-Quotabell-Alert"), 0);
        assert!(parsed.header("Subject").starts_with("Confirm this address"), "{}", parsed.header("Subject"));
        let text = parsed.parts[0].content.clone();
        let line = |is: &dyn Fn(&str) -> bool| text.lines().map(str::trim).find(|line| is(line)).map(str::to_owned);
        let code = line(&|line| line.len() == 6 && line.bytes().all(|byte| byte.is_ascii_digit())).expect("a code");
        let client = line(&|line| line.starts_with("https://"));
        let path =
            client.map(|client| client.strip_prefix("https://quota.example.com/base").expect("the URL").to_owned());
        Asked { to: mail.to[0].clone(), code, path, text, html: parsed.parts[1].content.clone() }
    }

    /// The next mail; it must be an alert.
    async fn alerted(&mut self) -> String {
        let mail = tokio::time::timeout(PATIENCE, self.mailbox.next()).await.expect("a mail in time");
        let parsed = ParsedMail::parse(&mail.text());
        assert_eq!(parsed.count("X-Quotabell-Alert"), 1, "{}", parsed.header("Subject"));
        mail.to[0].clone()
    }

    async fn use_units(&self, of: &str, units: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", of, "units", &units.to_string()]).await;
    }

    async fn contacts(&self, of: &str) -> Vec<Value> {
        let key = Keys::new("usage").subject(&subject(of));
        let stored: Option<String> = self.outbox.run("HGET", &[key.as_str(), "contacts"]).await;
        serde_json::from_str(&stored.unwrap_or_else(|| "[]".to_owned())).expect("a list")
    }

    async fn is_verified(&self, of: &str, contact: &str) -> bool {
        let contacts = self.contacts(of).await;
        let contact = contacts.iter().find(|one| one["id"] == contact).expect("it is there");
        contact["verified"] == true
    }

    /// Waits until a counter of `/metrics` has this value.
    async fn counted(&self, outcome: &str, times: u64) {
        let line = format!("quotabell_verifications_total{{outcome=\"{outcome}\"}} {times}");
        eventually(&line, || async { self.api.get("/metrics").await.text.contains(&line).then_some(()) }).await;
    }

    /// Lets somebody ask again at once, as the passing of a minute does.
    async fn let_a_minute_pass(&self) {
        self.let_pass(&["resent", "turn", "asked"]).await;
    }

    /// Ends what holds somebody up, of these kinds.
    async fn let_pass(&self, kinds: &[&str]) {
        let mut cooling: Vec<String> = Vec::new();
        for kind in kinds {
            cooling.extend(self.outbox.run::<Vec<String>>("KEYS", format!("quota_verify_{kind}:*")).await);
        }
        assert!(!cooling.is_empty(), "nobody cools down");
        let _: u64 = self.outbox.run("DEL", cooling).await;
    }

    /// Waits until there is no such key.
    async fn forgotten(&self, pattern: &str) {
        let left = || async { self.outbox.run::<Vec<String>>("KEYS", pattern).await };
        eventually("nothing is left", || async { left().await.is_empty().then_some(()) }).await;
    }

    /// Waits until there is one address of which a request counts: that of any other was given back.
    async fn one_address_counts(&self) {
        let counted = || async { self.outbox.run::<Vec<String>>("KEYS", "quota_verify_requests:*").await };
        eventually("the request is given back", || async { (counted().await.len() == 1).then_some(()) }).await;
    }

    /// Stops Redis, or lets it go on, as a machine does that is short of memory.
    fn signal_redis(&self, signal: Signal) {
        let server = Pid::from_raw(i32::try_from(self.outbox.server.pid()).expect("a process id"));
        nix::sys::signal::kill(server, signal).expect("it runs");
    }

    async fn press(&self, path: &str) -> Answer {
        self.api.send("POST", path, &[], "").await
    }

    /// Adds one more contact elsewhere and waits for its mail: whatever was asked for before has left by then, and nothing else had.
    async fn nothing_else_was_sent(&mut self) {
        self.add_email("last", "last@b.test").await;
        assert_eq!(self.asked().await.to, "last@b.test", "another message left");
    }

    /// Whatever is stored below keys of this pattern, as text.
    async fn texts(&self, pattern: &str) -> Vec<String> {
        let mut texts = Vec::new();
        let names: BTreeSet<String> = self.outbox.run("KEYS", pattern).await;
        for name in names {
            let kind: String = self.outbox.run("TYPE", &name).await;
            let values: Vec<Vec<u8>> = match kind.as_str() {
                "string" => vec![self.outbox.run("GET", &name).await],
                "hash" => {
                    let mut values: Vec<Vec<u8>> = self.outbox.run("HKEYS", &name).await;
                    values.extend(self.outbox.run::<Vec<Vec<u8>>>("HVALS", &name).await);
                    values
                }
                "zset" => self.outbox.run("ZRANGE", &[name.as_str(), "0", "-1"]).await,
                _ => Vec::new(),
            };
            texts.extend(values.iter().map(|value| String::from_utf8_lossy(value).into_owned()));
            texts.push(name);
        }
        texts
    }
}

/// The whole promise: nothing before consent, and afterwards also what had been waiting.
#[tokio::test]
async fn an_address_gets_alerts_once_its_code_was_shown_and_none_before() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    assert_eq!((asked.to.as_str(), asked.text.contains("alice")), ("alice@b.test", true));
    assert!(asked.html.contains(&asked.code) && asked.text.contains("10 minutes"), "{}", asked.text);
    assert!(!desk.is_verified("alice", &id).await);

    desk.use_units("alice", 80).await;
    desk.daemon.says("no contact is known").await;
    let wrong = if asked.code == "000000" { "000001" } else { "000000" };
    desk.show("alice", &id, wrong).await.expect_problem(403, "ask for another");
    assert!(!desk.is_verified("alice", &id).await);

    let shown = desk.show("alice", &id, &asked.code).await;
    assert_eq!((shown.status, shown.json()), (200, json!({"id": id, "verified": true})));
    assert!(desk.is_verified("alice", &id).await);
    // The first mail since the one that asked: none came before.
    assert_eq!(desk.alerted().await, "alice@b.test");
    desk.use_units("alice", 20).await;
    assert_eq!(desk.alerted().await, "alice@b.test");

    desk.show("alice", &id, &asked.code).await.expect_problem(403, "ask for another");
    desk.counted("sent", 1).await;
    desk.counted("verified", 1).await;
    desk.counted("rejected", 2).await;
    desk.daemon.drain().await;
}

/// Mail software opens every link: only the button may count, and pressing it twice must frighten nobody.
#[tokio::test]
async fn a_confirm_link_shows_a_page_and_its_button_verifies_once() {
    let mut desk = Desk::open().await;
    let odd = "%3Cb%3E%22%26";
    let id = desk.add_email(odd, "alice@b.test").await;
    let asked = desk.asked().await;
    assert!(asked.html.contains("&lt;b&gt;&quot;&amp;") && !asked.html.contains("<b>\""), "{}", asked.html);
    let path = asked.path.expect("a link");
    assert_eq!(path.len(), "/confirm/".len() + 43, "256 bits: {path}");

    for method in ["GET", "HEAD", "GET"] {
        let page = desk.api.send(method, &path, &[], "").await;
        assert_eq!(page.status, 200);
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
        let policy = page.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'nonce-"), "{policy}");
        assert!(policy.contains("form-action 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    }
    let other = desk.api.get("/confirm/nobodys").await;
    let without_nonce = |page: &Answer| page.text.split("nonce=").map(|part| part[34..].to_owned()).collect::<Vec<_>>();
    assert_eq!(without_nonce(&other)[1..], without_nonce(&desk.api.get(&path).await)[1..], "a page tells a token");
    assert!(!desk.is_verified("<b>\"&", &id).await, "looking at it changed something");

    let done = desk.api.send("POST", &path, &[("content-type", "application/x-www-form-urlencoded")], "").await;
    assert_eq!(done.status, 200, "{}", done.text);
    assert!(done.text.contains("Confirmed") && done.text.contains("&lt;b&gt;&quot;&amp;"), "{}", done.text);
    assert!(!done.text.contains("<b>\""), "{}", done.text);
    assert!(desk.is_verified("<b>\"&", &id).await);

    for used in [path.as_str(), "/confirm/nobodys"] {
        let again = desk.api.send("POST", used, &[], "").await;
        assert_eq!(again.status, 410);
        assert!(again.text.contains("used already, or has run out"), "{}", again.text);
    }
    desk.daemon.drain().await;
}

/// A receiver that echoes wants the alerts, and gets them signed with the secret that was shown once.
#[tokio::test]
async fn a_webhook_that_echoes_its_challenge_is_verified_at_once() {
    let desk = Desk::open().await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let new = json!({"channel": "webhook", "url": receiver.url("/hook")});
    let answer = desk.api.post("/v1/subjects/alice/contacts", &new).await;
    assert_eq!((answer.status, answer.header("cache-control")), (202, Some("no-store")));
    let (id, made) = (answer.json()["id"].clone(), answer.json()["secret"].clone());
    let (id, made) = (id.as_str().expect("an id"), made.as_str().expect("a secret"));

    let Verified { id: message, body } = verify(&receiver.next().await, made);
    assert!(message.starts_with("verification_") && !message.contains('.'), "{message}");
    assert_eq!((&body["type"], &body["data"]["subject"]), (&json!("contact.verification"), &json!("alice")));
    eventually("verified", || async { desk.is_verified("alice", id).await.then_some(()) }).await;
    desk.use_units("alice", 80).await;
    let alert = verify(&receiver.next().await, made);
    assert_eq!(alert.body["type"], "quota.threshold_reached");

    // The same URL with a secret of the caller's own: the receiver is asked again, and it stays one contact.
    let own = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
    let answer = desk.api.post("/v1/subjects/alice/contacts", &own).await;
    assert_eq!((answer.status, answer.json()), (202, json!({"id": id, "channel": "webhook", "verified": false})));
    verify(&receiver.next().await, &secret(9));
    eventually("one contact", || async { (desk.contacts("alice").await.len() == 1).then_some(()) }).await;
    desk.use_units("alice", 20).await;
    verify(&receiver.next().await, &secret(9));
    desk.counted("verified", 2).await;
    desk.daemon.drain().await;
}

/// A URL that somebody else runs, or that does not read what it is sent, must get no alerts.
#[tokio::test]
async fn a_webhook_that_does_not_echo_stays_unverified() {
    for (echo, outcome) in
        [(Echo::Wrong, "rejected"), (Echo::Nothing, "rejected"), (Echo::TooLate, "rejected"), (Echo::Refused, "failed")]
    {
        let mut desk = Desk::open().await;
        let mut receiver = EchoReceiver::start(echo).await;
        let new = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
        let id = desk.add("alice", &new).await;
        verify(&receiver.next().await, &secret(9));
        desk.counted(outcome, 1).await;
        assert!(!desk.is_verified("alice", &id).await, "{echo:?}");
        desk.use_units("alice", 80).await;
        desk.daemon.says("no contact is known").await;
        desk.show("alice", &id, "000000").await.expect_problem(403, "ask for another");
        assert!(receiver.try_next().is_none(), "{echo:?}");
        assert!(!desk.daemon.has_said("/hook"), "the log names the address");
        desk.daemon.drain().await;
    }
}

/// A verification must not be the way to make the daemon call the inside of its network.
#[tokio::test]
async fn a_webhook_inside_the_network_is_not_called() {
    let desk = Desk::open_with(|setup| setup.env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "false")).await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let id = desk.add("alice", &json!({"channel": "webhook", "url": receiver.url("/hook")})).await;
    desk.counted("failed", 1).await;
    assert!(!desk.is_verified("alice", &id).await);
    assert!(receiver.try_next().is_none());
    desk.daemon.drain().await;
}

/// What a mail provider or a receiver takes is one number: messages that ask for consent must not be the way round it, by which
/// anybody's receiver is flooded with ever other paths.
#[tokio::test]
async fn messages_that_ask_for_consent_keep_to_the_caps() {
    let mut desk = Desk::open_with(|setup| {
        setup.env("QUOTABELL__EMAIL__PER_MINUTE", "1").env("QUOTABELL__WEBHOOK__PER_DESTINATION", "1/1h")
    })
    .await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let Asked { code, .. } = desk.asked().await;
    desk.add_email("bob", "bob@b.test").await;
    desk.counted("throttled", 1).await;
    // Once there is room, whoever adds it again is asked, in the same minute.
    let _: u64 = desk.outbox.run("DEL", desk.outbox.keys.email_cap()).await;
    desk.add_email("bob", "bob@b.test").await;
    assert_eq!(desk.asked().await.to, "bob@b.test");
    let mut receiver = EchoReceiver::start(Echo::Nothing).await;
    for path in ["/1", "/2"] {
        desk.add("carol", &json!({"channel": "webhook", "url": receiver.url(path), "secret": secret(9)})).await;
    }
    verify(&receiver.next().await, &secret(9));
    desk.counted("throttled", 2).await;
    assert!(desk.mailbox.try_next().is_none() && receiver.try_next().is_none());
    // A message that finds no room leaves the password before it good.
    desk.let_a_minute_pass().await;
    desk.resend("alice", &id).await;
    desk.counted("throttled", 3).await;
    assert_eq!(desk.show("alice", &id, &code).await.status, 200);
    desk.daemon.drain().await;
}

/// Six digits are found by a million guesses: five are the most, and another mail begins anew with another password.
#[tokio::test]
async fn after_five_wrong_guesses_the_right_code_is_refused_too() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let first = desk.asked().await;
    let wrong = if first.code == "000000" { "000001" } else { "000000" };
    for _ in 0..5 {
        desk.show("alice", &id, wrong).await.expect_problem(403, "ask for another");
    }
    let refused = desk.show("alice", &id, &first.code).await;
    assert_eq!(refused.text, desk.show("alice", &id, wrong).await.text, "an answer tells the right code");
    assert!(!desk.is_verified("alice", &id).await);

    desk.let_a_minute_pass().await;
    assert_eq!(desk.resend("alice", &id).await.status, 202);
    let second = desk.asked().await;
    if second.code != first.code {
        desk.show("alice", &id, &first.code).await.expect_problem(403, "ask for another");
    }
    assert_eq!(desk.show("alice", &id, &second.code).await.status, 200);
    desk.daemon.drain().await;
}

/// Somebody else's mailbox must not be filled: neither by asking again, nor by removing and adding, nor by other letters.
#[tokio::test]
async fn an_address_is_asked_so_often_and_no_more() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    let id = desk.add_email("alice", "victim@b.test").await;
    desk.asked().await;
    desk.let_a_minute_pass().await;
    assert_eq!(desk.resend("alice", &id).await.status, 202);
    desk.asked().await;
    let cooling = desk.resend("alice", &id).await;
    cooling.expect_problem(429, "too often");
    // One kind of problem has one title (RFC 9457 3.1.3), that of a check's.
    assert_eq!(cooling.json()["title"], "Request cannot be satisfied as assigned quota has been exceeded");
    let seconds: u64 = cooling.header("retry-after").expect("when").parse().expect("seconds");
    assert!((1..=60).contains(&seconds), "{seconds}");

    desk.let_a_minute_pass().await;
    let full = desk.resend("alice", &id).await;
    full.expect_problem(429, "too often");
    let seconds: u64 = full.header("retry-after").expect("when").parse().expect("seconds");
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    let _: u64 = desk.outbox.run("DEL", Keys::new("usage").subject(&subject("alice"))).await;
    desk.let_a_minute_pass().await;
    // Twice each: what was refused has begun no minute in which it would be taken without a message.
    let others = [("alice", "victim@b.test"), ("bob", "victim@b.test"), ("carol", "Victim@B.test")];
    for (of, address) in others.into_iter().chain(others) {
        let answer = desk
            .api
            .post(&format!("/v1/subjects/{of}/contacts"), &json!({"channel": "email", "address": address}))
            .await;
        answer.expect_problem(429, "too often");
        assert!(desk.contacts(of).await.is_empty(), "what was refused was written");
    }
    desk.counted("throttled", 8).await;
    // Others are not held up, and nothing more came for the victim.
    desk.add_email("alice", "other@b.test").await;
    assert_eq!(desk.asked().await.to, "other@b.test");
    desk.daemon.drain().await;
}

/// A form that is sent twice must not end the code of the mail before, nor use up what its owner may ask for.
#[tokio::test]
async fn an_address_that_is_added_twice_within_a_minute_is_asked_once() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    let path = "/v1/subjects/alice/contacts";
    let body = json!({"channel": "email", "address": "alice@b.test"});
    let (first, second) = tokio::join!(desk.api.post(path, &body), desk.api.post(path, &body));
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.text, second.text);
    let id = first.json()["id"].as_str().expect("an id").to_owned();
    desk.resend("alice", &id).await.expect_problem(429, "too often");
    let asked = desk.asked().await;
    // It is there again when somebody removed it in between. The code that is on its way was for the one before.
    let _: u64 = desk.outbox.run("DEL", Keys::new("usage").subject(&subject("alice"))).await;
    desk.add_email("alice", "alice@b.test").await;
    desk.counted("throttled", 3).await;
    desk.show("alice", &id, &asked.code).await.expect_problem(403, "ask for another");
    assert!(!desk.is_verified("alice", &id).await);
    // One request of two was counted, so there is one more, and one mail for it.
    desk.let_a_minute_pass().await;
    let _: u64 = desk.outbox.run("DEL", Keys::new("usage").subject(&subject("alice"))).await;
    desk.add_email("alice", "alice@b.test").await;
    assert_eq!(desk.asked().await.to, "alice@b.test");
    desk.let_a_minute_pass().await;
    desk.api.post(path, &body).await.expect_problem(429, "too often");
    assert!(desk.mailbox.try_next().is_none(), "another message left");
    desk.counted("sent", 2).await;

    // A receiver is asked once for each secret.
    let mut receiver = EchoReceiver::start(Echo::Nothing).await;
    let hook = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
    let hook_id = desk.add("alice", &hook).await;
    desk.add("alice", &hook).await;
    desk.resend("alice", &hook_id).await.expect_problem(429, "too often");
    verify(&receiver.next().await, &secret(9));
    desk.add("alice", &json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(8)})).await;
    verify(&receiver.next().await, &secret(8));
    desk.counted("rejected", 3).await;
    assert!(receiver.try_next().is_none());
    desk.daemon.drain().await;
}

/// "Taken" is a promise: whoever waits for a message must not wait because an earlier request failed on the way.
#[tokio::test]
async fn a_request_that_led_to_no_message_keeps_nobody_from_being_asked() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    let body = |address: &str| json!({"channel": "email", "address": address});
    let id_of = |address: &str| Contact::email(address).id.to_string();

    // Of one that is not there yet.
    assert_eq!(desk.resend("alice", &id_of("alice@b.test")).await.status, 202);
    desk.add_email("alice", "alice@b.test").await;
    assert_eq!(desk.asked().await.to, "alice@b.test");

    // Of an address that was asked as often as it may be: it stays refused, and nothing is stored.
    for subject in ["bob", "carol"] {
        desk.add_email(subject, "bob@b.test").await;
        assert_eq!(desk.asked().await.to, "bob@b.test");
    }
    for _ in 0..2 {
        desk.api.post("/v1/subjects/dave/contacts", &body("bob@b.test")).await.expect_problem(429, "too often");
        desk.resend("dave", &id_of("bob@b.test")).await.expect_problem(429, "too often");
    }
    desk.api.post("/v1/subjects/dave/contacts", &body("bob@b.test")).await.expect_problem(429, "too often");
    assert!(desk.contacts("dave").await.is_empty(), "what was refused was written");
    desk.nothing_else_was_sent().await;
    desk.daemon.drain().await;
}

/// What was cut off by the deadline reaches Redis all the same: whoever tries again must not be taken for one who was asked.
#[tokio::test]
async fn an_add_that_met_a_stall_of_redis_is_asked_when_it_is_tried_again() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h")).await;
    // The first request makes the scripts known: then the next one's first command is run as it is.
    desk.add_email("dave", "dave@b.test").await;
    desk.asked().await;
    let keys = || async { desk.outbox.run::<Vec<String>>("KEYS", "quota_verify_*").await.len() };
    let before = keys().await;
    let body = json!({"channel": "email", "address": "erin@b.test"});
    desk.signal_redis(Signal::SIGSTOP);
    let path = "/v1/subjects/erin/contacts";
    desk.api.post(path, &body).await.expect_problem(503, "Redis does not answer");
    desk.signal_redis(Signal::SIGCONT);
    eventually("Redis has read what was sent", || async { (keys().await > before).then_some(()) }).await;
    eventually("added", || async { (desk.api.post(path, &body).await.status == 202).then_some(()) }).await;
    assert_eq!(desk.asked().await.to, "erin@b.test");
    desk.nothing_else_was_sent().await;
    desk.daemon.drain().await;
}

/// A mailbox under another name is the same mailbox: neither another spelling nor another id may fill it, nor give more guesses.
#[tokio::test]
async fn a_mailbox_is_asked_once_a_minute_whatever_it_is_called() {
    let mut desk = Desk::open().await;
    let ivy = |address: &str| json!({"channel": "email", "address": address});
    desk.add_email("ivy", "Ivy@x.test").await;
    let other = desk.api.post("/v1/subjects/ivy/contacts", &ivy("ivy@x.test")).await;
    other.expect_problem(429, "too often");
    let seconds: u64 = other.header("retry-after").expect("when").parse().expect("seconds");
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(desk.contacts("ivy").await.len(), 1, "it is stored, and nobody asks it");
    assert_eq!(desk.asked().await.to, "Ivy@x.test");

    let stored = r#"[{"id":"main","channel":"email","address":"Mia@x.test","verified":false}]"#;
    desk.outbox.set_contacts(&subject("mia"), stored).await;
    let derived = desk.add_email("mia", "Mia@x.test").await;
    assert_eq!(desk.resend("mia", "main").await.status, 202);
    let asked = desk.asked().await;
    desk.nothing_else_was_sent().await;
    // One password, and one set of guesses.
    let wrong = if asked.code == "000000" { "000001" } else { "000000" };
    for id in ["main", &derived, "main", &derived, "main"] {
        desk.show("mia", id, wrong).await.expect_problem(403, "ask for another");
    }
    desk.show("mia", &derived, &asked.code).await.expect_problem(403, "ask for another");
    desk.let_a_minute_pass().await;
    assert_eq!(desk.resend("mia", "main").await.status, 202);
    let asked = desk.asked().await;
    assert_eq!(desk.show("mia", &derived, &asked.code).await.status, 200);
    assert!(desk.is_verified("mia", "main").await);
    desk.daemon.drain().await;
}

/// How often an address was asked is told by what was named, whoever has it: an id of the platform's own and one of an address with
/// capitals must not show whether there is such a contact.
#[tokio::test]
async fn a_used_up_address_is_answered_the_same_for_known_and_unknown_contacts() {
    let main = r#"[{"id":"main","channel":"email","address":"victim@b.test","verified":false}]"#;
    let capitals = r#"[{"channel":"email","address":"Victim@b.test","verified":false}]"#;
    let id_of = |address: &str| Contact::email(address).id.to_string();
    let ids = ["main".to_owned(), id_of("Victim@b.test"), id_of("victim@b.test")];
    let mut told = Vec::new();
    for known in [true, false] {
        let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")).await;
        desk.add_email("other", "victim@b.test").await;
        desk.asked().await;
        if known {
            desk.outbox.set_contacts(&subject("alice"), main).await;
            desk.outbox.set_contacts(&subject("bob"), capitals).await;
        }
        let mut answers = Vec::new();
        for (of, id) in ["alice", "bob"].into_iter().flat_map(|of| ids.iter().map(move |id| (of, id))) {
            for _ in 0..2 {
                let answer = desk.resend(of, id).await;
                answers.push((of, id.clone(), answer.status, answer.text));
                desk.let_a_minute_pass().await;
            }
        }
        told.push(answers);
        desk.nothing_else_was_sent().await;
        desk.daemon.drain().await;
    }
    let [known, unknown] = &told[..] else { panic!("two of them") };
    assert_eq!(known, unknown);
}

/// Redis that stalls for a moment must not cost a customer the link that they hold in their hands.
#[tokio::test]
async fn a_confirm_link_that_met_a_stall_can_be_pressed_again() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let path = desk.asked().await.path.expect("a link");
    desk.signal_redis(Signal::SIGSTOP);
    assert_eq!(desk.press(&path).await.status, 503);
    desk.signal_redis(Signal::SIGCONT);
    // Redis reads what was sent while it stood still.
    eventually("it is consumed", || async {
        let client: Vec<String> = desk.outbox.run("KEYS", "quota_verify_link:*").await;
        let claim: Option<String> = desk.outbox.run("HGET", &[client[0].as_str(), "claim"]).await;
        claim
    })
    .await;
    assert!(!desk.is_verified("alice", &id).await);
    let again = eventually("Redis is found again", || async {
        let page = desk.press(&path).await;
        (page.status != 503).then_some(page)
    })
    .await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert!(desk.is_verified("alice", &id).await);
    assert_eq!(desk.press(&path).await.status, 410);
    desk.counted("verified", 1).await;
    desk.daemon.drain().await;
}

/// Redis that is full is not Redis that is away: who reads the answer has to look elsewhere.
#[tokio::test]
async fn a_full_redis_is_told_as_such() {
    let desk = Desk::open().await;
    let () = desk.outbox.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    let new = json!({"channel": "email", "address": "new@b.test"});
    desk.api.post("/v1/subjects/alice/contacts", &new).await.expect_problem(503, "memory of Redis is full");
    let () = desk.outbox.run("CONFIG", &["SET", "maxmemory", "0"]).await;
    desk.add_email("alice", "new@b.test").await;
    desk.daemon.drain().await;
}

/// Whatever the platform wrote: it is told, and nobody's request ends in the middle.
#[tokio::test]
async fn a_contact_that_is_a_list_is_no_contact() {
    let desk = Desk::open().await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let url = receiver.url("/hook");
    let stored = json!([[null, "webhook", null, url, secret(8), false, false]]);
    desk.outbox.set_contacts(&subject("alice"), &stored.to_string()).await;
    desk.add("alice", &json!({"channel": "webhook", "url": url, "secret": secret(9)})).await;
    verify(&receiver.next().await, &secret(9));
    desk.counted("verified", 1).await;
    let contacts = desk.contacts("alice").await;
    assert_eq!((contacts.len(), &contacts[0]), (2, &stored[0]));
    desk.daemon.drain().await;
}

/// Whoever tries ids must not learn which subjects and contacts there are.
#[tokio::test]
async fn known_and_unknown_contacts_are_answered_the_same() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    desk.let_a_minute_pass().await;
    let wrong = if asked.code == "000000" { "000001" } else { "000000" };
    let verified = r#"[{"id":"main","channel":"email","address":"bob@b.test"}]"#;
    desk.outbox.set_contacts(&subject("bob"), verified).await;
    let _: () = desk.outbox.run("SET", &[Keys::new("usage").subject(&subject("odd")).as_str(), "not a hash"]).await;
    let told = |answer: &Answer| {
        let names = ["content-type", "retry-after", "content-length", "cache-control"];
        let headers = names.map(|name| answer.header(name).map(str::to_owned));
        (answer.status, answer.text.clone(), headers)
    };
    let mut answers: Vec<Vec<_>> = vec![Vec::new(); 4];
    for (of, contact) in [("alice", id.as_str()), ("alice", "c_0"), ("bob", "main"), ("nobody", "c_1"), ("odd", "c_1")]
    {
        // Contacts that can't be read are told as such, before a guess is judged.
        let shown = told(&desk.show(of, contact, wrong).await);
        if of == "odd" {
            assert_eq!(shown.0, 409)
        } else {
            answers[0].push(shown)
        }
        answers[1].push(told(&desk.resend(of, contact).await));
        let (status, text, _) = told(&desk.resend(of, contact).await);
        answers[2].push((status, text, [const { None }; 4]));
        answers[3].push(told(&desk.show(of, contact, "no code at all").await));
    }
    let status: Vec<u16> = answers.iter().map(|same| same[0].0).collect();
    assert_eq!(status, [403, 202, 429, 400]);
    for same in answers {
        assert!(same.iter().all(|answer| *answer == same[0]), "{same:#?}");
    }
    // Of all those that were asked for, one mail leaves: that to alice.
    assert_eq!(desk.asked().await.to, "alice@b.test");

    // Adding what is there and verified answers as adding what is new, changes nothing and asks nobody.
    let bob = json!({"channel": "email", "address": "bob@b.test"});
    let known = desk.api.post("/v1/subjects/bob/contacts", &bob).await;
    let unknown = desk.api.post("/v1/subjects/nobody/contacts", &bob).await;
    assert_eq!(told(&known), told(&unknown));
    assert_eq!(desk.contacts("bob").await, serde_json::from_str::<Vec<Value>>(verified).expect("a list"));
    assert_eq!(desk.asked().await.to, "bob@b.test");
    // Nor is it told by adding it again within the minute, or by asking again then.
    assert_eq!(told(&desk.api.post("/v1/subjects/bob/contacts", &bob).await), told(&known));
    assert_eq!(told(&desk.api.post("/v1/subjects/nobody/contacts", &bob).await), told(&known));
    let bobs = known.json()["id"].as_str().expect("an id").to_owned();
    for of in ["bob", "nobody"] {
        desk.resend(of, &bobs).await.expect_problem(429, "too often");
    }
    desk.add_email("last", "last@b.test").await;
    assert_eq!(desk.asked().await.to, "last@b.test");
    desk.daemon.drain().await;
}

/// A dump of Redis, or somebody who reads it, must not hold what verifies; and nothing of it may stay.
#[tokio::test]
async fn redis_holds_only_digests_and_each_ends() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    desk.let_a_minute_pass().await;
    assert_eq!(desk.resend("alice", &id).await.status, 202);
    let second = desk.asked().await;
    desk.show("alice", &id, "000000").await;
    desk.add_email("bob", "bob@b.test").await;
    desk.asked().await;
    let token = |asked: &Asked| asked.path.clone().expect("a link").replace("/confirm/", "");
    let texts = desk.texts("*").await;
    assert!(texts.len() > 10, "{texts:?}");
    for secret in [&asked.code, &token(&asked), &second.code, &token(&second)] {
        let held: Vec<&String> = texts.iter().filter(|text| text.contains(secret.as_str())).collect();
        assert!(held.is_empty(), "{secret} stands in {held:?}");
    }
    let names: Vec<String> = desk.outbox.run("KEYS", "quota_verify_*").await;
    let kinds: BTreeSet<&str> = names.iter().filter_map(|name| name.split(':').next()).collect();
    let all = ["asked", "guesses", "link", "password", "requests", "resent", "sent", "turn"];
    assert_eq!(kinds, all.map(|kind| format!("quota_verify_{kind}")).iter().map(String::as_str).collect());
    for name in &names {
        assert!(name.contains(":{usage}:"), "{name}");
        let lives_ms: i64 = desk.outbox.run("PTTL", name).await;
        assert!((1..=3_600_000).contains(&lives_ms), "{name} lives {lives_ms} ms");
    }
    desk.daemon.drain().await;
}

/// A token or password that is used up twice was not one-time. Who presses a moment later is not told that all was in vain.
#[tokio::test]
async fn of_sixteen_who_race_one_has_the_token_and_one_the_code() {
    let mut desk = Desk::open().await;
    let by_link = desk.add_email("alice", "alice@b.test").await;
    let path = desk.asked().await.path.expect("a link");
    let pressed = race(16, || desk.press(&path)).await;
    let said = |text: &str| pressed.iter().filter(|page| page.text.contains(text)).count();
    assert_eq!(said("<h1>Confirmed</h1>"), 1, "{pressed:?}");
    assert_eq!(said("<h1>Confirmed already</h1>") + said("used already, or has run out"), 15, "{pressed:?}");
    assert!(desk.is_verified("alice", &by_link).await);
    desk.counted("verified", 1).await;
    assert_eq!(desk.press(&path).await.status, 410);

    let by_code = desk.add_email("bob", "bob@b.test").await;
    let code = desk.asked().await.code;
    let shown = race(16, || desk.show("bob", &by_code, &code)).await;
    assert_eq!(shown.iter().filter(|answer| answer.status == 200).count(), 1, "{shown:?}");
    assert!(desk.is_verified("bob", &by_code).await);
    desk.daemon.drain().await;
}

/// What so many racers are answered.
async fn race<F: Future<Output = Answer>>(racers: usize, call: impl Fn() -> F) -> Vec<Answer> {
    let mut racing: Vec<_> = (0..racers).map(|_| Box::pin(call())).collect();
    let mut answers = Vec::new();
    // All are polled before any is waited for.
    std::future::poll_fn(|context| {
        racing.retain_mut(|call| match call.as_mut().poll(context) {
            std::task::Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            std::task::Poll::Pending => true,
        });
        if racing.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers
}

/// Consent is for one address: one that took its id since has not been asked.
#[tokio::test]
async fn an_address_that_changed_meanwhile_is_not_verified() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    let moved = format!(r#"[{{"id":"{id}","channel":"email","address":"evil@b.test","verified":false}}]"#);
    desk.outbox.set_contacts(&subject("alice"), &moved).await;
    desk.show("alice", &id, &asked.code).await.expect_problem(403, "ask for another");
    let pressed = desk.api.send("POST", &asked.path.expect("a link"), &[], "").await;
    assert_eq!(pressed.status, 410);
    assert!(!desk.is_verified("alice", &id).await);
    desk.daemon.drain().await;
}

/// Somebody who took an address away must not find it back because a mail was on its way to it, nor be kept from adding it anew.
#[tokio::test]
async fn what_was_sent_to_a_contact_that_was_removed_verifies_nothing() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let first = desk.asked().await;
    let stored = Value::from(desk.contacts("alice").await);
    desk.take_away("alice", &id).await;
    let hash: u64 = desk.outbox.run("EXISTS", Keys::new("usage").subject(&subject("alice"))).await;
    assert_eq!(hash, 0, "a subject is left over of which nothing is known");
    desk.take_away("alice", &id).await;
    desk.show("alice", &id, &first.code).await.expect_problem(403, "ask for another");
    desk.counted("rejected", 1).await;

    // Added again at once, it is asked again; the link of the mail before is worth nothing to it.
    assert_eq!(desk.add_email("alice", "alice@b.test").await, id);
    let second = desk.asked().await;
    let (first_link, second_link) = (first.path.expect("a link"), second.path.expect("a link"));
    assert_eq!(desk.api.send("POST", &first_link, &[], "").await.status, 410);
    desk.counted("rejected", 2).await;
    assert!(!desk.is_verified("alice", &id).await);
    assert_eq!(desk.api.send("POST", &second_link, &[], "").await.status, 200);
    assert!(desk.is_verified("alice", &id).await);
    desk.take_away("alice", &id).await;
    assert!(desk.contacts("alice").await.is_empty());

    // The code, where no newer one has taken its place: the platform wrote the contact down again by itself.
    let bob = desk.add_email("bob", "bob@b.test").await;
    let Asked { code, .. } = desk.asked().await;
    desk.take_away("bob", &bob).await;
    let again = stored.to_string().replace("alice@", "bob@").replace(&id, &bob);
    assert!(again.contains("nonce"), "{again}");
    desk.outbox.set_contacts(&subject("bob"), &again).await;
    desk.show("bob", &bob, &code).await.expect_problem(403, "ask for another");
    assert!(!desk.is_verified("bob", &bob).await);
    // How often an address may be asked is not begun anew.
    for _ in 0..2 {
        desk.take_away("bob", &bob).await;
        desk.add_email("bob", "bob@b.test").await;
        desk.asked().await;
    }
    desk.take_away("bob", &bob).await;
    let fourth =
        desk.api.post("/v1/subjects/bob/contacts", &json!({"channel": "email", "address": "bob@b.test"})).await;
    fourth.expect_problem(429, "too often");
    assert!(desk.contacts("bob").await.is_empty());
    assert!(!desk.daemon.has_said("alice@b.test") && desk.daemon.has_said("contact is removed"));
    desk.daemon.drain().await;
}

/// A receiver that takes its time must not bring a webhook back that was removed meanwhile.
#[tokio::test]
async fn an_echo_for_a_webhook_that_was_removed_verifies_nothing() {
    let desk = Desk::open().await;
    let mut receiver = EchoReceiver::start(Echo::Held).await;
    let hook = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
    let id = desk.add("alice", &hook).await;
    verify(&receiver.next().await, &secret(9));
    desk.take_away("alice", &id).await;
    // With the same secret, and within a minute: the challenge before was for another.
    assert_eq!(desk.add("alice", &hook).await, id);
    verify(&receiver.next().await, &secret(9));
    receiver.let_go();
    desk.counted("rejected", 1).await;
    assert!(!desk.is_verified("alice", &id).await);
    receiver.let_go();
    desk.counted("verified", 1).await;
    assert!(desk.is_verified("alice", &id).await);

    // Verified, with another secret waiting beside it: the address is to get nothing more, so both go.
    desk.add("alice", &json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(8)})).await;
    verify(&receiver.next().await, &secret(8));
    assert_eq!(desk.contacts("alice").await.len(), 2);
    desk.take_away("alice", &id).await;
    receiver.let_go();
    desk.counted("rejected", 2).await;
    assert!(desk.contacts("alice").await.is_empty());
    desk.use_units("alice", 80).await;
    let mut daemon = desk.daemon;
    daemon.says("no contact is known").await;
    assert!(receiver.try_next().is_none());
    daemon.drain().await;
}

/// Whoever takes an address away expects nothing more there, also of what was raised before and is being tried again.
#[tokio::test]
async fn alerts_that_wait_for_a_contact_which_was_removed_are_not_sent() {
    let an_hour_later =
        |setup: DaemonSetup| setup.env("QUOTABELL__RETRY__FIRST", "1h").env("QUOTABELL__RETRY__MAX_INTERVAL", "1h");
    let mut desk = Desk::open_with(an_hour_later).await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let Asked { code, .. } = desk.asked().await;
    assert_eq!(desk.show("alice", &id, &code).await.status, 200);
    desk.mailbox.program(Phase::Rcpt, Reply::Say("451 later"), Times::Once);
    desk.use_units("alice", 80).await;
    desk.daemon.says("attempt failed").await;
    let due = desk.outbox.keys.due();
    let waiting: Vec<String> = desk.outbox.run("ZRANGE", &[due.as_str(), "0", "-1"]).await;
    assert_eq!(waiting.len(), 1, "one delivery waits for its next attempt");
    desk.take_away("alice", &id).await;
    let () = desk.outbox.run("ZADD", &[due.as_str(), "XX", "0", &waiting[0]]).await;
    desk.daemon.says("delivery cancelled: the contacts changed").await;

    desk.use_units("alice", 20).await;
    desk.outbox.set_contacts(&subject("bob"), r#"[{"channel":"email","address":"bob@b.test"}]"#).await;
    desk.use_units("bob", 80).await;
    assert_eq!(desk.alerted().await, "bob@b.test", "a mail was sent to a contact that was removed");
    // What waits goes to whoever comes next.
    desk.outbox.set_contacts(&subject("alice"), r#"[{"channel":"email","address":"next@b.test"}]"#).await;
    for _ in 0..2 {
        assert_eq!(desk.alerted().await, "next@b.test");
    }
    let totals = eventually("all delivered", || async {
        let totals = desk.outbox.assert_balanced().await;
        (totals.delivered == 3).then_some(totals)
    })
    .await;
    assert_eq!((totals.raised, totals.cancelled, totals.pending), (3, 3, 0), "{totals:?}");
    desk.daemon.drain().await;
}

/// Whoever tries ids must not learn which there are by taking them away, and nobody takes away what the operator wrote.
#[tokio::test]
async fn taking_a_contact_away_answers_the_same_for_known_and_unknown_ones() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    desk.asked().await;
    let operators =
        r#"[{"id":"main","channel":"email","address":"bob@b.test"},{"channel":"sms","to":"+1","verified":true}]"#;
    desk.outbox.set_contacts(&subject("bob"), operators).await;
    let bobs = desk.add_email("carol", "bob@b.test").await;
    desk.asked().await;
    let mut answers = Vec::new();
    let known = [("alice", id.as_str()), ("carol", bobs.as_str())];
    let unknown = [("alice", "c_0"), ("bob", "main"), ("bob", bobs.as_str()), ("nobody", "c_1")];
    for (of, contact) in known.into_iter().chain(known).chain(unknown) {
        let answer = desk.remove(of, contact).await;
        let headers =
            ["content-type", "content-length", "cache-control"].map(|name| answer.header(name).map(str::to_owned));
        answers.push((answer.status, answer.text.clone(), headers));
    }
    assert_eq!(answers[0].0, 204);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    assert!(desk.contacts("alice").await.is_empty() && desk.contacts("carol").await.is_empty());
    assert_eq!(desk.contacts("bob").await, serde_json::from_str::<Vec<Value>>(operators).expect("a list"));
    let nobody: u64 = desk.outbox.run("EXISTS", Keys::new("usage").subject(&subject("nobody"))).await;
    assert_eq!(nobody, 0);
    desk.daemon.drain().await;
}

/// One mailbox must not become many contacts, each with every alert and with requests of its own, by the spelling of its domain.
#[tokio::test]
async fn an_address_is_one_contact_however_its_domain_is_spelled() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")).await;
    let id = desk.add_email("alice", "Alice@B.Test").await;
    let asked = desk.asked().await;
    assert_eq!(asked.to, "Alice@b.test");
    for spelled in ["Alice@b.test", "Alice@ｂ．test", "Alice@B.TEST"] {
        assert_eq!(desk.add_email("alice", spelled).await, id, "{spelled}");
        let other = json!({"channel": "email", "address": spelled});
        desk.api.post("/v1/subjects/other/contacts", &other).await.expect_problem(429, "too often");
    }
    let contacts = desk.contacts("alice").await;
    assert_eq!((contacts.len(), &contacts[0]["address"]), (1, &json!("Alice@b.test")));
    assert_eq!(desk.show("alice", &id, &asked.code).await.status, 200);

    let umlaut = desk.add_email("bob", "bob@bücher.test").await;
    assert_eq!(desk.asked().await.to, "bob@xn--bcher-kva.test");
    assert_eq!(desk.add_email("bob", "bob@XN--Bcher-kva.test").await, umlaut);
    // Nor is it another contact beside the operator's.
    let operators = r#"[{"channel":"email","address":"carol@B.Test"}]"#;
    desk.outbox.set_contacts(&subject("carol"), operators).await;
    desk.add_email("carol", "carol@b.test").await;
    assert_eq!(desk.contacts("carol").await, serde_json::from_str::<Vec<Value>>(operators).expect("a list"));
    desk.daemon.drain().await;
}

/// Without a token anybody who reaches the port could have mail sent.
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
    daemon.drain().await;
    let desk = Desk::open().await;
    for (path, body) in paths.iter().zip(&bodies) {
        desk.api.with_token("another").post(path, body).await.expect_problem(401, "token");
    }
    let stranger = desk.api.with_token("another").send("DELETE", contact, &[], "").await;
    stranger.expect_problem(401, "token");
    assert!(desk.texts("quota_verify_*").await.is_empty() && desk.contacts("a").await.is_empty());
    desk.daemon.drain().await;
}

/// What can't be a contact is told by its field, and nothing is written.
#[tokio::test]
async fn what_is_no_contact_is_refused_with_its_field() {
    let desk = Desk::open().await;
    let long = format!("https://x.test/{}", "x".repeat(2048));
    for (body, said) in [
        (json!({}), "channel: is missing"),
        (json!({"channel": "sms"}), "\"email\" or \"webhook\""),
        (json!({"channel": "email"}), "address: is missing"),
        (json!({"channel": "email", "address": "nobody"}), "address: \"nobody\" is not an e-mail address"),
        (json!({"channel": "email", "address": "a@b.test\r\nBcc: c@d.test"}), "is not an e-mail address"),
        (json!({"channel": "email", "address": format!("{}@b.test", "x".repeat(250))}), "at most 254"),
        (json!({"channel": "email", "address": "a@[192.0.2.1]"}), "address: \"a@[192.0.2.1]\" can't be written to"),
        (json!({"channel": "email", "address": "\"a b\"@b.test"}), "can't be written to"),
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
        desk.api.post("/v1/subjects/alice/contacts", &body).await.expect_problem(400, said);
    }
    let good = json!({"channel": "email", "address": "a@b.test"});
    desk.api.post("/v1/subjects/%00/contacts", &good).await.expect_problem(400, "control character");
    desk.api.post("/v1/subjects/%ff/contacts", &good).await.expect_problem(400, "the path");
    desk.api
        .post(&format!("/v1/subjects/alice/contacts/{}/verify", "x".repeat(300)), &json!({"code": "1"}))
        .await
        .expect_problem(400, "contact: has more");
    desk.remove("alice", &"x".repeat(300)).await.expect_problem(400, "contact: has more");
    desk.remove("%00", "c").await.expect_problem(400, "control character");
    desk.remove("alice", "%ff").await.expect_problem(400, "the path");
    assert!(desk.texts("quota_verify_*").await.is_empty() && desk.contacts("alice").await.is_empty());

    desk.outbox.set_contacts(&subject("alice"), "{not a list").await;
    desk.api.post("/v1/subjects/alice/contacts", &good).await.expect_problem(409, "can't be read");
    desk.remove("alice", "c_0").await.expect_problem(409, "can't be read");
    let _: () = desk.outbox.run("SET", &[Keys::new("usage").subject(&subject("odd")).as_str(), "not a hash"]).await;
    desk.remove("odd", "c_0").await.expect_problem(409, "can't be read");
    let operators = (0..15).map(|n| json!({"channel": "email", "address": format!("{n}@b.test")}));
    let own = json!({"id": "own", "channel": "email", "address": "own@b.test", "verified": true});
    let many: Vec<Value> = operators.chain([own]).collect();
    desk.outbox.set_contacts(&subject("alice"), &Value::from(many).to_string()).await;
    desk.api.post("/v1/subjects/alice/contacts", &good).await.expect_problem(409, "16 contacts");
    desk.take_away("alice", "own").await;
    desk.add("alice", &good).await;
    assert_eq!(desk.contacts("alice").await.len(), 16);
    desk.daemon.drain().await;
}

/// A mail server that is down for a moment must cost no more than another request.
#[tokio::test]
async fn a_mail_that_could_not_be_sent_can_be_asked_for_again() {
    let mut desk = Desk::open().await;
    desk.mailbox.program(Phase::Rcpt, Reply::Say("451 later"), Times::Once);
    let id = desk.add_email("alice", "alice@b.test").await;
    desk.counted("failed", 1).await;
    assert!(!desk.daemon.has_said("alice@b.test"), "the log names the address");
    desk.let_a_minute_pass().await;
    assert_eq!(desk.resend("alice", &id).await.status, 202);
    let asked = desk.asked().await;
    assert_eq!(desk.show("alice", &id, &asked.code).await.status, 200);
    desk.daemon.drain().await;
}

/// What a request allows is one message: neither the seconds between the message's minute and its request's, nor a row of requests
/// behind a slow mail server, may bring more than are counted.
#[tokio::test]
async fn no_more_messages_leave_than_requests_are_counted() {
    let slow = |setup: DaemonSetup| {
        setup.env("QUOTABELL__VERIFICATION__REQUESTS", "2/1h").env("QUOTABELL__EMAIL__TIMEOUT", "2s")
    };
    let mut desk = Desk::open_with(slow).await;
    desk.add_email("alice", "alice@b.test").await;
    desk.asked().await;
    // The 56th second: the message before has had its time, and the request is still the one of the first add.
    desk.let_pass(&["asked"]).await;
    for times in 1..=3 {
        desk.add_email("alice", "alice@b.test").await;
        desk.counted("throttled", times).await;
    }
    desk.let_a_minute_pass().await;
    desk.add_email("alice", "alice@b.test").await;
    desk.asked().await;

    // Of two that are on their way at once, both of one request, one leaves, whenever the other is judged.
    desk.mailbox.program(Phase::Message, Reply::Hang, Times::Once);
    desk.add_email("bob", "bob@b.test").await;
    eventually("the first is on its way", || async {
        let asked: Vec<String> = desk.outbox.run("KEYS", "quota_verify_asked:*").await;
        (asked.len() == 2).then_some(())
    })
    .await;
    desk.let_pass(&["asked"]).await;
    desk.add_email("bob", "bob@b.test").await;
    desk.counted("throttled", 4).await;
    desk.counted("failed", 1).await;
    desk.nothing_else_was_sent().await;
    desk.daemon.drain().await;
}

/// A mailbox must not be filled by whoever removes and adds it all the time.
#[tokio::test]
async fn adds_that_race_with_removals_bring_no_more_messages_than_are_allowed() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "3/1h")).await;
    let body = json!({"channel": "email", "address": "victim@b.test"});
    let id = Contact::email("victim@b.test").id.to_string();
    for _ in 0..10 {
        let path = "/v1/subjects/alice/contacts";
        let (first, removed, second) =
            tokio::join!(desk.api.post(path, &body), desk.remove("alice", &id), desk.api.post(path, &body));
        assert_eq!(removed.status, 204);
        assert!([first.status, second.status].iter().all(|status| [202, 429].contains(status)));
    }
    desk.add_email("last", "last@b.test").await;
    let mut victims = 0;
    while desk.asked().await.to == "victim@b.test" {
        victims += 1;
    }
    assert!(victims <= 3, "{victims} messages");
    desk.daemon.drain().await;
}

/// A removal that failed halfway, and is tried again, must not leave behind what keeps the next add from being asked.
#[tokio::test]
async fn a_removal_that_failed_and_was_tried_again_keeps_nobody_from_being_asked() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    desk.asked().await;
    let () = desk.outbox.run("ACL", &["SETUSER", "default", "-unlink"]).await;
    assert_eq!(desk.remove("alice", &id).await.status, 503);
    let () = desk.outbox.run("ACL", &["SETUSER", "default", "+unlink"]).await;
    desk.take_away("alice", &id).await;
    desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    assert_eq!(desk.show("alice", &id, &asked.code).await.status, 200);
    desk.daemon.drain().await;
}

/// What a message to a contact that was removed leaves behind, however late, says nothing about the one that was added since.
#[tokio::test]
async fn what_is_left_of_a_removed_contact_holds_up_nobody_and_voids_no_code() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    desk.asked().await;
    let left: Vec<String> = desk.outbox.run("KEYS", "quota_verify_asked:*").await;
    let password: Vec<String> = desk.outbox.run("KEYS", "quota_verify_password:*").await;
    let void: Vec<String> = desk.outbox.run("HGETALL", &password[0]).await;
    desk.take_away("alice", &id).await;
    let () = desk.outbox.run("SET", &[left[0].as_str(), "1", "PX", "55000"]).await;
    desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    let fields: Vec<&str> = std::iter::once(password[0].as_str()).chain(void.iter().map(String::as_str)).collect();
    let _: u64 = desk.outbox.run("HSET", &fields).await;
    assert_eq!(desk.show("alice", &id, &asked.code).await.status, 200);
    desk.daemon.drain().await;
}

/// Contacts that can't be read are for the operator to mend: until then a customer must not lose the link or the code in their hands.
#[tokio::test]
async fn while_contacts_cannot_be_read_no_link_and_no_code_is_used_up() {
    let mut desk = Desk::open().await;
    let wrong = |code: &str| if code == "000000" { "000001" } else { "000000" };
    for (of, broken) in [("alice", Some("{")), ("bob", Some("{}")), ("carol", None)] {
        let id = desk.add_email(of, &format!("{of}@b.test")).await;
        let Asked { code, path, .. } = desk.asked().await;
        let path = path.expect("a link");
        let stored = Value::from(desk.contacts(of).await).to_string();
        let key = Keys::new("usage").subject(&subject(of));
        match broken {
            Some(broken) => desk.outbox.set_contacts(&subject(of), broken).await,
            None => {
                let _: u64 = desk.outbox.run("DEL", &key).await;
                let () = desk.outbox.run("SET", &[key.as_str(), "not a hash"]).await;
            }
        }
        let guesses: Vec<String> = desk.outbox.run("KEYS", "quota_verify_guesses:*").await;
        for shown in [[wrong(&code); 5].as_slice(), &[code.as_str()]].concat() {
            desk.show(of, &id, shown).await.expect_problem(409, "can't be read");
        }
        assert_eq!(desk.press(&path).await.status, 503, "{of}");
        let after: Vec<String> = desk.outbox.run("KEYS", "quota_verify_guesses:*").await;
        assert_eq!(after.len(), guesses.len(), "a guess was counted");
        let _: u64 = desk.outbox.run("DEL", &key).await;
        desk.outbox.set_contacts(&subject(of), &stored).await;
        if of == "alice" {
            assert_eq!(desk.show(of, &id, &code).await.status, 200);
        } else {
            assert_eq!(desk.press(&path).await.status, 200);
            // Whoever has pressed the link may show the code as well.
            assert_eq!(desk.show(of, &id, &code).await.status, 200);
        }
        assert!(desk.is_verified(of, &id).await);
    }
    desk.daemon.drain().await;
}

/// Whoever is told that a message was taken, and gets none since the mail server refused it, must get one by asking again.
#[tokio::test]
async fn a_message_that_has_certainly_not_arrived_is_no_request() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")).await;
    let refusals = [
        (Phase::Mail, Reply::Say("451 later")),
        (Phase::Rcpt, Reply::Say("450 busy")),
        (Phase::Rcpt, Reply::Close),
        (Phase::Data, Reply::Say("451 later")),
    ];
    for (times, (phase, reply)) in (1..).zip(refusals) {
        desk.mailbox.program(phase, reply, Times::Once);
        desk.add_email("alice", "alice@b.test").await;
        desk.counted("failed", times).await;
        desk.forgotten("quota_verify_requests:*").await;
    }
    let id = desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    assert_eq!(desk.show("alice", &id, &asked.code).await.status, 200);
    // That one counts.
    let body = json!({"channel": "email", "address": "alice@b.test"});
    desk.api.post("/v1/subjects/other/contacts", &body).await.expect_problem(429, "too often");

    // The same for a receiver that nobody runs.
    let port = support::redis_server::free_port();
    let hook = json!({"channel": "webhook", "url": format!("http://127.0.0.1:{port}/hook"), "secret": secret(9)});
    for times in 5..=6 {
        desk.add("bob", &hook).await;
        desk.counted("failed", times).await;
        desk.one_address_counts().await;
    }
    // A mailbox that is refused for good counts: nobody may have our mail server try addresses without end.
    desk.mailbox.program(Phase::Rcpt, Reply::Say("550 nobody"), Times::Once);
    desk.add_email("carol", "nobody@b.test").await;
    desk.counted("failed", 7).await;
    let body = json!({"channel": "email", "address": "nobody@b.test"});
    desk.api.post("/v1/subjects/other/contacts", &body).await.expect_problem(429, "too often");
    desk.daemon.drain().await;
}

/// Nobody knows whether it arrived: it may have, so its code is not ended by another, nor is the mailbox filled.
#[tokio::test]
async fn a_message_that_may_have_arrived_counts() {
    let slow = |setup: DaemonSetup| setup.env("QUOTABELL__EMAIL__TIMEOUT", "1s");
    let mut desk = Desk::open_with(slow).await;
    desk.mailbox.program(Phase::Message, Reply::Hang, Times::Once);
    desk.add_email("alice", "alice@b.test").await;
    desk.counted("failed", 1).await;
    desk.add_email("alice", "alice@b.test").await;
    desk.counted("throttled", 1).await;
    // Before the content was sent nothing can have arrived.
    desk.mailbox.program(Phase::Rcpt, Reply::Hang, Times::Once);
    desk.add_email("bob", "bob@b.test").await;
    desk.counted("failed", 2).await;
    desk.one_address_counts().await;
    desk.add_email("bob", "bob@b.test").await;
    // The server may hold the content of the first; what comes last is the second.
    while desk.asked().await.to != "bob@b.test" {}
    desk.daemon.drain().await;
}

/// A slip of the finger, or a space that was copied along, must not cost one of five guesses.
#[tokio::test]
async fn what_is_no_code_costs_no_guess() {
    let mut desk = Desk::open().await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let Asked { code, .. } = desk.asked().await;
    let mut told = BTreeSet::new();
    for bad in ["", " ", "12345", "1234567", "12345a", "123 456", "１２３４５６", "no code at all"] {
        for contact in [&id, "c_0"] {
            let answer = desk.show("alice", contact, bad).await;
            answer.expect_problem(400, "code: must be six digits");
            told.insert(answer.text);
        }
    }
    assert_eq!(told.len(), 1);
    let guesses: Vec<String> = desk.outbox.run("KEYS", "quota_verify_guesses:*").await;
    assert!(guesses.is_empty(), "a guess was counted");
    assert_eq!(desk.show("alice", &id, &format!(" {code}\n")).await.status, 200);
    desk.daemon.drain().await;
}

/// An id that the platform gave means something to its subject alone: another's requests must not use up this one's.
#[tokio::test]
async fn ids_of_the_platforms_own_count_for_each_subject_by_itself() {
    let desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")).await;
    for own in ["main", "c_1", "c_0123456789ABCDEF"] {
        for of in ["alice", "bob"] {
            assert_eq!(desk.resend(of, own).await.status, 202, "{own} of {of}");
        }
    }
    // One that follows from an address is that address, whoever names it.
    let derived = Contact::email("carol@b.test").id;
    assert_eq!(desk.resend("alice", derived.as_str()).await.status, 202);
    desk.resend("bob", derived.as_str()).await.expect_problem(429, "too often");
    desk.daemon.drain().await;
}

/// Who waits as long as they were told must not be told to wait again.
#[tokio::test]
async fn who_waits_for_two_reasons_is_told_the_longer_one() {
    let mut desk = Desk::open_with(|setup| setup.env("QUOTABELL__VERIFICATION__REQUESTS", "1/1h")).await;
    desk.add_email("alice", "gus@b.test").await;
    desk.asked().await;
    let other = json!({"channel": "email", "address": "GUS@b.test"});
    let answer = desk.api.post("/v1/subjects/alice/contacts", &other).await;
    answer.expect_problem(429, "too often");
    let seconds: u64 = answer.header("retry-after").expect("when").parse().expect("seconds");
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    desk.daemon.drain().await;
}

/// Without Redis nothing can be promised: the caller must hear it, and find nothing half done afterwards.
#[tokio::test]
async fn without_redis_it_is_503_and_nothing_is_half_written() {
    let without_link = |setup: DaemonSetup| setup.env("QUOTABELL__HTTP__PUBLIC_URL", "");
    let mut desk = Desk::open_on(RedisServer::start_durable(), without_link).await;
    let id = desk.add_email("alice", "alice@b.test").await;
    let asked = desk.asked().await;
    assert_eq!(asked.path, None, "no public URL, no link");
    assert!(!asked.html.contains("<a "), "{}", asked.html);
    desk.outbox.server.kill();
    let new = json!({"channel": "email", "address": "new@b.test"});
    desk.api.post("/v1/subjects/alice/contacts", &new).await.expect_problem(503, "Redis does not answer");
    desk.resend("alice", &id).await.expect_problem(503, "Redis does not answer");
    desk.show("alice", &id, &asked.code).await.expect_problem(503, "Redis does not answer");
    desk.remove("alice", &id).await.expect_problem(503, "Redis does not answer");
    let page = desk.api.send("POST", "/confirm/any", &[], "").await;
    assert_eq!(page.status, 503);
    assert!(page.text.contains("Try again"), "{}", page.text);
    desk.outbox.server.restart();
    let code = asked.code;
    eventually("the code is good as before", || async {
        (desk.show("alice", &id, &code).await.status == 200).then_some(())
    })
    .await;
    let contacts = desk.contacts("alice").await;
    assert_eq!((contacts.len(), &contacts[0]["address"]), (1, &json!("alice@b.test")), "half of it was written");
    let added = eventually("added", || async {
        let answer = desk.api.post("/v1/subjects/alice/contacts", &new).await;
        (answer.status == 202).then(|| answer.json()["id"].as_str().expect("an id").to_owned())
    })
    .await;
    let asked = desk.asked().await;
    assert_eq!((asked.to.as_str(), desk.show("alice", &added, &asked.code).await.status), ("new@b.test", 200));
    desk.daemon.drain().await;
}

/// The port is open before Redis is reached: what comes then must be told to come again.
#[tokio::test]
async fn before_redis_was_reached_it_is_503_too() {
    let nobody = format!("redis://127.0.0.1:{}", support::redis_server::free_port());
    let mut daemon = DaemonSetup::on(&nobody).env("QUOTABELL__HTTP__TOKEN", TOKEN).spawn();
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let new = json!({"channel": "email", "address": "new@b.test"});
    api.post("/v1/subjects/alice/contacts", &new).await.expect_problem(503, "Redis does not answer");
    api.post("/v1/subjects/alice/contacts/c/verify", &json!({"code": "000000"})).await.expect_problem(503, "Redis");
    assert_eq!(api.send("POST", "/confirm/any", &[], "").await.status, 503);
    api.send("DELETE", "/v1/subjects/alice/contacts/c", &[], "").await.expect_problem(503, "Redis");
}
