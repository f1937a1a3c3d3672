//! Webhooks on real receivers: what arrives, and the class of every outcome.

use std::time::{Duration, Instant};

use crate::support::certificates::Certificates;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::redis_server::free_port;
use crate::support::scripted_server::{REQUEST, ScriptedServer, Step};
use quotabell::channels::DnsConfig;
use quotabell::channels::webhook::{WebhookBody, WebhookClient, WebhookConfig, WebhookRequest};
use quotabell::contacts::ExtraHeaders;
use quotabell::types::{DisableReason, Outcome, OutcomeClass, Secret};
use tokio_util::sync::CancellationToken;

const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Short, so that a hanging receiver costs little; long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(400);

/// Everything on this machine may be called.
pub(super) fn inside() -> WebhookConfig {
    WebhookConfig {
        timeout: Duration::from_secs(20),
        allow_http: true,
        allow_private_networks: true,
        allowed_networks: Vec::new(),
        templates: None,
        ca_file: None,
        per_destination: None,
        proxy: None,
    }
}

pub(super) fn now_s() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    i64::try_from(since.as_secs()).expect("in range")
}

pub(super) fn client(config: &WebhookConfig) -> WebhookClient {
    WebhookClient::new(config, &DnsConfig::default()).expect("a client")
}

async fn send_signed(config: &WebhookConfig, url: &str, secret: &str) -> Outcome {
    send_signed_through(&client(config), url, secret).await
}

async fn send_signed_through(client: &WebhookClient, url: &str, secret: &str) -> Outcome {
    let secret = Secret::new(secret.to_owned());
    let body = WebhookBody::json(r#"{"type":"quota.threshold_reached","data":{"subject":"ålice"}}"#.to_owned());
    let (secret, headers) = (Some(&secret), ExtraHeaders::default());
    let request = WebhookRequest {
        id: "alert_0123",
        now_s: now_s(),
        url,
        secret,
        body: &body,
        headers: &headers,
        traceparent: None,
        challenge: None,
        keeps_connection: false,
    };
    client.send(request).await
}

pub(super) async fn send_through(client: &WebhookClient, url: &str) -> Outcome {
    send_signed_through(client, url, OLD).await
}

pub(super) async fn send(config: &WebhookConfig, url: &str) -> Outcome {
    send_signed(config, url, OLD).await
}

async fn answered(answer: Answer) -> Outcome {
    let receiver = HttpCatcher::start([answer]).await.expect("a receiver");
    send(&inside(), &receiver.url("/hook")).await
}

pub(super) fn error(outcome: &Outcome) -> &str {
    outcome.error.as_deref().unwrap_or_default()
}

/// A receiver verifies with the standard's own library, which refuses a body or header with one wrong byte.
#[tokio::test]
async fn the_receiver_can_verify_what_it_gets() {
    let mut receiver = HttpCatcher::start([Answer::status(200)]).await.expect("a receiver");
    let outcome = send(&inside(), &receiver.url("/hook?a=b")).await;
    assert_eq!((outcome.class, outcome.status, outcome.error), (OutcomeClass::Delivered, Some(200), None));

    let caught = receiver.next().await;
    let verifier = standardwebhooks::Webhook::new(OLD).expect("a secret");
    verifier.verify(&caught.body, &caught.headers).expect("a valid signature");
    assert_eq!((caught.method.as_str(), caught.uri.to_string().as_str()), ("POST", "/hook?a=b"));
    assert_eq!(caught.headers["webhook-id"], "alert_0123");
    assert_eq!(caught.headers["content-type"], "application/json");
    assert_eq!(caught.headers["user-agent"], concat!("quotabell/", env!("CARGO_PKG_VERSION")));
    assert!(caught.headers.get("accept-encoding").is_none(), "an answer must not be decompressed");

    let tampered = caught.body.iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
    assert!(verifier.verify(&tampered, &caught.headers).is_err());
}

/// While a secret rotates the receiver may know only the old or only the new one.
#[tokio::test]
async fn both_secrets_of_a_rotation_verify() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let outcome = send_signed(&inside(), &receiver.url("/"), &format!("{OLD} {NEW}")).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered);
    let caught = receiver.next().await;
    for secret in [OLD, NEW] {
        let verifier = standardwebhooks::Webhook::new(secret).expect("a secret");
        verifier.verify(&caught.body, &caught.headers).expect(secret);
    }
}

/// The outcome table: permanent refusals are not retried for days, temporary ones are.
#[tokio::test]
async fn every_status_has_its_class() {
    let of = |class: OutcomeClass, statuses: &'static [u16]| statuses.iter().map(move |status| (*status, class));
    let table = of(OutcomeClass::Delivered, &[200, 201, 202, 204, 206, 299])
        .chain(of(OutcomeClass::Rejected, &[400, 401, 402, 403, 404, 405, 406, 411, 412, 413, 414, 415, 416, 417]))
        .chain(of(OutcomeClass::Rejected, &[422, 426, 428, 431, 451]))
        .chain(of(OutcomeClass::Permanent, &[410]))
        .chain(of(OutcomeClass::Transient, &[300, 301, 304, 308, 407, 408, 409, 418, 421, 423, 424, 425, 429]))
        .chain(of(OutcomeClass::Transient, &[500, 501, 502, 503, 504, 507, 511, 599, 600, 999]));
    for (status, class) in table {
        let outcome = answered(Answer::status(status).body("<b>internals</b>")).await;
        assert_eq!((outcome.class, outcome.status), (class, Some(status)), "{status}");
        let expected = (class != OutcomeClass::Delivered).then(|| format!("HTTP {status}"));
        assert_eq!(outcome.error, expected, "the answer's body must stay out of it");
        assert_eq!(outcome.may_have_arrived, status != 503 && !(300..500).contains(&status), "{status}");
        let disables = (status == 410).then_some(DisableReason::Gone);
        assert_eq!(outcome.disables, disables, "{status}");
    }
}

/// The receiver's explicit instruction counts more than the status of its software.
#[tokio::test]
async fn a_receiver_can_disable_itself_or_abort_one_webhook() {
    for (status, directive, class, disables) in [
        (200, "disable", OutcomeClass::Delivered, Some(DisableReason::Asked)),
        (404, "disable", OutcomeClass::Permanent, Some(DisableReason::Asked)),
        (503, " disable ", OutcomeClass::Permanent, Some(DisableReason::Asked)),
        (410, "abort-message", OutcomeClass::Permanent, Some(DisableReason::Gone)),
        (200, "abort-message", OutcomeClass::Delivered, None),
        (422, "abort-message", OutcomeClass::Permanent, None),
        (500, "abort-message", OutcomeClass::Permanent, None),
        (500, "explode", OutcomeClass::Transient, None),
        (404, "", OutcomeClass::Rejected, None),
    ] {
        let outcome = answered(Answer::status(status).header("webhook-delivery", directive)).await;
        assert_eq!((outcome.class, outcome.disables), (class, disables), "{status} {directive:?}");
        assert_eq!(
            outcome.hint.is_some(),
            class == OutcomeClass::Permanent,
            "{status} {directive:?}: {:?}",
            outcome.hint
        );
    }
}

/// Following a redirect would send the alert anywhere, past the address filter.
#[tokio::test]
async fn redirects_are_not_followed() {
    let mut target = HttpCatcher::start([]).await.expect("a receiver");
    for status in [301, 302, 303, 307, 308] {
        let outcome = answered(Answer::status(status).header("location", &target.url("/elsewhere"))).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, format!("HTTP {status}").as_str()));
    }
    assert!(target.try_next().is_none(), "nobody was called there");
}

/// A request before the requested time may get us blocked.
#[tokio::test]
async fn retry_after_is_read_in_both_forms() {
    let seconds = answered(Answer::status(429).header("retry-after", "120")).await;
    assert_eq!(seconds.retry_after, Some(Duration::from_secs(120)));

    let date = chrono::DateTime::from_timestamp(now_s() + 120, 0).expect("a date");
    let date = date.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let dated = answered(Answer::status(503).header("retry-after", &date)).await.retry_after.expect("a wait");
    assert!((110..=120).contains(&dated.as_secs()), "{dated:?}");

    let nonsense = answered(Answer::status(503).header("retry-after", "soon")).await;
    assert_eq!((nonsense.class, nonsense.retry_after), (OutcomeClass::Transient, None));
}

/// A receiver that never answers must not occupy a worker beyond the deadline.
#[tokio::test]
async fn a_receiver_that_hangs_before_its_answer_runs_into_the_deadline() {
    let config = WebhookConfig { timeout: SHORT, ..inside() };
    let receiver = ScriptedServer::start([Step::Hang]).await;
    let started = Instant::now();
    let outcome = send(&config, &receiver.url()).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "deadline of 400ms passed"));
    assert!(started.elapsed() >= SHORT && outcome.took >= SHORT && outcome.may_have_arrived);

    let half_a_head = ScriptedServer::start([REQUEST, Step::Say("HTTP/1.1 200 OK\r\nserver: "), Step::Hang]).await;
    let outcome = send(&config, &half_a_head.url()).await;
    assert_eq!((outcome.class, outcome.status), (OutcomeClass::Transient, None));
}

/// The deadline covers the body too; but the status has decided about the alert: a 2xx is not resent, a 503 is.
#[tokio::test]
async fn a_receiver_that_hangs_in_its_body_has_answered() {
    let config = WebhookConfig { timeout: SHORT, ..inside() };
    for (head, class) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", OutcomeClass::Delivered),
        ("HTTP/1.1 503 Busy\r\ncontent-length: 100\r\nretry-after: 9\r\n\r\nhalf", OutcomeClass::Transient),
    ] {
        let receiver = ScriptedServer::start([REQUEST, Step::Say(head), Step::Hang]).await;
        let outcome = send(&config, &receiver.url()).await;
        assert_eq!(outcome.class, class);
        assert!(outcome.took >= SHORT && outcome.took < SHORT * 20, "{:?}", outcome.took);
    }
}

/// An endless response must neither fill the memory nor use up the deadline.
#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let receiver =
        ScriptedServer::start([REQUEST, Step::Say("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"), Step::Flood("x")])
            .await;
    let outcome = send(&inside(), &receiver.url()).await;
    assert_eq!(outcome.class, OutcomeClass::Delivered);
    assert!(outcome.took < Duration::from_secs(15), "{:?}", outcome.took);
}

/// A network error is not a refusal.
#[tokio::test]
async fn what_fails_on_the_way_is_transient() {
    let reset = ScriptedServer::start([REQUEST, Step::Reset]).await;
    let outcome = send(&inside(), &reset.url()).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "connection reset"));

    let refused = send(&inside(), &format!("http://127.0.0.1:{}/", free_port())).await;
    assert_eq!((refused.class, error(&refused)), (OutcomeClass::Transient, "connect: connection refused"));
    assert!(outcome.may_have_arrived && !refused.may_have_arrived);

    let nameless = send(&inside(), "https://receiver.invalid/hook").await;
    assert_eq!(nameless.class, OutcomeClass::Transient);
    assert!(error(&nameless).starts_with("DNS: "), "{}", error(&nameless));

    for (said, text) in [
        ("220 this is not HTTP\r\n", "the answer is not HTTP"),
        ("", "connection closed early"),
        ("HTTP/1.1 200 O", "connection closed early"),
    ] {
        let odd = ScriptedServer::start([REQUEST, Step::Say(said)]).await;
        let outcome = send(&inside(), &odd.url()).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, text), "{said:?}");
    }
}

/// I6: a subject must not reach internal addresses in any spelling, and the attempt must not be repeated.
#[tokio::test]
async fn blocked_addresses_are_never_called() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let port = receiver.address().port();
    let config = WebhookConfig { allow_private_networks: false, ..inside() };
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1]",
        "[::]",
        "0.0.0.0",
        "127.0.0.1.",
        "localhost",
        "LOCALHOST",
    ] {
        let outcome = send(&config, &format!("http://{host}:{port}/")).await;
        assert_eq!(outcome.class, OutcomeClass::Permanent, "{host}: {outcome:?}");
        assert!(error(&outcome).starts_with("blocked address ("), "{host}: {outcome:?}");
    }
    assert!(receiver.try_next().is_none(), "nobody was called");
    assert_eq!(send(&inside(), &format!("http://localhost:{port}/")).await.class, OutcomeClass::Delivered);
}

/// An error that retries can't fix ends the delivery at once; a fixable contact is retried. No error shows a secret.
#[tokio::test]
async fn malformed_urls_are_permanent_and_secrets_that_cannot_sign_are_not() {
    let https_only = WebhookConfig { allow_http: false, ..inside() };
    for (url, text) in [
        ("http://127.0.0.1:1/", "URL scheme not allowed, allowed is https"),
        ("https://user:pass@example.com/", "URL with user information"),
        ("https://[fe80::1%25eth0]/", "URL with a zone id"),
        ("not a url", "malformed URL"),
    ] {
        let outcome = send(&https_only, url).await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Permanent, text));
    }
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    for secret in ["", "secret", "whsec_AA==", "whsec_!"] {
        let outcome = send_signed(&inside(), &receiver.url("/"), secret).await;
        assert_eq!(outcome.class, OutcomeClass::Transient, "{secret}");
        assert!(error(&outcome).starts_with("webhook secret ") && error(&outcome).contains("24 to 64"), "{outcome:?}");
    }
    assert!(receiver.try_next().is_none());
}

/// An untrusted certificate is refused; `ca_file` makes it trusted; a certificate of another name is still refused.
#[tokio::test]
async fn tls_is_checked_and_ca_file_adds_trust() {
    let certificates = Certificates::new();
    let yes = |tls| [Step::Tls(tls), REQUEST, Step::Say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")];
    let receiver = ScriptedServer::start(yes(certificates.acceptor())).await;
    let url = format!("https://localhost:{}/", receiver.port());
    let outcome = send(&inside(), &url).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "TLS: certificate not trusted"));
    assert!(outcome.hint.is_some_and(|hint| hint.contains("webhook.ca_file")), "{outcome:?}");

    let trusting = WebhookConfig { ca_file: Some(certificates.authority_file()), ..inside() };
    let outcome = send(&trusting, &url).await;
    assert_eq!((outcome.class, outcome.status), (OutcomeClass::Delivered, Some(200)), "{outcome:?}");

    let others = Certificates::for_names(&["other.test"]);
    let receiver = ScriptedServer::start(yes(others.acceptor())).await;
    let trusting = WebhookConfig { ca_file: Some(others.authority_file()), ..inside() };
    let outcome = send(&trusting, &format!("https://localhost:{}/", receiver.port())).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "TLS: certificate is for another name"));

    let receiver = ScriptedServer::start(yes(Certificates::authority_as_server())).await;
    let outcome = send(&inside(), &format!("https://localhost:{}/", receiver.port())).await;
    assert_eq!(error(&outcome), "TLS: certificate is that of an authority, not of a server");
    assert!(outcome.hint.is_some_and(|hint| hint.contains("webhook.ca_file")), "{outcome:?}");

    let plain = HttpCatcher::start([]).await.expect("a receiver");
    let outcome = send(&inside(), &format!("https://{}/", plain.address())).await;
    assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, "TLS: the other side does not speak TLS"));
}

/// An invalid `ca_file` is found at start, with its name, and not at the first alert.
#[tokio::test]
async fn a_broken_ca_file_is_a_configuration_error() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("ca.pem");
    let config = WebhookConfig { ca_file: Some(path.clone()), ..inside() };
    let text = || WebhookClient::new(&config, &DnsConfig::default()).expect_err("broken").to_string();
    assert!(text().starts_with("webhook.ca_file: read "), "{}", text());
    std::fs::write(&path, "nothing here").expect("written");
    assert!(text().contains("holds no certificate"), "{}", text());
}

/// The receiver may take its time: a slow success within the deadline is a success.
#[tokio::test]
async fn a_slow_answer_inside_the_deadline_counts() {
    let gate = CancellationToken::new();
    let mut receiver = HttpCatcher::start([Answer::status(200).held_by(&gate)]).await.expect("a receiver");
    let (url, config) = (receiver.url("/"), inside());
    let (outcome, ()) = tokio::join!(send(&config, &url), async {
        receiver.next().await;
        gate.cancel();
    });
    assert_eq!(outcome.class, OutcomeClass::Delivered);
}

/// The operator can read the beginning of a refusal and a hint; the error contains neither.
#[tokio::test]
async fn a_refusal_is_kept_with_a_hint_and_apart_from_the_error() {
    let gone = answered(Answer::status(410)).await;
    assert_eq!((error(&gone), gone.hint.is_some()), ("HTTP 410", true));
    let long = format!("busy\n\x1b[31m{}", "x".repeat(2000));
    let receiver = HttpCatcher::start([Answer::status(503).body(&long)]).await.expect("a receiver");
    let busy = send(&inside(), &receiver.url("/hook?token=secret")).await;
    let reply = busy.reply.as_deref().unwrap_or_default();
    assert!(reply.starts_with("busy [31mxxx") && reply.len() <= 512, "{reply:?}");
    assert_eq!((error(&busy), busy.hint), ("HTTP 503", None));
    let peer = busy.peer.as_deref().unwrap_or_default();
    assert!(peer.starts_with("127.0.0.1:") && !peer.contains("secret"), "{peer}");
}
