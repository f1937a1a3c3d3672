//! The API of contacts on the real binary, with the mail server for its verifications.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::BTreeSet;

use crate::support::receivers::{SmtpCatcher, SmtpSetup};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use quotabell::types::{DeliveryId, Keys};
use serde_json::{Value, json};

use super::api::{Answer, Caller};
use super::daemon::{Daemon, DaemonSetup};
use super::eventually::{WAIT_MAX, eventually};
use super::mail_server::ParsedMail;
use super::outbox::{Outbox, subject};
use super::redis_server::RedisServer;

/// The token of the daemon.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A code other than this one.
pub fn wrong(code: &str) -> &'static str {
    if code == "000000" { "000001" } else { "000000" }
}

/// A daemon with its Redis and a mail server, and a client with the token.
pub struct ContactsApi {
    pub outbox: Outbox,
    pub mailbox: SmtpCatcher,
    pub daemon: Daemon,
    pub caller: Caller,
}

/// An email that asks for a confirmation.
#[derive(Debug)]
pub struct VerificationMail {
    pub to: String,
    pub code: String,
    /// Path of the confirm link.
    pub path: Option<String>,
    pub text: String,
    pub html: String,
}

impl ContactsApi {
    pub async fn start() -> Self {
        Self::start_with(|setup| setup).await
    }

    pub async fn start_with(change: impl FnOnce(DaemonSetup) -> DaemonSetup) -> Self {
        Self::start_on(RedisServer::start(), change).await
    }

    pub async fn start_on(server: RedisServer, change: impl FnOnce(DaemonSetup) -> DaemonSetup) -> Self {
        let outbox = Outbox::on(server);
        let mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
        Self::start_daemon(outbox, mailbox, change).await
    }

    /// Kills the daemon and starts another one with changed settings on the same Redis and mail server.
    pub async fn restart_after_kill(self, change: impl FnOnce(DaemonSetup) -> DaemonSetup) -> Self {
        self.daemon.kill().await;
        Self::start_daemon(self.outbox, self.mailbox, change).await
    }

    async fn start_daemon(
        outbox: Outbox,
        mailbox: SmtpCatcher,
        change: impl FnOnce(DaemonSetup) -> DaemonSetup,
    ) -> Self {
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#)
            .env("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url())
            .env("QUOTABELL__HTTP__TOKEN", TOKEN)
            .env("QUOTABELL__HTTP__PUBLIC_URL", "https://quota.example.com/base/");
        let mut daemon = change(setup).start().await;
        let caller = Caller::of(&mut daemon).await.with_token(TOKEN);
        Self { outbox, mailbox, daemon, caller }
    }

    /// Adds a contact and returns its id.
    pub async fn add(&self, of: &str, contact: &Value) -> String {
        let answer = self.try_add(of, contact).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        assert_eq!(answer.json()["verified"], false);
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    pub async fn add_email(&self, of: &str, address: &str) -> String {
        self.add(of, &json!({"channel": "email", "address": address})).await
    }

    pub async fn submit_code(&self, of: &str, contact: &str, code: &str) -> Answer {
        self.caller.post(&format!("/v1/subjects/{of}/contacts/{contact}/verify"), &json!({"code": code})).await
    }

    pub async fn request_verification(&self, of: &str, contact: &str) -> Answer {
        self.caller.send("POST", &format!("/v1/subjects/{of}/contacts/{contact}/verification"), &[], "").await
    }

    /// The contacts as the API lists them.
    pub async fn list(&self, of: &str) -> Vec<Value> {
        let answer = self.caller.get(&format!("/v1/subjects/{of}/contacts")).await;
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{}", answer.text);
        answer.json()["contacts"].as_array().expect("a list").clone()
    }

    /// Adds a contact and returns the response.
    pub async fn try_add(&self, of: &str, contact: &Value) -> Answer {
        self.caller.post(&format!("/v1/subjects/{of}/contacts"), contact).await
    }

    pub async fn remove(&self, of: &str, contact: &str) -> Answer {
        self.caller.send("DELETE", &format!("/v1/subjects/{of}/contacts/{contact}"), &[], "").await
    }

    /// Removes a contact; it must succeed.
    pub async fn remove_existing(&self, of: &str, contact: &str) {
        let answer = self.remove(of, contact).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    }

    /// The next email, which must ask for a confirmation.
    pub async fn next_verification(&mut self) -> VerificationMail {
        let mail = tokio::time::timeout(WAIT_MAX, self.mailbox.next()).await.expect("a mail in time");
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
        VerificationMail { to: mail.to[0].clone(), code, path, text, html: parsed.parts[1].content.clone() }
    }

    /// The next email, which must be an alert.
    pub async fn next_alert(&mut self) -> String {
        let mail = tokio::time::timeout(WAIT_MAX, self.mailbox.next()).await.expect("a mail in time");
        let parsed = ParsedMail::parse(&mail.text());
        assert_eq!(parsed.count("X-Quotabell-Alert"), 1, "{}", parsed.header("Subject"));
        mail.to[0].clone()
    }

    pub async fn use_units(&self, of: &str, units: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", of, "units", &units.to_string()]).await;
    }

    pub async fn contacts(&self, of: &str) -> Vec<Value> {
        let key = Keys::new("usage").subject(&subject(of));
        let stored: Option<String> = self.outbox.run("HGET", &[key.as_str(), "contacts"]).await;
        serde_json::from_str(&stored.unwrap_or_else(|| "[]".to_owned())).expect("a list")
    }

    pub async fn is_verified(&self, of: &str, contact: &str) -> bool {
        let contacts = self.contacts(of).await;
        let contact = contacts.iter().find(|one| one["id"] == contact).expect("it is there");
        contact["verified"] == true
    }

    /// Waits until a counter of `/metrics` has this value.
    pub async fn counted(&self, outcome: &str, times: u64) {
        let line = format!("quotabell_verifications_total{{outcome=\"{outcome}\"}} {times}");
        eventually(&line, || async { self.caller.get("/metrics").await.text.contains(&line).then_some(()) }).await;
    }

    /// Makes every pending delivery due, as if time had passed.
    pub async fn make_all_due(&self) {
        for id in self.outbox.queued().await {
            self.outbox.let_time_pass(&DeliveryId::from_stored(&id)).await;
        }
    }

    /// Waits until this number of deliveries has ended in this state.
    pub async fn ended(&self, state: &str, times: u64) {
        let totals = self.outbox.keys.totals();
        let count = || async {
            let count: Option<u64> = self.outbox.run("HGET", &[totals.as_str(), state]).await;
            count.unwrap_or_default()
        };
        eventually(state, || async { (count().await == times).then_some(()) }).await;
    }

    /// Stops or continues Redis, like a machine that is short of memory.
    pub fn signal_redis(&self, signal: Signal) {
        let server = Pid::from_raw(i32::try_from(self.outbox.server.pid()).expect("a process id"));
        nix::sys::signal::kill(server, signal).expect("it runs");
    }

    pub async fn press_link(&self, path: &str) -> Answer {
        self.caller.send("POST", path, &[], "").await
    }

    /// Adds another contact and waits for its email. Earlier requests have been sent by then, so this proves that
    /// nothing else was sent.
    pub async fn nothing_else_was_sent(&mut self) {
        self.add_email("last", "last@b.test").await;
        assert_eq!(self.next_verification().await.to, "last@b.test", "another message left");
    }

    /// The values of all keys with this pattern, as text.
    pub async fn texts(&self, pattern: &str) -> Vec<String> {
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
