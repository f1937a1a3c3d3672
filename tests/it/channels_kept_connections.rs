//! Connections to receivers that get several messages at once: used for more than one, and never at the cost of a message.

use quotabell::channels::webhook::{WebhookBody, WebhookClient, WebhookRequest};
use quotabell::contacts::ExtraHeaders;
use quotabell::types::{Class, Outcome};

use crate::channels_webhook::{client, error, inside, now_s};
use crate::support::scripted_server::{REQUEST, ScriptedServer, Step};

const OK: Step = Step::Say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
/// Tells a second answer on one connection from the first on another.
const SECOND: Step = Step::Say("HTTP/1.1 204 No Content\r\n\r\n");

async fn send(client: &WebhookClient, receiver: &ScriptedServer, keeps_connection: bool) -> Outcome {
    let body = WebhookBody::json("{}".to_owned());
    let (url, headers) = (receiver.url(), ExtraHeaders::default());
    let request = WebhookRequest {
        id: "alert_0123",
        now_s: now_s(),
        url: &url,
        secret: None,
        body: &body,
        headers: &headers,
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

/// A new connection for each message costs both sides more than the message.
#[tokio::test]
async fn a_connection_serves_what_follows_at_once() {
    let steps = [REQUEST, OK, REQUEST, SECOND];
    assert_eq!(statuses(steps.clone(), true).await, [Some(200), Some(204)]);
    assert_eq!(statuses(steps, false).await, [Some(200), Some(200)], "nothing follows: a connection each");
}

/// A receiver may close a connection whenever it likes. A request that was on its way then is sent again at once, so that nobody waits
/// for a second attempt, and the receiver doesn't count as one that fails.
#[tokio::test]
async fn a_receiver_that_closes_a_kept_connection_has_not_failed() {
    for (how, steps) in [
        ("after its answer", vec![REQUEST, OK]),
        ("in the next request", vec![REQUEST, OK, REQUEST]),
        ("in the next answer", vec![REQUEST, OK, REQUEST, Step::Say("HTTP/1.1 20")]),
        ("by a reset", vec![REQUEST, OK, REQUEST, Step::Reset]),
    ] {
        assert_eq!(statuses(steps, true).await, [Some(200), Some(200)], "it closes {how}");
    }
}

/// One that always closes is asked twice at most, and has failed.
#[tokio::test]
async fn a_receiver_that_closes_every_connection_fails() {
    let receiver = ScriptedServer::start([REQUEST]).await;
    let outcome = send(&client(&inside()), &receiver, true).await;
    assert_eq!((outcome.class, error(&outcome)), (Class::Transient, "connection closed early"));
    receiver.has_served(2).await;
    assert_eq!(receiver.served(), 2);
}

/// What comes behind an answer answers nothing: the receiver would decide about a message that it has not got.
#[tokio::test]
async fn what_follows_an_answer_is_no_answer_to_the_next_request() {
    let early = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
    let (receiver, client) = (ScriptedServer::start([REQUEST, Step::Say(early), Step::Hang]).await, client(&inside()));
    for _ in 0..3 {
        assert_eq!(send(&client, &receiver, true).await.status, Some(200));
    }
}

/// Between two requests nobody reads a flood for longer than it takes to close.
#[tokio::test]
async fn a_kept_connection_that_is_flooded_is_closed() {
    let (receiver, client) = (ScriptedServer::start([REQUEST, OK, Step::Flood("x")]).await, client(&inside()));
    assert_eq!(send(&client, &receiver, true).await.status, Some(200));
    receiver.has_served(1).await;
}
