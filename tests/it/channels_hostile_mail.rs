//! Hostile mail servers: the deadline holds, memory is bounded, and no reply is taken for another.

use std::time::Duration;

use crate::channels_email::{MAIL, config, error, mailer};
use crate::support::certificates::Certificates;
use crate::support::scripted_server::{ScriptedServer, Step};
use crate::support::tls_flood::TlsFlood;
use quotabell::channels::DnsConfig;
use quotabell::channels::email::{EmailConfig, Mailer};
use quotabell::types::{Outcome, OutcomeClass};

/// Short, so that a dripping server costs little; long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(600);
/// More than a sender reads of a reply, including the kernel's buffers on both sides.
const FLOOD_BYTES_MAX: u64 = 32 * 1024 * 1024;

const GREETING: Step = Step::Say("220 mail.test ESMTP\r\n");
const EHLO: Step = Step::Hear("\r\n");

fn url(server: &ScriptedServer) -> String {
    format!("smtp://{}", server.address())
}

async fn send(server: &ScriptedServer) -> Outcome {
    mailer(&url(server)).send(MAIL).await
}

/// An endless line used to take 2 GB in five seconds, and a reply of many lines was parsed again with each line, which
/// blocked the daemon.
#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    for (sent, steps) in [
        ("a greeting in one line", vec![Step::Say("220 "), Step::Flood("x")]),
        ("a greeting of many lines", vec![Step::Flood("220-mail.test\r\n")]),
        ("an answer to EHLO in one line", vec![GREETING, EHLO, Step::Flood("250-SIZE 1\u{fffd}")]),
        ("an answer to EHLO of many lines", vec![GREETING, EHLO, Step::Flood("250-SIZE 1\r\n")]),
        ("an answer to EHLO of empty lines", vec![GREETING, EHLO, Step::Flood("250-\r\n")]),
    ] {
        let server = ScriptedServer::start(steps).await;
        let outcome = send(&server).await;
        let said = (outcome.class, error(&outcome));
        assert_eq!(said, (OutcomeClass::Transient, "the mail server's answer is longer than 64 KiB"), "{sent}");
        server.has_served(1).await;
        assert!(server.sent() < FLOOD_BYTES_MAX, "{sent}: {} bytes went out", server.sent());
    }
}

/// Records without data contain no line, so the bound of a reply does not apply to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_without_data_are_cut_off() {
    let certificates = Certificates::new();
    for flood in TlsFlood::ALL {
        let flooding = Step::TlsFlood(certificates.flooding_acceptor(), flood);
        for (protocol, steps) in [
            ("smtps", vec![flooding.clone()]),
            (
                "smtp",
                vec![
                    GREETING,
                    EHLO,
                    Step::Say("250-mail.test\r\n250 STARTTLS\r\n"),
                    Step::Hear("STARTTLS\r\n"),
                    Step::Say("220 go ahead\r\n"),
                    flooding,
                ],
            ),
        ] {
            let server = ScriptedServer::start(steps).await;
            let url = format!(
                "{protocol}://localhost:{}{}",
                server.port(),
                if protocol == "smtp" { "?tls=required" } else { "" }
            );
            let config = EmailConfig { ca_file: Some(certificates.authority_file()), ..config(&url) };
            let outcome = Mailer::new(&config, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
            let said = (outcome.class, error(&outcome));
            assert!(
                said.0 == OutcomeClass::Transient && said.1.ends_with(flood.ends_with()),
                "{protocol} {flood:?}: {said:?}"
            );
            server.has_served(1).await;
            assert!(server.sent() < FLOOD_BYTES_MAX, "{protocol} {flood:?}: {} bytes went out", server.sent());
        }
    }
}

/// With one timeout per step, every byte of a dripping server would restart the timeout.
#[tokio::test]
async fn one_deadline_covers_a_conversation_that_never_stops() {
    let yes = "250 ok\r\n";
    for (slow, steps) in [
        ("greeting", vec![Step::Drip("220-x\r\n")]),
        ("EHLO", vec![GREETING, EHLO, Step::Drip("250-x\r\n")]),
        ("MAIL", vec![GREETING, EHLO, Step::Say(yes), Step::Hear("\r\n"), Step::Drip("2")]),
        ("never reading", vec![Step::Ignore]),
    ] {
        let server = ScriptedServer::start(steps).await;
        let config = EmailConfig { timeout: SHORT, ..config(&url(&server)) };
        let outcome = Mailer::new(&config, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "deadline of 600ms passed"), "{slow}");
    }
}

/// Anybody may have sent bytes before the handshake. If they counted as replies after it, they would accept an email
/// that the server refused.
#[tokio::test]
async fn text_before_the_tls_handshake_ends_the_connection() {
    let certificates = Certificates::new();
    let injected = "220 go ahead\r\n250-mail.test\r\n250 8BITMIME\r\n250 ok\r\n250 ok\r\n354 go\r\n250 2.0.0 taken\r\n";
    let server = ScriptedServer::start([
        GREETING,
        EHLO,
        Step::Say("250-mail.test\r\n250 STARTTLS\r\n"),
        Step::Hear("STARTTLS\r\n"),
        Step::Say(injected),
        Step::Tls(certificates.acceptor()),
        EHLO,
        Step::Say("554 5.7.1 refused\r\n"),
        Step::Hang,
    ])
    .await;
    let url = format!("smtp://localhost:{}?tls=required", server.port());
    let trusting = EmailConfig { ca_file: Some(certificates.authority_file()), ..config(&url) };
    let outcome = Mailer::new(&trusting, &DnsConfig::default()).expect("a mailer").send(MAIL).await;
    let said = "STARTTLS: the mail server sent plain text before the TLS handshake";
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, said));
}

/// An early reply would answer the next command, and shift all later replies.
#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let twice = Step::Say("250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 taken\r\n");
    let server = ScriptedServer::start([GREETING, EHLO, twice, Step::Hang]).await;
    let outcome = send(&server).await;
    let said = "the mail server sent an answer that nobody asked for";
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, said));
}

/// A server that offers LOGIN and keeps asking must not be answered endlessly.
#[tokio::test]
async fn endless_challenges_of_a_login_end() {
    let server = ScriptedServer::start([
        GREETING,
        EHLO,
        Step::Say("250-mail.test\r\n250 AUTH LOGIN\r\n"),
        Step::Hear("AUTH LOGIN\r\n"),
        Step::Drip("334 VXNlcm5hbWU6\r\n"),
    ])
    .await;
    let outcome = mailer(&format!("smtp://u:p@{}", server.address())).send(MAIL).await;
    assert_eq!(outcome.class, OutcomeClass::Transient, "{outcome:?}");
    assert!(
        ["AUTH failed", "the mail server sent an answer that nobody asked for"].contains(&error(&outcome)),
        "{outcome:?}"
    );
    server.has_served(1).await;
}

/// A reset says nothing about the email. Only after the final dot may the server have accepted it.
#[tokio::test]
async fn a_reset_is_transient_in_each_phase() {
    let yes = Step::Say("250 ok\r\n");
    let conversation = [
        ("the greeting", vec![]),
        ("EHLO", vec![GREETING, EHLO]),
        ("MAIL", vec![yes.clone(), Step::Hear("\r\n")]),
        ("RCPT", vec![yes.clone(), Step::Hear("\r\n")]),
        ("DATA", vec![yes, Step::Hear("\r\n")]),
        ("the final dot", vec![Step::Say("354 go\r\n"), Step::Hear("\r\n.\r\n")]),
    ];
    let mut steps = Vec::new();
    for (phase, more) in conversation {
        steps.extend(more);
        let server = ScriptedServer::start([steps.clone(), vec![Step::Reset]].concat()).await;
        let outcome = send(&server).await;
        let text = match phase {
            "the final dot" => "connection reset after the final dot: the email may have been accepted",
            _ => "connection reset",
        };
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, text), "{phase}");
    }
}

/// A reply that is not SMTP must be reported as such, without waiting for the deadline.
#[tokio::test]
async fn gibberish_is_named() {
    for (said, error_text) in [
        ("HTTP/1.1 400 Bad Request\r\n", "connect: the mail server does not speak SMTP"),
        ("220-one\r\n221 two\r\n", "connect: the mail server does not speak SMTP"),
        ("\r\n", "connect: the mail server does not speak SMTP"),
        ("999 what\r\n", "connect: the mail server does not speak SMTP"),
        ("220 no line end", "connection closed early"),
        ("", "connection closed early"),
    ] {
        let server = ScriptedServer::start([Step::Say(said)]).await;
        let outcome = send(&server).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, error_text), "{said:?}");
    }
}
