//! `listen`: the real binary receives what a real daemon sends, and prints it.

use std::process::Stdio;

use crate::support::binary::quotabell;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::WAIT_MAX;
use crate::support::redis_server::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// `quotabell listen` on free ports. Killed on drop.
struct Listener {
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
    said: Lines<BufReader<ChildStderr>>,
    smtp_url: String,
    http_url: String,
}

impl Listener {
    async fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quotabell"));
        command.args(["listen", "--smtp", "0", "--http", "0"]).args(options).env_clear().kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let printed = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let said = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let mut listener = Self { child, printed, said, smtp_url: String::new(), http_url: String::new() };
        listener.smtp_url = listener.said_after("mails: ").await;
        listener.http_url = listener.said_after("webhooks: ").await;
        listener
    }

    async fn said_after(&mut self, beginning: &str) -> String {
        let line = timeout(WAIT_MAX, self.said.next_line()).await.expect("said in time");
        let line = line.expect("readable").expect("it runs");
        line.strip_prefix(beginning).unwrap_or_else(|| panic!("{line:?}")).to_owned()
    }

    async fn printed_line(&mut self) -> String {
        let line = timeout(WAIT_MAX, self.printed.next_line()).await.expect("printed in time");
        line.expect("readable").expect("it runs")
    }

    async fn printed_json(&mut self) -> Value {
        serde_json::from_str(&self.printed_line().await).expect("JSON")
    }

    /// Ends it as Ctrl-C does.
    async fn interrupt(mut self) {
        let id = self.child.id().expect("it runs");
        kill(Pid::from_raw(i32::try_from(id).expect("a process id")), Signal::SIGINT).expect("it runs");
        let status = timeout(WAIT_MAX, self.child.wait()).await.expect("it ends in time").expect("it ended");
        assert_eq!(status.code(), Some(0));
    }
}

/// The quick start promises that the first alert is visible: by email and by webhook, with a verified signature.
#[tokio::test]
async fn the_alerts_of_a_daemon_are_received_and_printed() {
    let redis = RedisServer::start();
    let mut listener = Listener::start(&["--json", "--secret", SECRET]).await;
    let _daemon = DaemonSetup::on(&redis.url()).env("QUOTABELL__EMAIL__SMTP_URL", &listener.smtp_url).start().await;
    let hook = format!("{}hook", listener.http_url);
    let contacts = ["--email", "a@b.test", "--webhook", &hook, "--webhook-secret", SECRET];
    quotabell([&["subject", "set", "alice"][..], &contacts].concat()).redis(&redis.url()).run().expect_done();
    let event = ["emit", "--subject", "alice", "--units", "4000"];
    quotabell(event).redis(&redis.url()).run().expect_done();

    let mut received = [listener.printed_json().await, listener.printed_json().await];
    received.sort_by_key(|message| message["channel"].to_string());
    let [mail, webhook] = received;
    assert_eq!((&mail["channel"], &mail["to"]), (&json!("email"), &json!(["a@b.test"])));
    assert!(mail["subject_line"].as_str().is_some_and(|line| line.contains("alice")), "{mail}");
    assert!(mail["text"].as_str().is_some_and(|text| text.contains("4,000 of 5,000")), "{mail}");
    assert_eq!((&webhook["method"], &webhook["path"]), (&json!("POST"), &json!("/hook")));
    assert_eq!((&webhook["signature"], &webhook["status"]), (&json!("verified"), &json!(200)));
    assert_eq!(webhook["body"]["data"]["used"], 4000);
    listener.interrupt().await;
}

async fn post(url: &str, body: &str) -> (u16, String) {
    // A second test in this process finds the provider installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().timeout(WAIT_MAX).build().expect("a client");
    // Without a signature, at a valid time.
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let request = client.post(url).header("webhook-id", "a").header("webhook-timestamp", now_s);
    let request = request.header("webhook-signature", "v1,AAAA");
    let response = request.body(body.to_owned()).send().await.expect("it answers");
    (response.status().as_u16(), response.text().await.expect("a body"))
}

/// A contact added through the API becomes verified only when its challenge is echoed.
#[tokio::test]
async fn a_challenge_is_echoed_and_anything_else_is_accepted() {
    let mut listener = Listener::start(&[]).await;
    assert!(listener.said_after("signatures are not checked").await.contains("--secret"));
    let challenge = r#"{"type":"contact.verification","data":{"subject":"alice","challenge":"abc"}}"#;
    let (status, echo) = post(&listener.http_url, challenge).await;
    assert_eq!((status, serde_json::from_str(&echo).ok()), (200, Some(json!({"challenge": "abc"}))));
    assert_eq!(post(&listener.http_url, "no \u{1b}[2J JSON").await, (200, String::new()));
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains("no \\")) {
        lines.push(listener.printed_line().await);
    }
    assert!(lines[0].starts_with("--- webhook, "), "{lines:?}");
    assert!(lines.contains(&"signature   not checked, because no secret is known".to_owned()), "{lines:?}");
    assert!(lines.contains(&format!("  {challenge}")), "{lines:?}");
    listener.interrupt().await;
}

/// A failing receiver lets people try retries; a signature with another secret must not look valid.
#[tokio::test]
async fn the_status_is_the_one_that_was_named_and_a_bad_signature_is_told() {
    let mut listener = Listener::start(&["--status", "500", "--secret", SECRET]).await;
    assert_eq!(post(&listener.http_url, "{}").await, (500, String::new()));
    let mut line = String::new();
    while !line.starts_with("signature") {
        line = listener.printed_line().await;
    }
    assert!(line == "signature   NOT VERIFIED: no secret known here fits; --secret names one", "{line}");
}

/// A port in use and an invalid secret must be reported; the secret must not be shown.
#[tokio::test]
async fn what_keeps_it_from_listening_is_told() {
    let listener = Listener::start(&[]).await;
    let port = listener.http_url.trim_end_matches('/').rsplit(':').next().expect("a port").to_owned();
    let taken = quotabell(["listen", "--smtp", "0", "--http", &port]).run();
    assert_eq!(taken.code, 1);
    assert!(taken.stderr.contains(&format!("listen for webhooks on 127.0.0.1:{port}")), "{}", taken.stderr);
    assert!(taken.stderr.ends_with("hint: --http names another port\n"), "{}", taken.stderr);
    let mistyped = quotabell(["listen", "--secret", "hunter2"]).run();
    assert!(mistyped.code == 2 && !mistyped.told().contains("hunter2"), "{}", mistyped.told());
}
