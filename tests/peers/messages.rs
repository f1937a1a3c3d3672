//! Verifies our messages with the libraries of receivers: signatures with `standardwebhooks` and `svix`, CloudEvents
//! with their SDK, each in Python and for Node, and the signatures of emails with `dkimpy`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::receivers::{HttpCatcher, SmtpCatcher, SmtpSetup};
use base64::Engine as _;
use quotabell::channels::email::{DkimSettings, EmailConfig, Mail, Mailer};
use quotabell::channels::sample::SAMPLE_AT;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::channels::{ChannelSettings, Channels, DnsConfig, Labels, Sample, TestKind};
use quotabell::config::Config;
use quotabell::contacts::{Contact, ContactOptions, MessageFormat};
use quotabell::types::{OutcomeClass, Secret, Subject};
use serde_json::{Value, json};

use crate::support::webhook_receiver::secret;

/// The folder of packages that tools/peers.sh fetches.
pub(crate) fn peers() -> String {
    std::env::var(super::PEERS).unwrap_or_else(|_| panic!("{} is not set: run this by make test-peers", super::PEERS))
}

/// The verdict of a verifier on each of these messages, in order.
pub(crate) fn judged(program: &str, script: &str, messages: &[Value]) -> Vec<String> {
    let script = format!("{}/tests/peers/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new(program)
        .arg(script)
        .env("PYTHONPATH", format!("{}/messages/python", peers()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} starts: {error}"));
    let mut stdin = child.stdin.take().expect("it is piped");
    for message in messages {
        writeln!(stdin, "{message}").expect("the judge reads");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    assert_eq!(said.len(), messages.len(), "{program} {said:?}");
    said
}

/// Both verifiers, by language.
pub(crate) const JUDGES: [(&str, &str); 2] = [("python3", "messages.py"), ("node", "messages.mjs")];

/// A receiver that uses a library must not have to turn verification off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_is_what_the_libraries_of_others_expect() {
    let config = Config::defaults().expect("valid");
    let webhook = WebhookConfig { allow_http: true, allow_private_networks: true, ..config.webhook };
    let dns = DnsConfig::default();
    let settings = ChannelSettings { email: &config.email, webhook: &webhook, dns: &dns };
    let channels = Channels::new(settings).expect("legal settings");
    let (mut messages, mut subjects) = (Vec::new(), Vec::new());
    for name in ["alice", "Ngọc & <Sons>", "\"quoted\" \\ \u{2028} \u{1f514}"] {
        let sample = Sample::for_subject(Subject::parse(name.as_bytes()).expect("legal"));
        for format in [MessageFormat::Standard, MessageFormat::CloudEvents, MessageFormat::Slack] {
            let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
            let secrets = format!("{} {}", secret(7), secret(8));
            let options = ContactOptions { secret: Some(Secret::new(secrets)), format, ..ContactOptions::default() };
            let kind = if options.format == MessageFormat::CloudEvents { "cloudevent" } else { "signed" };
            let contact = Contact::webhook_with(&receiver.url("/hook"), options);
            // The libraries compare the time of the signature with their own clock, as the channel does.
            let outcome = channels.send_test(&contact, TestKind::Alert, (&sample, &Labels::default()), SAMPLE_AT).await;
            assert_eq!(outcome.class, OutcomeClass::Delivered);
            let caught = receiver.next().await;
            let headers: Value = caught
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), json!(value.to_str().expect("text"))))
                .collect::<serde_json::Map<_, _>>()
                .into();
            let body = String::from_utf8(caught.body.to_vec()).expect("UTF-8");
            messages.push(json!({"kind": kind, "headers": headers, "body": body, "secret": secret(8)}));
            subjects.push(name);
        }
    }
    for (program, script) in JUDGES {
        for ((said, message), subject) in judged(program, script, &messages).iter().zip(&messages).zip(&subjects) {
            let rest = said.strip_prefix("ok ").unwrap_or_else(|| panic!("{program}: {said} of {message}"));
            if message["kind"] == "cloudevent" {
                let event: Value = serde_json::from_str(rest).expect("JSON");
                assert_eq!(
                    (&event["specversion"], &event["source"]),
                    (&json!("1.0"), &json!("/quotabell")),
                    "{program}"
                );
                assert_eq!((&event["type"], &event["data"]["subject"]), (&json!("quota.test"), &json!(subject)));
            }
        }
    }
}

/// A folder with a new key in `dkim.pem`, and its public half in DNS form.
pub(crate) fn dkim_key() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(&folder).output();
        let output = output.expect("openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    openssl(&["genrsa", "-out", "dkim.pem", "2048"]);
    let public = openssl(&["rsa", "-in", "dkim.pem", "-pubout", "-outform", "DER"]);
    (folder, base64::engine::general_purpose::STANDARD.encode(public))
}

/// Providers treat an email that they can't verify as spam.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_mails_are_verified_by_dkimpy() {
    let (folder, public) = dkim_key();
    let key_file = folder.path().join("dkim.pem");
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let dkim = DkimSettings { domain: "example.com".to_owned(), selector: "q1".to_owned(), key_file };
    let defaults = Config::defaults().expect("valid").email;
    let config = EmailConfig {
        smtp_url: server.url().into(),
        from: "Ngọc <alerts@example.com>".to_owned(),
        dkim: Some(dkim),
        ..defaults
    };
    let mailer = Mailer::new(&config, &DnsConfig::default()).expect("a mailer");
    let long = format!("https://quota.example.com/unsubscribe/{}", "x".repeat(700));
    let mut messages = Vec::new();
    for subject_line in ["alice: 80.0% used", &"ü\"<&> ".repeat(60), "  two  spaces\tand a tab "] {
        for unsubscribe in [None, Some(long.as_str())] {
            let text = ". dots\r\n..\r\ntrailing  \t \r\n\r\n\r\n";
            let mail = Mail {
                thread_ids: &[],
                to: "bob@example.com",
                message_id: "delivery_1",
                alert_id: Some("alert_1"),
                unsubscribe,
                subject_line,
                text,
                html: "<p>é</p>\n\n",
                now_s: SAMPLE_AT.0 / 1000,
            };
            assert_eq!(mailer.send(mail).await.class, OutcomeClass::Delivered);
            let caught = server.next().await.text();
            messages.push(json!({"kind": "dkim", "mail": caught, "name": "q1._domainkey.example.com.", "key": public}));
        }
    }
    let (program, script) = JUDGES[0];
    for (said, message) in judged(program, script, &messages).iter().zip(&messages) {
        assert!(said.starts_with("ok"), "{said}\n{}", message["mail"].as_str().unwrap_or_default());
    }
}
