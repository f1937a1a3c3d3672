//! Alert emails through other people's mail servers with STARTTLS and a password: `aiosmtpd` and Postfix, each a
//! separate process that tools/peers.sh has unpacked. Python's `email` parses the accepted messages in the mailbox, and
//! `dkimpy` verifies them.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use quotabell::channels::email::templates::Templates;
use quotabell::channels::email::{DkimSettings, EmailConfig};
use quotabell::channels::sample::SAMPLE_AT;
use quotabell::channels::{AlertPurpose, ChannelSettings, Channels, Content, DnsConfig, Labels, Message, Sample};
use quotabell::config::Config;
use quotabell::contacts::Contact;
use quotabell::types::{DeliveryId, Locale, Outcome, OutcomeClass, Percent, Subject};
use serde_json::{Value, json};

use super::messages::{JUDGES, dkim_key, judged, peers};
use crate::support::certificates::Certificates;
use crate::support::eventually::eventually;
use crate::support::redis_server::free_port;

/// The password of the user `alerts`, in its URL form.
const PASSWORD: &str = "p%3Aa%2Fs%25s%20word";
const UNSUBSCRIBE_URL: &str = "https://quota.example.com/unsubscribe/YWxpY2U.bWFpbg.c2lnbmF0dXJl";

/// A foreign mail server.
#[derive(Debug, Clone, Copy)]
enum Program {
    Aiosmtpd,
    Postfix,
}

/// A running mail server. It ends when its stdin is closed.
struct MailServer {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl MailServer {
    async fn start(program: Program, certificates: &Certificates) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        let mut command = match program {
            Program::Aiosmtpd => Command::new("python3"),
            Program::Postfix => Command::new("bash"),
        };
        match program {
            Program::Aiosmtpd => {
                command.arg(scripts.join("mail_server.py")).env("PYTHONPATH", format!("{}/mail-server", peers()))
            }
            Program::Postfix => command.arg(scripts.join("postfix.sh")).arg(format!("{}/debian", peers())),
        };
        let [certificate, key] = certificates.server_files();
        command.arg(folder.path()).arg(port.to_string()).arg(certificate).arg(key);
        let child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let server = Self { child, folder, port };
        eventually("the mail server answers", || async {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
            let mut greeting = [0; 3];
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut greeting).await.ok()?;
            (&greeting == b"220").then_some(())
        })
        .await;
        server
    }

    fn url(&self, password: &str) -> String {
        format!("smtp://alerts:{password}@localhost:{}?tls=required", self.port)
    }

    /// The emails in the mailbox.
    fn mails(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path().join("mail/new")).into_iter().flatten();
        let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(file.expect("a file").path());
        files.map(|file| read(file).expect("a mail is ASCII")).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The channels with this email configuration.
fn channels(email: &EmailConfig) -> Channels {
    let webhook = Config::defaults().expect("valid").webhook;
    let dns = DnsConfig::default();
    Channels::new(ChannelSettings { email, webhook: &webhook, dns: &dns }).expect("legal settings")
}

/// Sends a sample alert about this subject in this language, and returns the expected content of the email.
async fn send(channels: &Channels, name: &str, locale: &str) -> (Outcome, Value) {
    let locale: Locale = locale.parse().expect("a tag");
    let contact = Contact { locale: Some(locale.clone()), ..Contact::email("bob@example.com") };
    let subject = Subject::parse(name.as_bytes()).expect("legal");
    let alert = Sample::for_subject(subject).alert(Percent::new(80).expect("legal"), SAMPLE_AT);
    let delivery = DeliveryId::of_notification(alert.id.as_str(), &contact.id);
    let content = Content::Alert(&alert, AlertPurpose::Alert);
    let message = Message {
        delivery: &delivery,
        contact: &contact,
        content,
        labels: &Labels::default(),
        unsubscribe: Some(UNSUBSCRIBE_URL),
        more_follows: false,
        now: SAMPLE_AT,
    };
    let outcome = channels.send(message).await;
    let said = Templates::embedded()
        .render(Content::Alert(&alert, AlertPurpose::Alert), &Labels::default(), SAMPLE_AT, Some(&locale))
        .expect("renders");
    let id = format!("<{}@example.com>", delivery.as_str());
    (outcome, json!({"subject": said.subject_line, "text": said.text, "html": said.html, "id": id}))
}

/// An email that arrives garbled, unsigned or not at all is a lost alert; and a wrong password must be reported.
async fn alerts_arrive_through(program: Program) {
    let (folder, public) = dkim_key();
    let certificates = Certificates::new();
    let server = MailServer::start(program, &certificates).await;
    let dkim = DkimSettings {
        domain: "example.com".to_owned(),
        selector: "q1".to_owned(),
        key_file: folder.path().join("dkim.pem"),
    };
    let email = EmailConfig {
        smtp_url: server.url(PASSWORD).into(),
        from: "Cảnh báo <alerts@example.com>".to_owned(),
        ca_file: Some(certificates.authority_file()),
        dkim: Some(dkim),
        ..Config::defaults().expect("valid").email
    };

    let failed = async |email: EmailConfig| {
        let (outcome, _) = send(&channels(&email), "alice", "en").await;
        (outcome.class, outcome.error.unwrap_or_default())
    };
    let (class, error) = failed(EmailConfig { smtp_url: server.url("old").into(), ..email.clone() }).await;
    assert!(class == OutcomeClass::Transient && error.starts_with("SMTP 535 5.7.8 to AUTH"), "{program:?}: {error}");
    let untrusted = failed(EmailConfig { ca_file: None, ..email.clone() }).await;
    assert_eq!(untrusted, (OutcomeClass::Transient, "TLS: certificate not trusted".to_owned()), "{program:?}");
    assert!(server.mails().is_empty());

    let channels = channels(&email);
    let mut expected = Vec::new();
    for (name, locale) in [("alice", "en"), ("alice & Söhne", "vi-VN"), ("Ngọc & <Sons> \u{1f514}", "vi")] {
        let (outcome, said) = send(&channels, name, locale).await;
        assert_eq!((outcome.class, outcome.error), (OutcomeClass::Delivered, None), "{program:?}");
        expected.push(said);
    }
    channels.close().await;
    let mails = eventually("all mails have arrived", || async {
        Some(server.mails()).filter(|mails| mails.len() == expected.len())
    })
    .await;
    let (python, script) = JUDGES[0];
    let name = "q1._domainkey.example.com.";
    let of_kind = |kind: &str| -> Vec<Value> {
        let message = |mail| json!({"kind": kind, "mail": mail, "name": name, "key": public});
        mails.iter().map(message).collect()
    };
    for said in judged(python, script, &of_kind("dkim")) {
        assert!(said.starts_with("ok"), "{program:?}: {said}");
    }
    let mut read: Vec<Value> = Vec::new();
    for said in judged(python, script, &of_kind("mail")) {
        let mail: Value = serde_json::from_str(said.strip_prefix("ok ").expect(&said)).expect("JSON");
        let headers = &mail["headers"];
        assert_eq!(mail["defects"], json!([]), "{program:?}");
        assert_eq!(headers["list-unsubscribe"], format!("<{UNSUBSCRIBE_URL}>"));
        assert_eq!((&headers["from"], &headers["to"]), (&json!(email.from), &json!("bob@example.com")));
        let text = |part: &str| mail[part].as_str().expect("text").trim_end().replace("\r\n", "\n");
        read.push(json!({
            "subject": headers["subject"], "text": text("text"), "html": text("html"), "id": headers["message-id"],
        }));
    }
    for said in &expected {
        assert!(read.contains(said), "{program:?}: {said:#} is not in {read:#?}");
    }
}

/// The mail server with which most Python programs are tested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_arrive_through_aiosmtpd() {
    alerts_arrive_through(Program::Aiosmtpd).await;
}

/// The mail server of most hosts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_arrive_through_postfix() {
    alerts_arrive_through(Program::Postfix).await;
}
