//! Email on a real SMTP server: what arrives, and the class of every outcome.

use std::time::{Duration, Instant};

use crate::support::certificates::Certificates;
use crate::support::eventually::WAIT_MAX;
use crate::support::mail_server::ParsedMail;
use crate::support::receivers::{Phase, Reply, Security, SmtpCatcher, SmtpSetup, Times, User};
use crate::support::redis_server::free_port;
use crate::support::scripted_server::{ScriptedServer, Step};
use quotabell::channels::DnsConfig;
use quotabell::channels::email::{DkimSettings, EmailConfig, Mail, Mailer};
use quotabell::types::{DisableReason, Locale, Outcome, OutcomeClass};

/// Short, so that a hanging server costs little; long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(400);

pub(super) const MAIL: Mail<'static> = Mail {
    thread_ids: &[],
    to: "bob@example.com",
    message_id: "delivery_0123",
    alert_id: Some("alert_0123"),
    unsubscribe: None,
    subject_line: "alice: 80.0% used",
    text: "hello\n.\n..two\nbye\n",
    html: "<p>hello</p>\n",
    now_s: 1_795_250_000,
};

pub(super) fn config(url: &str) -> EmailConfig {
    EmailConfig {
        smtp_url: url.into(),
        smtp_url_file: None,
        from: "quotabell <alerts@example.com>".to_owned(),
        helo_name: None,
        unknown_mailbox_after: Duration::from_secs(86_400),
        timeout: Duration::from_secs(20),
        locale: Locale::english(),
        templates: None,
        ca_file: None,
        dkim: None,
        per_minute: None,
    }
}

pub(super) fn mailer(url: &str) -> Mailer {
    Mailer::new(&config(url), &DnsConfig::default()).expect("a mailer")
}

async fn server() -> SmtpCatcher {
    SmtpCatcher::start(SmtpSetup::default()).await.expect("a server")
}

pub(super) fn error(outcome: &Outcome) -> &str {
    outcome.error.as_deref().unwrap_or_default()
}

/// One reply in one phase, and the resulting outcome.
async fn refused(phase: Phase, line: &'static str) -> Outcome {
    let server = server().await;
    server.program(phase, Reply::Say(line), Times::Once);
    mailer(&server.url()).send(MAIL).await
}

/// The received email must equal the written one: both parts, every dot, and headers that mail software understands.
#[tokio::test]
async fn a_mail_arrives_whole() {
    let mut server = server().await;
    let outcome = mailer(&server.url()).send(MAIL).await;
    assert_eq!((outcome.class, outcome.status, outcome.error), (OutcomeClass::Delivered, Some(250), None));

    let caught = server.next().await;
    assert_eq!(
        (caught.from.as_str(), caught.to.as_slice()),
        ("alerts@example.com", ["bob@example.com".to_owned()].as_slice())
    );
    let mail = ParsedMail::parse(&caught.text());
    assert_eq!(mail.header("From"), "quotabell <alerts@example.com>");
    assert_eq!(mail.header("To"), "bob@example.com");
    assert_eq!(mail.header("Subject"), "alice: 80.0% used");
    assert_eq!(mail.header("Date"), "Sat, 21 Nov 2026 08:33:20 +0000");
    assert_eq!(mail.header("Message-ID"), "<delivery_0123@example.com>");
    assert_eq!(mail.header("Auto-Submitted"), "auto-generated");
    assert_eq!(mail.header("X-Quotabell-Alert"), "alert_0123");
    assert_eq!(mail.header("MIME-Version"), "1.0");
    assert!(mail.header("Content-Type").starts_with("multipart/alternative"));
    // Mail software prefers the last part.
    let kinds: Vec<&str> = mail.parts.iter().map(|part| part.content_type.as_str()).collect();
    assert_eq!(kinds, ["text/plain; charset=utf-8", "text/html; charset=utf-8"]);
    assert_eq!(mail.parts[0].content.trim_end(), MAIL.text.trim_end());
    assert_eq!(mail.parts[1].content.trim_end(), MAIL.html.trim_end());
}

/// A retry may arrive beside the first attempt: with the same Message-ID mail software shows one email.
#[tokio::test]
async fn every_attempt_has_the_same_message_id() {
    let mut server = server().await;
    server.program(Phase::Message, Reply::Say("451 4.3.0 later"), Times::Once);
    let mailer = mailer(&server.url());
    assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Transient);
    assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Delivered);
    assert_eq!(ParsedMail::parse(&server.next().await.text()).header("Message-ID"), "<delivery_0123@example.com>");
}

/// Strangers choose subjects: a line break must forge no header, and non-ASCII letters must arrive unchanged.
#[tokio::test]
async fn odd_subject_lines_and_names_arrive_unharmed() {
    let mut server = server().await;
    let from = "Ünïcode\r\nBcc: eve@example.com <alerts@bücher.example>".to_owned();
    let mailer = Mailer::new(&EmailConfig { from, ..config(&server.url()) }, &DnsConfig::default()).expect("a mailer");
    let subject_line = "ålice\r\nBcc: eve@example.com\r\n\r\nbody 🦀 with a name that goes on for longer than one encoded word can hold";
    let text = "größe ±20 %\n";
    let outcome = mailer.send(Mail { subject_line, text, ..MAIL }).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered, "{outcome:?}");
    let caught = server.next().await;
    assert!(caught.raw.is_ascii(), "a server without 8BITMIME must be able to pass it on");
    assert_eq!((caught.from.as_str(), caught.to.len()), ("alerts@xn--bcher-kva.example", 1));
    let mail = ParsedMail::parse(&caught.text());
    assert_eq!(mail.count("Bcc"), 0);
    assert_eq!(mail.header("Subject"), subject_line.replace("\r\n\r\n", " ").replace("\r\n", " "));
    assert_eq!(mail.parts[0].content.trim_end(), text.trim_end());
    assert_eq!(mail.header("Message-ID"), "<delivery_0123@xn--bcher-kva.example>");
}

/// RFC 6531: an address beyond ASCII goes only to a server that announces support; another server may add it later.
#[tokio::test]
async fn addresses_beyond_ascii_need_smtputf8() {
    let to_jorg = Mail { to: "jörg@example.com", ..MAIL };
    let plain = server().await;
    let outcome = mailer(&plain.url()).send(to_jorg).await;
    assert_eq!((outcome.class, outcome.status), (OutcomeClass::Transient, None));
    assert!(error(&outcome).contains("SMTPUTF8"), "{outcome:?}");

    let setup = SmtpSetup { extensions: vec!["SMTPUTF8"], ..SmtpSetup::default() };
    let mut able = SmtpCatcher::start(setup).await.expect("a server");
    assert_eq!(mailer(&able.url()).send(to_jorg).await.class, OutcomeClass::Delivered);
    assert_eq!(able.next().await.to, ["jörg@example.com"]);

    // A domain always has an ASCII form, which every server accepts.
    let mut plain = server().await;
    let outcome = mailer(&plain.url()).send(Mail { to: "bob@bücher.example", ..MAIL }).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered);
    assert_eq!(plain.next().await.to, ["bob@xn--bcher-kva.example"]);
}

/// The outcome table: a 5xx about this email is permanent; one about our login or the server's state is not.
#[tokio::test]
async fn refusals_are_judged_by_the_phase_they_answer() {
    for (phase, line, class, text) in [
        (Phase::Greeting, "554 5.3.2 no service", OutcomeClass::Transient, "SMTP 554 5.3.2 to connection"),
        (Phase::Greeting, "421 4.3.2 too busy", OutcomeClass::Transient, "SMTP 421 4.3.2 to connection"),
        (Phase::Ehlo, "550 5.7.1 who are you", OutcomeClass::Transient, "SMTP 550 5.7.1 to connection"),
        (Phase::Mail, "550 5.1.8 no such sender", OutcomeClass::Rejected, "SMTP 550 5.1.8 to MAIL"),
        (Phase::Mail, "451 4.3.0 later", OutcomeClass::Transient, "SMTP 451 4.3.0 to MAIL"),
        (Phase::Mail, "530 5.7.0 authenticate first", OutcomeClass::Transient, "SMTP 530 5.7.0 to MAIL"),
        (Phase::Rcpt, "550 5.7.1 policy", OutcomeClass::Rejected, "SMTP 550 5.7.1 to RCPT"),
        (Phase::Rcpt, "504 5.5.2 <localhost>: Helo command rejected", OutcomeClass::Rejected, "SMTP 504 5.5.2 to RCPT"),
        (Phase::Rcpt, "554 5.7.1 Relay access denied", OutcomeClass::Rejected, "SMTP 554 5.7.1 to RCPT"),
        (Phase::Rcpt, "554 nonsense", OutcomeClass::Rejected, "SMTP 554 to RCPT"),
        (Phase::Rcpt, "552 5.2.2 full", OutcomeClass::Transient, "SMTP 552 5.2.2 to RCPT"),
        (Phase::Mail, "550 5.4.5 Daily sending quota exceeded", OutcomeClass::Transient, "SMTP 550 5.4.5 to MAIL"),
        (Phase::Rcpt, "421 4.7.0 slow down", OutcomeClass::Transient, "SMTP 421 4.7.0 to RCPT"),
        (Phase::Rcpt, "451 4.7.1 greylisted, try again", OutcomeClass::Transient, "SMTP 451 4.7.1 to RCPT"),
        (Phase::Rcpt, "450 4.2.0 greylisted", OutcomeClass::Transient, "SMTP 450 4.2.0 to RCPT"),
        (Phase::Rcpt, "452 4.2.2 full", OutcomeClass::Transient, "SMTP 452 4.2.2 to RCPT"),
        (Phase::Data, "554 5.6.0 no", OutcomeClass::Permanent, "SMTP 554 5.6.0 to DATA"),
        (Phase::Data, "250 what", OutcomeClass::Transient, "SMTP 250 to DATA"),
        (Phase::Message, "554 5.7.1 spam", OutcomeClass::Rejected, "SMTP 554 5.7.1 to the final dot"),
        (Phase::Message, "552 5.3.4 too big", OutcomeClass::Permanent, "SMTP 552 5.3.4 to the final dot"),
        (Phase::Message, "451 4.3.0 disk full", OutcomeClass::Transient, "SMTP 451 4.3.0 to the final dot"),
        (Phase::Message, "354 more", OutcomeClass::Transient, "SMTP 354 to the final dot"),
    ] {
        let outcome = refused(phase, line).await;
        assert_eq!((outcome.class, error(&outcome)), (class, text), "{phase:?} {line}");
        assert_eq!(outcome.status, line[..3].parse().ok(), "{phase:?} {line}");
        assert_eq!(outcome.disables, None, "{phase:?} {line}");
    }
}

/// A missing mailbox gets no more email. A refusal because of the sender, or of a full mailbox, says nothing about the
/// address: otherwise one blocked sender would disable every contact.
#[tokio::test]
async fn only_an_unknown_mailbox_disables_its_contact() {
    let unknown = Some(DisableReason::NoMailbox);
    for (phase, line, disables) in [
        (Phase::Rcpt, "550 5.1.1 no such user", unknown),
        (Phase::Rcpt, "551 user not local", unknown),
        (Phase::Rcpt, "553 5.1.3 bad address", unknown),
        (Phase::Rcpt, "554 5.1.1 no such user", unknown),
        (Phase::Rcpt, "556 5.1.10 its domain takes no mail", unknown),
        (Phase::Rcpt, "550 JunkMail rejected - host is in an RBL", None),
        (Phase::Rcpt, "550 no", None),
        (Phase::Rcpt, "521 takes no mail", None),
        (Phase::Rcpt, "550 5.7.1 you are on a list", None),
        (Phase::Rcpt, "550 relay access denied", None),
        (Phase::Rcpt, "552 5.2.2 full", None),
        (Phase::Rcpt, "554 no", None),
        (Phase::Rcpt, "554 5.1.8 your domain does not exist", None),
        (Phase::Rcpt, "450 5.1.1 no such user yet", None),
        (Phase::Mail, "550 5.1.1 no such sender", None),
        (Phase::Message, "550 5.1.1 no", None),
    ] {
        let outcome = refused(phase, line).await;
        assert_eq!(outcome.disables, disables, "{phase:?} {line}");
    }
}

/// No server is asked about an invalid address; somebody may fix it before the next attempt.
#[tokio::test]
async fn a_malformed_address_contacts_nobody_and_is_tried_again() {
    let server = server().await;
    for to in ["", "bob", "bob@example.com\r\nRCPT TO:<eve@example.com>", "a b@example.com", "Bob <bob@example.com>"] {
        let outcome = mailer(&server.url()).send(Mail { to, ..MAIL }).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "malformed email address"), "{to:?}");
    }
    assert_eq!(server.connections(), 0);
}

/// A server that stops answering in any phase must not occupy a worker beyond the deadline.
#[tokio::test]
async fn a_server_that_hangs_runs_into_one_deadline() {
    let phases = [Phase::Greeting, Phase::Ehlo, Phase::Mail, Phase::Rcpt, Phase::Data, Phase::Message];
    let attempts = phases.map(|phase| async move {
        let server = server().await;
        server.program(phase, Reply::Hang, Times::Always);
        let mailer = Mailer::new(&EmailConfig { timeout: SHORT, ..config(&server.url()) }, &DnsConfig::default())
            .expect("a mailer");
        let started = Instant::now();
        let outcome = mailer.send(MAIL).await;
        assert_eq!(
            (outcome.class, error(&outcome)),
            (OutcomeClass::Transient, "deadline of 400ms passed"),
            "{phase:?}"
        );
        assert!(started.elapsed() >= SHORT, "{phase:?}: {:?}", started.elapsed());
    });
    for attempt in attempts {
        attempt.await;
    }
}

/// A reply about the email counts, even if the server then hangs or closes the connection.
#[tokio::test]
async fn what_fails_after_the_answer_changes_nothing() {
    for (phase, class) in [(Phase::Quit, OutcomeClass::Delivered), (Phase::Rset, OutcomeClass::Delivered)] {
        let server = server().await;
        server.program(phase, Reply::Hang, Times::Always);
        let mailer = mailer(&server.url());
        let ended = async {
            assert_eq!(mailer.send(MAIL).await.class, class);
            mailer.close().await;
        };
        tokio::time::timeout(WAIT_MAX, ended).await.expect("neither waits for the server");
    }
}

/// A network error is not a refusal.
#[tokio::test]
async fn what_fails_on_the_way_is_transient() {
    let refused = mailer(&format!("smtp://127.0.0.1:{}", free_port())).send(MAIL).await;
    assert_eq!((refused.class, error(&refused)), (OutcomeClass::Transient, "connect: connection refused"));
    assert!(!refused.may_have_arrived);

    let nameless = mailer("smtp://mail.invalid:25").send(MAIL).await;
    assert_eq!(nameless.class, OutcomeClass::Transient);
    assert!(error(&nameless).starts_with("DNS: "), "{nameless:?}");

    for phase in [Phase::Greeting, Phase::Ehlo, Phase::Mail, Phase::Rcpt, Phase::Data, Phase::Message] {
        let server = server().await;
        server.program(phase, Reply::Close, Times::Always);
        let outcome = mailer(&server.url()).send(MAIL).await;
        let text = match phase {
            Phase::Message => "connection closed early after the final dot: the email may have been accepted",
            _ => "connection closed early",
        };
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, text), "{phase:?}");
        assert_eq!(outcome.may_have_arrived, phase == Phase::Message, "{phase:?}");
    }
}

/// `?tls=required` requires STARTTLS: a server (or an attacker) that does not offer it gets no email.
#[tokio::test]
async fn starttls_is_required_where_the_url_says_so() {
    let open = server().await;
    let outcome = mailer(&format!("{}?tls=required", open.url())).send(MAIL).await;
    assert_eq!(outcome.class, OutcomeClass::Transient);
    assert!(error(&outcome).starts_with("STARTTLS is required"), "{outcome:?}");

    let certificates = Certificates::new();
    let setup = SmtpSetup { start_tls: Some(certificates.acceptor()), ..SmtpSetup::default() };
    let mut server = SmtpCatcher::start(setup).await.expect("a server");
    let url = format!("smtp://localhost:{}?tls=required", server.address().port());
    let outcome = mailer(&url).send(MAIL).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "TLS: certificate not trusted"));

    let trusting = EmailConfig { ca_file: Some(certificates.authority_file()), ..config(&url) };
    let outcome = Mailer::new(&trusting, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered, "{outcome:?}");
    assert_eq!(server.next().await.security, Security::Tls);

    server.program(Phase::StartTls, Reply::Say("554 5.7.3 not today"), Times::Once);
    let outcome = Mailer::new(&trusting, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "SMTP 554 5.7.3 to STARTTLS"));
}

/// `smtps://` uses TLS from the first byte.
#[tokio::test]
async fn smtps_is_encrypted_from_the_start() {
    let certificates = Certificates::new();
    let setup = SmtpSetup { tls: Some(certificates.acceptor()), ..SmtpSetup::default() };
    let mut server = SmtpCatcher::start(setup).await.expect("a server");
    let url = format!("smtps://localhost:{}", server.address().port());
    let trusting = EmailConfig { ca_file: Some(certificates.authority_file()), ..config(&url) };
    assert_eq!(
        Mailer::new(&trusting, &DnsConfig::default()).expect("a mailer").send(MAIL).await.class,
        OutcomeClass::Delivered
    );
    assert_eq!(server.next().await.security, Security::Tls);
    assert_eq!(error(&mailer(&url).send(MAIL).await), "TLS: certificate not trusted");

    let setup = SmtpSetup { tls: Some(Certificates::authority_as_server()), ..SmtpSetup::default() };
    let server = SmtpCatcher::start(setup).await.expect("a server");
    let outcome = mailer(&format!("smtps://localhost:{}", server.address().port())).send(MAIL).await;
    assert_eq!(error(&outcome), "TLS: certificate is that of an authority, not of a server");
    assert!(outcome.hint.is_some_and(|hint| hint.contains("email.ca_file")), "{outcome:?}");
}

/// Another certificate of a trusted authority does not identify our mail server.
#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let certificates = Certificates::for_names(&["elsewhere.test"]);
    for (scheme, tail, setup) in [
        ("smtps", "", SmtpSetup { tls: Some(certificates.acceptor()), ..SmtpSetup::default() }),
        ("smtp", "?tls=required", SmtpSetup { start_tls: Some(certificates.acceptor()), ..SmtpSetup::default() }),
    ] {
        let server = SmtpCatcher::start(setup).await.expect("a server");
        let url = format!("{scheme}://localhost:{}{tail}", server.address().port());
        let trusting = EmailConfig { ca_file: Some(certificates.authority_file()), ..config(&url) };
        let outcome = Mailer::new(&trusting, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
        let said = (outcome.class, error(&outcome));
        assert_eq!(said, (OutcomeClass::Transient, "TLS: certificate is for another name"), "{scheme}");
    }
}

/// An expired mail password must not end every alert: every failure of AUTH is retried.
#[tokio::test]
async fn wrong_credentials_are_transient() {
    let user = User { name: "al@ice".to_owned(), password: "p:a/s%s".to_owned() };
    let setup = SmtpSetup { user: Some(user), ..SmtpSetup::default() };
    let mut server = SmtpCatcher::start(setup).await.expect("a server");
    let with = |credentials: &str| format!("smtp://{credentials}@{}", server.address());
    let (right, wrong, none) = (with("al%40ice:p%3Aa%2Fs%25s"), with("al%40ice:old"), server.url());

    let outcome = mailer(&wrong).send(MAIL).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "SMTP 535 5.7.8 to AUTH"));
    let outcome = mailer(&none).send(MAIL).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "SMTP 530 5.7.0 to MAIL"));
    for line in ["534 5.7.9 weak", "454 4.7.0 later", "500 5.5.2 what", "538 5.7.11 encrypt"] {
        server.program(Phase::Auth, Reply::Say(line), Times::Once);
        let outcome = mailer(&right).send(MAIL).await;
        assert_eq!((outcome.class, outcome.status), (OutcomeClass::Transient, line[..3].parse().ok()), "{line}");
    }
    assert_eq!(mailer(&right).send(MAIL).await.class, OutcomeClass::Delivered);
    assert_eq!(server.next().await.user.as_deref(), Some("al@ice"));

    let (open, credentials) = (self::server().await, "u:p");
    let outcome = mailer(&format!("smtp://{credentials}@{}", open.address())).send(MAIL).await;
    assert_eq!(outcome.class, OutcomeClass::Transient, "a server without AUTH: {outcome:?}");
    assert!(error(&outcome).starts_with("AUTH: "), "{outcome:?}");
}

/// `check-config` must find a wrong password without sending anything.
#[tokio::test]
async fn a_check_goes_as_far_as_the_login_and_sends_nothing() {
    let user = User { name: "u".to_owned(), password: "p".to_owned() };
    let setup = SmtpSetup { user: Some(user), ..SmtpSetup::default() };
    let mut server = SmtpCatcher::start(setup).await.expect("a server");
    let checked = mailer(&format!("smtp://u:p@{}", server.address())).check(None).await;
    assert_eq!((checked.class, checked.status), (OutcomeClass::Delivered, None));
    let checked = mailer(&format!("smtp://u:old@{}", server.address())).check(None).await;
    assert_eq!((checked.class, error(&checked)), (OutcomeClass::Transient, "SMTP 535 5.7.8 to AUTH"));
    assert!(server.try_next().is_none());
}

/// A burst of alerts must not open a connection each; a dead idle connection must not cost an attempt.
#[tokio::test]
async fn connections_are_reused_and_replaced_when_dead() {
    let mut server = server().await;
    let mailer = mailer(&server.url());
    server.program(Phase::Rcpt, Reply::Say("550 5.1.1 no"), Times::Once);
    assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Rejected);
    for _ in 0..3 {
        assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Delivered);
        assert_eq!(server.next().await.connection, 1, "a refused mail leaves the connection sound");
    }
    server.program(Phase::Rset, Reply::Close, Times::Once);
    assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Delivered);
    assert_eq!(server.next().await.connection, 2);
    server.program(Phase::Mail, Reply::Say("421 4.4.2 idle for too long"), Times::Once);
    assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Delivered);
    assert_eq!(server.next().await.connection, 3);
    mailer.close().await;
    assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Delivered);
    assert_eq!(server.next().await.connection, 4);
}

/// Many emails at once each get their own conversation.
#[tokio::test]
async fn mails_are_sent_side_by_side() {
    let mut server = server().await;
    let mailer = std::sync::Arc::new(mailer(&server.url()));
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mailer = mailer.clone();
        sending.spawn(async move { mailer.send(MAIL).await.class });
    }
    assert!(sending.join_all().await.into_iter().all(|class| class == OutcomeClass::Delivered));
    for _ in 0..20 {
        server.next().await;
    }
    assert!(server.try_next().is_none(), "nothing arrives twice");
}

/// Invalid settings are found at start; the error names the setting and shows no password.
#[tokio::test]
async fn broken_settings_are_configuration_errors() {
    let text = |config: EmailConfig| Mailer::new(&config, &DnsConfig::default()).expect_err("broken").to_string();
    let open = text(config("smtp://user:hunter2@mail.test:587"));
    assert!(open.starts_with("email.smtp_url: credentials without TLS") && !open.contains("hunter2"), "{open}");
    let from = text(EmailConfig { from: "nobody".to_owned(), ..config("smtp://localhost") });
    assert!(from.starts_with("email.from: \"nobody\" is not a mailbox"), "{from}");
    let missing = Some(std::path::PathBuf::from("/nowhere/url"));
    let file = text(EmailConfig { smtp_url_file: missing, ..config("smtp://localhost") });
    assert!(file.starts_with("email.smtp_url_file: read "), "{file}");

    assert_eq!(mailer("smtp://localhost:25").warnings(), [] as [String; 0]);
    assert_eq!(mailer("smtp://mail.test:25").warnings().len(), 1);
}

/// The file overrides the setting, and only its first line counts.
#[tokio::test]
async fn the_url_may_stand_in_a_file() {
    let mut server = server().await;
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("url");
    std::fs::write(&path, format!("{}\nsomething else\n", server.url())).expect("written");
    let from_file = EmailConfig { smtp_url_file: Some(path), ..config("nonsense") };
    assert_eq!(
        Mailer::new(&from_file, &DnsConfig::default()).expect("a mailer").send(MAIL).await.class,
        OutcomeClass::Delivered
    );
    server.next().await;
}

/// A server that then requires TLS or a password would fail only with the first alert. A server that does not know our
/// address may still accept email for others.
#[tokio::test]
async fn a_check_names_sender_and_recipient_and_sends_nothing() {
    for (phase, line, expected) in [
        (Phase::Mail, "530 5.7.0 must issue STARTTLS first", Some("SMTP 530 5.7.0 to MAIL")),
        (Phase::Rcpt, "554 5.7.1 relay access denied", Some("SMTP 554 5.7.1 to RCPT")),
        (Phase::Rcpt, "530 5.7.1 authentication required", Some("SMTP 530 5.7.1 to RCPT")),
        (Phase::Rcpt, "550 5.1.1 no such user", None),
    ] {
        let mut server = server().await;
        server.program(phase, Reply::Say(line), Times::Once);
        let mailer = mailer(&server.url());
        assert_eq!(mailer.check(None).await.error.as_deref(), expected, "{line}");
        assert_eq!(mailer.send(MAIL).await.class, OutcomeClass::Delivered, "{line}");
        server.next().await;
        assert!(server.try_next().is_none(), "{line}");
    }
}

/// The operator can read the server's reply and its name; they must not appear in the log.
#[tokio::test]
async fn what_the_server_said_is_kept_apart_from_the_error() {
    let server = server().await;
    for (lines, said) in [
        ("550 5.1.1 <bob@example.com> is unknown here", "<bob@example.com> is unknown here"),
        ("550-5.1.1 <bob@example.com> is unknown.\r\n550 5.1.1 See 5.1.1", "<bob@example.com> is unknown. See 5.1.1"),
        ("550-5.1.1\r\n550 5.1.10 gone", "5.1.10 gone"),
    ] {
        server.program(Phase::Rcpt, Reply::Say(lines), Times::Once);
        let outcome = mailer(&server.url()).send(MAIL).await;
        // The error contains the enhanced status code, because both are shown together.
        assert_eq!((error(&outcome), outcome.reply.as_deref()), ("SMTP 550 5.1.1 to RCPT", Some(said)));
        assert_eq!(outcome.peer.as_deref(), Some(server.address().to_string().as_str()));
    }
}

/// A folder with a new RSA key of this size in a file.
pub(super) fn key_of(bits: u32) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dkim.pem");
    let made = std::process::Command::new("openssl").args(["genrsa", "-out"]).arg(&file).arg(bits.to_string()).output();
    assert!(made.expect("openssl is installed: apt-get install openssl").status.success());
    (folder, file)
}

fn signing(url: &str, key_file: &std::path::Path) -> EmailConfig {
    let dkim =
        DkimSettings { domain: "example.com".to_owned(), selector: "q1".to_owned(), key_file: key_file.to_path_buf() };
    EmailConfig { dkim: Some(dkim), ..config(url) }
}

/// An email whose signature omits a header can be changed on its way, and providers ignore an unsigned one-click
/// header.
#[tokio::test]
async fn a_mail_is_signed_with_everything_that_a_provider_looks_at() {
    let (_folder, key) = key_of(1024);
    let mut server = server().await;
    let mailer = Mailer::new(&signing(&server.url(), &key), &DnsConfig::default()).expect("a mailer");
    let long = "x".repeat(700);
    let link = format!("https://quota.example.com/unsubscribe/{long}");
    assert_eq!(mailer.send(Mail { unsubscribe: Some(&link), ..MAIL }).await.class, OutcomeClass::Delivered);
    let mail = ParsedMail::parse(&server.next().await.text());
    let signature = mail.header("DKIM-Signature");
    let tag = |name: &str| {
        let found = signature.split(';').map(str::trim).find_map(|tag| tag.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {signature}")).to_owned()
    };
    assert_eq!((tag("a"), tag("d"), tag("s")), ("rsa-sha256".into(), "example.com".into(), "q1".into()));
    let signed = tag("h").to_lowercase();
    for header in ["from", "to", "subject", "date", "message-id", "list-unsubscribe", "list-unsubscribe-post"] {
        assert!(signed.split(':').any(|name| name.trim() == header), "{header} is not in {signed}");
    }
    assert_eq!(mail.header("List-Unsubscribe"), format!("<{link}>"));
}

/// Such emails are signed, but receivers with DMARC drop them anyway.
#[test]
fn a_signature_for_another_domain_is_warned_of_at_start() {
    let (_folder, key) = key_of(1024);
    let warnings = |from: &str| {
        let config = EmailConfig { from: from.to_owned(), ..signing("smtps://mail.example.com", &key) };
        Mailer::new(&config, &DnsConfig::default()).expect("a mailer").warnings().to_vec()
    };
    assert_eq!(warnings("alerts@mail.example.com"), Vec::<String>::new());
    assert!(warnings("alerts@example.net")[0].contains("email.from has \"example.net\""));
}

/// An unusable key must stop the start, not the first alert.
#[test]
fn a_key_that_can_not_sign_is_told_at_start() {
    let (folder, short) = key_of(512);
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").expect("written");
    let refused =
        |config: EmailConfig| Mailer::new(&config, &DnsConfig::default()).expect_err("it can't sign").to_string();
    let of = |key: &std::path::Path| refused(signing("smtp://localhost", key));
    assert!(of(&short).contains("holds a key of 512 bits, allowed are 1024 or more"), "{}", of(&short));
    assert!(of(&garbage).contains("holds no RSA key in PEM: `openssl genrsa 2048` writes one"));
    assert!(of(std::path::Path::new("/absent.pem")).starts_with("email.dkim.key_file: read \"/absent.pem\""));
    let mut wrong = signing("smtp://localhost", &short);
    wrong.dkim.as_mut().expect("it has one").selector = "q1; d=evil.example".to_owned();
    assert!(refused(wrong).starts_with("email.dkim.selector: \"q1; d=evil.example\" is not a DNS name"));
}

/// RFC 5321, 4.1.1.1: keywords ignore case. A server that wrote `250-starttls` used to get emails in plain text.
#[tokio::test]
async fn keywords_of_ehlo_are_known_in_any_case_and_form() {
    let certificates = Certificates::new();
    let server = ScriptedServer::start([
        Step::Say("220 mail.test\r\n"),
        Step::Hear("\r\n"),
        Step::Say("250-mail.test\r\n250 starttls\r\n"),
        Step::Hear("STARTTLS\r\n"),
        Step::Say("220 go\r\n"),
        Step::Tls(certificates.acceptor()),
        Step::Hear("\r\n"),
        Step::Say("554 5.7.1 not today\r\n"),
        Step::Hang,
    ])
    .await;
    let url = format!("smtp://localhost:{}?tls=opportunistic", server.port());
    let trusting = EmailConfig { ca_file: Some(certificates.authority_file()), ..config(&url) };
    let outcome = Mailer::new(&trusting, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
    assert_eq!(error(&outcome), "SMTP 554 5.7.1 to STARTTLS", "it was upgraded");

    for (line, command) in [
        ("250-auth plain\r\n250 size 1\r\n", "AUTH PLAIN AHUAcA==\r\n"),
        ("250-AUTH=LOGIN\r\n250 SIZE 1\r\n", "AUTH LOGIN"),
        ("250 Auth=Plain Login\r\n", "AUTH PLAIN AHUAcA==\r\n"),
    ] {
        let server = ScriptedServer::start([
            Step::Say("220 mail.test\r\n"),
            Step::Hear("\r\n"),
            Step::Say("250-mail.test\r\n"),
            Step::Say(line),
            Step::Hear(command),
            Step::Say("454 4.7.0 later\r\n"),
        ])
        .await;
        let outcome = mailer(&format!("smtp://u:p@{}", server.address())).send(MAIL).await;
        assert_eq!(error(&outcome), "SMTP 454 4.7.0 to AUTH", "{line}");
    }
}

/// RFC 5321, 3.2: a server without EHLO supports HELO. It used to get no email at all.
#[tokio::test]
async fn a_server_that_does_not_know_ehlo_is_greeted_with_helo() {
    for refusal in ["500 what\r\n", "502 5.5.1 not implemented\r\n"] {
        let server = ScriptedServer::start([
            Step::Say("220 mail.test\r\n"),
            Step::Hear("EHLO quota.test\r\n"),
            Step::Say(refusal),
            Step::Hear("HELO quota.test\r\n"),
            Step::Say("250 mail.test\r\n"),
            Step::Hear("MAIL FROM:<alerts@example.com>\r\n"),
            Step::Say("452 4.3.1 later\r\n"),
        ])
        .await;
        let named =
            EmailConfig { helo_name: Some("quota.test".to_owned()), ..config(&format!("smtp://{}", server.address())) };
        let outcome = Mailer::new(&named, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
        assert_eq!(error(&outcome), "SMTP 452 4.3.1 to MAIL", "{refusal}");
    }
}
