//! What we send, judged by the libraries with which others receive it: signatures by `standardwebhooks` and `svix`, CloudEvents by their
//! SDK, each in Python and for Node.

use std::io::Write as _;
use std::process::{Command, Stdio};

use quotabell::channels::sample::SAMPLE_AT;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::channels::{ChannelSettings, Channels, DnsConfig, Sample};
use quotabell::config::Config;
use quotabell::contacts::{Contact, ContactOptions, MessageFormat};
use quotabell::demo::receivers::HttpCatcher;
use quotabell::types::{Class, Secret, Subject};
use serde_json::{Value, json};

use crate::support::webhook_receiver::secret;

/// The folder into which tools/peers.sh fetches.
fn peers() -> String {
    std::env::var(super::PEERS).unwrap_or_else(|_| panic!("{} is not set: run this by make test-peers", super::PEERS))
}

/// What a judge says to each of these messages, in their order.
fn judged(program: &str, script: &str, messages: &[Value]) -> Vec<String> {
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

/// Both judges, by the languages of their libraries.
pub(crate) const JUDGES: [(&str, &str); 2] = [("python3", "messages.py"), ("node", "messages.mjs")];

/// A receiver that uses a library, in whatever language, must not have to turn verification off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_is_what_the_libraries_of_others_expect() {
    let config = Config::defaults().expect("valid");
    let webhook = WebhookConfig { allow_http: true, allow_private_networks: true, ..config.webhook };
    let dns = DnsConfig::default();
    let settings = ChannelSettings::new([&config.email as &dyn std::any::Any, &webhook, &dns]);
    let channels = Channels::new(&settings).expect("legal settings");
    let (mut messages, mut subjects) = (Vec::new(), Vec::new());
    for name in ["alice", "Ngọc & <Sons>", "\"quoted\" \\ \u{2028} \u{1f514}"] {
        let sample = Sample::of(Subject::parse(name.as_bytes()).expect("legal"));
        for format in [MessageFormat::Standard, MessageFormat::CloudEvents, MessageFormat::Slack] {
            let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
            let secrets = format!("{} {}", secret(7), secret(8));
            let options = ContactOptions { secret: Some(Secret::new(secrets)), format, ..ContactOptions::default() };
            let kind = if options.format == MessageFormat::CloudEvents { "cloudevent" } else { "signed" };
            let contact = Contact::webhook_with(&receiver.url("/hook"), options);
            // The libraries compare the time of the signature with their own clock, and so does the channel.
            let outcome = channels.send_test(&contact, &sample, SAMPLE_AT).await;
            assert_eq!(outcome.class, Class::Delivered);
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
