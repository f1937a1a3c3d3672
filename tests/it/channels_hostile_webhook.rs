//! Hostile receivers: one deadline holds, memory is bounded, and the connection is closed afterwards.

use std::time::Duration;

use crate::channels_webhook::{error, inside, send};
use crate::support::certificates::Certificates;
use crate::support::scripted_server::{FLOODED, REQUEST, ScriptedServer, Step};
use crate::support::tls_flood::TlsFlood;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::types::{Outcome, OutcomeClass};

/// Short, so that a dripping receiver costs little; long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(600);
/// More than is read of a response, including the kernel's buffers on both sides.
const FLOOD_BYTES_MAX: u64 = 32 * 1024 * 1024;

const HEAD: &str = "HTTP/1.1 200 OK\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
/// The head of a body that a decompressing client would enlarge a thousand times.
const GZIP: &str = "HTTP/1.1 500 No\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";

async fn answer_of(receiver: &ScriptedServer) -> Outcome {
    let outcome = send(&inside(), &receiver.url()).await;
    receiver.has_served(1).await;
    assert!(receiver.sent() < FLOOD_BYTES_MAX, "{} bytes went out", receiver.sent());
    outcome
}

/// A head of 100 MB, in one line or many, is not buffered and not a response.
#[tokio::test]
async fn a_head_without_an_end_is_cut_off() {
    for flood in ["x-many: 0123456789\r\n", "x"] {
        let receiver = ScriptedServer::start([REQUEST, Step::Say(HEAD), Step::Flood(flood)]).await;
        let outcome = answer_of(&receiver).await;
        let said = (outcome.class, error(&outcome));
        assert_eq!(said, (OutcomeClass::Transient, "the head of the answer is too large"), "{flood:?}");
    }
}

/// Endless informational responses used to occupy a thread of the daemon until after the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informational_answers_without_an_end_are_cut_off() {
    for flood in ["HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", "HTTP/1.1 100\r\n\r\n"] {
        let receiver = ScriptedServer::start([REQUEST, Step::Flood(flood)]).await;
        let outcome = answer_of(&receiver).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, FLOODED), "{flood:?}");
    }
}

/// Records without data are read within one poll, and none of their bytes reach the bound of a response. rustls closes
/// a connection after 32 empty records in a row, and after 32 KeyUpdates without data between them. It does not bound
/// tickets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_without_data_are_cut_off() {
    let certificates = Certificates::new();
    let config = WebhookConfig { ca_file: Some(certificates.authority_file()), ..inside() };
    for flood in TlsFlood::ALL {
        let receiver = ScriptedServer::start([Step::TlsFlood(certificates.flooding_acceptor(), flood)]).await;
        let outcome = send(&config, &format!("https://localhost:{}/hook", receiver.port())).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, flood.ends_with()), "{flood:?}");
        receiver.has_served(1).await;
        assert!(receiver.sent() < FLOOD_BYTES_MAX, "{flood:?}: {} bytes went out", receiver.sent());
    }
}

/// The status line decides. A non-standard line used to make a 200 "not HTTP": the delivery was repeated until it was
/// dead, and a chat showed every repetition. curl and browsers accept all of these.
#[tokio::test]
async fn odd_lines_in_a_head_do_not_hide_the_status() {
    let many = |count: usize| (0..count).map(|number| format!("x-{number}: y\r\n")).collect::<String>();
    let heads = [
        "Server : x\r\n".to_owned(),
        "Server\t: x\r\n".to_owned(),
        "no colon here\r\n".to_owned(),
        ": no name\r\n".to_owned(),
        "two words: x\r\n".to_owned(),
        "b@d(name): x\r\n".to_owned(),
        "n\u{e4}me: x\r\n".to_owned(),
        "x-control: a\u{1}b\r\n".to_owned(),
        "x-folded: a\r\n b\r\n\tc\r\n".to_owned(),
        "x-bare: lf\n".to_owned(),
        many(101),
        many(500),
        many(4_000),
    ];
    for head in heads {
        let answer = format!("HTTP/1.1 200 OK\r\n{head}content-length: 0\r\n\r\n");
        let receiver = ScriptedServer::start([REQUEST, Step::Say(answer.leak())]).await;
        let outcome = send(&inside(), &receiver.url()).await;
        assert_eq!((outcome.class, outcome.status), (OutcomeClass::Delivered, Some(200)), "{head:.40?}: {outcome:?}");
    }
    let answer = "HTTP/1.1 503 Busy\r\nno colon here\r\nRetry-After : 7\r\ncontent-length: 0\r\n\r\n";
    let receiver = ScriptedServer::start([REQUEST, Step::Say(answer)]).await;
    let outcome = send(&inside(), &receiver.url()).await;
    assert_eq!((outcome.status, outcome.retry_after), (Some(503), Some(Duration::from_secs(7))));
}

/// Endless bodies are cut off, even in chunks of one byte, and nothing is decompressed.
#[tokio::test]
async fn a_body_without_an_end_is_cut_off() {
    for (head, flood, class) in [
        (CHUNKED, "1\r\nx\r\n", OutcomeClass::Delivered),
        (CHUNKED, "4000;extension=01234567890123456789\r\n", OutcomeClass::Delivered),
        (GZIP, "\u{1f}", OutcomeClass::Transient),
    ] {
        let receiver = ScriptedServer::start([REQUEST, Step::Say(head), Step::Flood(flood)]).await;
        let outcome = answer_of(&receiver).await;
        assert_eq!(outcome.class, class, "{flood:?}: {outcome:?}");
        assert!(outcome.reply.is_none_or(|reply| reply.len() <= 512), "{flood:?}");
    }
}

/// With one timeout per step, every byte of a dripping receiver would restart the timeout.
#[tokio::test]
async fn one_deadline_covers_an_answer_that_never_stops() {
    let config = WebhookConfig { timeout: SHORT, ..inside() };
    for (slow, steps, class) in [
        ("says nothing", vec![Step::Hang], OutcomeClass::Transient),
        ("reads nothing", vec![Step::Ignore], OutcomeClass::Transient),
        ("status line", vec![REQUEST, Step::Say("HTTP/1.1 200 "), Step::Drip("x")], OutcomeClass::Transient),
        ("interim answers", vec![REQUEST, Step::Drip("HTTP/1.1 100 Continue\r\n\r\n")], OutcomeClass::Transient),
        ("head", vec![REQUEST, Step::Say(HEAD), Step::Drip("x: y\r\n")], OutcomeClass::Transient),
        // The status has arrived, so the receiver has decided.
        ("body", vec![REQUEST, Step::Say(CHUNKED), Step::Drip("1\r\nx\r\n")], OutcomeClass::Delivered),
    ] {
        let receiver = ScriptedServer::start(steps).await;
        let outcome = send(&config, &receiver.url()).await;
        assert_eq!(outcome.class, class, "{slow}: {outcome:?}");
        if class == OutcomeClass::Transient {
            assert_eq!(error(&outcome), "deadline of 600ms passed", "{slow}");
        }
    }
}

/// A receiver that closes in the middle has decided nothing.
#[tokio::test]
async fn leaving_in_the_middle_is_no_answer() {
    for (left, steps, text) in [
        ("before the request", vec![], "connection"),
        ("in the request", vec![Step::Hear("POST")], "connection"),
        ("by a reset", vec![Step::Hear("POST"), Step::Reset], "connection reset"),
        ("in the status line", vec![REQUEST, Step::Say("HTTP/1.1 20")], "connection closed early"),
        ("in the head", vec![REQUEST, Step::Say("HTTP/1.1 200 OK\r\nserver: x")], "connection closed early"),
    ] {
        let receiver = ScriptedServer::start(steps).await;
        let outcome = send(&inside(), &receiver.url()).await;
        assert_eq!(outcome.class, OutcomeClass::Transient, "{left}: {outcome:?}");
        assert!(error(&outcome).starts_with(text), "{left}: {outcome:?}");
    }
}

/// Two lengths, or a length and chunks, can smuggle one response into another. Such connections are not reused, so only
/// the status counts.
#[tokio::test]
async fn contradictory_heads_end_the_attempt() {
    for (head, class) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx", OutcomeClass::Transient),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", OutcomeClass::Transient),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n", OutcomeClass::Transient),
        ("HTTP/9.9 200 OK\r\n\r\n", OutcomeClass::Transient),
        ("HTTP/1.1 99 What\r\n\r\n", OutcomeClass::Transient),
        ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 No\r\n\r\n", OutcomeClass::Delivered),
    ] {
        let receiver = ScriptedServer::start([REQUEST, Step::Say(head)]).await;
        let outcome = send(&inside(), &receiver.url()).await;
        assert_eq!(outcome.class, class, "{head:?}: {outcome:?}");
    }
}

/// HTTP/2 is not supported: a receiver that sends it anyway has decided nothing, and must not flood the daemon after
/// the attempt.
#[tokio::test]
async fn frames_of_http2_end_the_attempt() {
    /// SETTINGS, and a PING (RFC 9113, section 6), with ASCII bytes only.
    const SETTINGS: &str = "\0\0\0\x04\0\0\0\0\0";
    const PING: &str = "\0\0\x08\x06\0\0\0\0\x0001234567";
    let certificates = Certificates::new();
    let config = WebhookConfig { timeout: SHORT, ca_file: Some(certificates.authority_file()), ..inside() };
    let flood = [Step::Say(SETTINGS), Step::Flood(PING)];
    for (what, begin) in [
        ("agreed on nothing", vec![Step::Tls(certificates.acceptor()), REQUEST]),
        ("before the request", vec![Step::Tls(certificates.acceptor())]),
        ("takes nothing else", vec![Step::Tls(certificates.http2_acceptor()), Step::Hear("SM\r\n\r\n")]),
    ] {
        let receiver = ScriptedServer::start(begin.into_iter().chain(flood.clone())).await;
        let outcome = send(&config, &format!("https://localhost:{}/hook", receiver.port())).await;
        receiver.has_served(1).await;
        assert!(receiver.sent() < FLOOD_BYTES_MAX, "{what}: {} bytes went out", receiver.sent());
        assert_eq!(outcome.class, OutcomeClass::Transient, "{what}: {outcome:?}");
    }
}
