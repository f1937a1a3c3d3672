//! Connections to receivers that get several messages at once: reused, and never at the cost of a message.

use std::time::Duration;

use quotabell::channels::webhook::{WebhookBody, WebhookClient, WebhookConfig, WebhookRequest};
use quotabell::contacts::ExtraHeaders;
use quotabell::types::{Outcome, OutcomeClass};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::channels_webhook::{client, inside, now_s};
use crate::support::certificates::Certificates;
use crate::support::eventually::WAIT_MAX;
use crate::support::scripted_server::{REQUEST, ScriptedServer, Step};

const OK: Step = Step::Say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
/// Distinguishes a second response on one connection from the first on another.
const SECOND: Step = Step::Say("HTTP/1.1 204 No Content\r\n\r\n");

async fn send(client: &WebhookClient, receiver: &ScriptedServer, keeps_connection: bool) -> Outcome {
    send_to(client, &receiver.url(), keeps_connection).await
}

async fn send_to(client: &WebhookClient, url: &str, keeps_connection: bool) -> Outcome {
    let (body, headers) = (WebhookBody::json("{}".to_owned()), ExtraHeaders::default());
    let request = WebhookRequest {
        id: "alert_0123",
        now_s: now_s(),
        url,
        secret: None,
        body: &body,
        headers: &headers,
        traceparent: None,
        challenge: None,
        keeps_connection,
    };
    client.send(request).await
}

async fn statuses(steps: impl IntoIterator<Item = Step>, keeps_connection: bool) -> Vec<Option<u16>> {
    let (receiver, client) = (ScriptedServer::start(steps).await, client(&inside()));
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.push(send(&client, &receiver, keeps_connection).await.status);
    }
    statuses
}

/// A new connection per message costs both sides more than the message.
#[tokio::test]
async fn a_connection_serves_what_follows_at_once() {
    let steps = [REQUEST, OK, REQUEST, SECOND];
    assert_eq!(statuses(steps.clone(), true).await, [Some(200), Some(204)]);
    assert_eq!(statuses(steps, false).await, [Some(200), Some(200)], "nothing follows: a connection each");
}

/// A receiver may close a connection at any time. It may have accepted the request that was on its way, so that request
/// is not resent early; from then on this receiver gets one connection per message.
#[tokio::test]
async fn a_request_is_sent_once_and_a_receiver_that_closes_gets_connections_of_their_own() {
    for (how, steps) in [
        ("in the next request", vec![REQUEST, OK, REQUEST]),
        ("in the next answer", vec![REQUEST, OK, REQUEST, Step::Say("HTTP/1.1 20")]),
        ("by a reset", vec![REQUEST, OK, REQUEST, Step::Reset]),
    ] {
        let (receiver, client) = (ScriptedServer::start(steps).await, client(&inside()));
        assert_eq!(send(&client, &receiver, true).await.status, Some(200));
        let outcome = send(&client, &receiver, true).await;
        assert_eq!(outcome.class, OutcomeClass::Transient, "it closes {how}");
        assert_eq!(receiver.heard(), 2, "it closes {how}: one request, one attempt");
        for _ in 0..2 {
            assert_eq!(send(&client, &receiver, true).await.status, Some(200), "it closes {how}");
        }
    }
}

/// Bytes behind a response answer nothing: otherwise the receiver would decide about a message that it has not
/// received.
#[tokio::test]
async fn what_follows_an_answer_is_no_answer_to_the_next_request() {
    let early = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
    let (receiver, client) = (ScriptedServer::start([REQUEST, Step::Say(early), Step::Hang]).await, client(&inside()));
    for _ in 0..3 {
        assert_eq!(send(&client, &receiver, true).await.status, Some(200));
    }
}

/// Between two requests a flood is read only for as long as closing takes.
#[tokio::test]
async fn a_kept_connection_that_is_flooded_is_closed() {
    let (receiver, client) = (ScriptedServer::start([REQUEST, OK, Step::Flood("x")]).await, client(&inside()));
    assert_eq!(send(&client, &receiver, true).await.status, Some(200));
    receiver.has_served(1).await;
}

/// A receiver that answered on one connection and hung on all others used to get a socket and a task of the daemon per
/// attempt: an attempt that finds a kept connection leaves its own new one to the background.
#[tokio::test]
async fn a_connection_that_an_attempt_no_longer_needs_has_a_deadline() {
    let (certificates, listener) = (Certificates::new(), TcpListener::bind("127.0.0.1:0").await.expect("a free port"));
    let (acceptor, url) = (certificates.acceptor(), format!("https://{}/", listener.local_addr().expect("an address")));
    let ca_file = Some(certificates.authority_file());
    let client = client(&WebhookConfig { ca_file, timeout: Duration::from_secs(2), ..inside() });
    let receiver = async {
        let (first, _) = listener.accept().await.expect("a connection");
        let mut first = acceptor.accept(first).await.expect("a handshake");
        let (mut silent, _) = listener.accept().await.expect("another connection");
        for _ in 0..2 {
            hear_request(&mut first).await;
            first.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("it listens");
        }
        // Ends when the client closes.
        let left = tokio::time::timeout(WAIT_MAX, silent.read_to_end(&mut Vec::new())).await;
        left.expect("the client leaves in time").expect("it closes");
    };
    let attempts = async { tokio::join!(send_to(&client, &url, true), send_to(&client, &url, true)) };
    let ((first, second), ()) = tokio::join!(attempts, receiver);
    assert_eq!((first.status, second.status), (Some(200), Some(200)), "{first:?} {second:?}");
}

async fn hear_request(stream: &mut (impl AsyncRead + Unpin)) {
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n{}") {
        heard.push(stream.read_u8().await.expect("a request"));
    }
}
