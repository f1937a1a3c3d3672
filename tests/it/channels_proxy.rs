//! Webhooks through a proxy: requests to the proxy, forbidden requests, and the outcomes of refusals.

use std::time::Duration;

use crate::channels_webhook::{error, inside, send_through};
use crate::support::certificates::Certificates;
use crate::support::connect_proxy::ConnectProxy;
use crate::support::name_server::{Knows, NameServer};
use crate::support::receivers::HttpCatcher;
use crate::support::redis_server::free_port;
use crate::support::scripted_server::{REQUEST, ScriptedServer, Step};
use quotabell::channels::DnsConfig;
use quotabell::channels::webhook::{WebhookBody, WebhookClient, WebhookConfig, WebhookRequest};
use quotabell::contacts::ExtraHeaders;
use quotabell::types::OutcomeClass;

/// Everything on this machine may be called through this proxy.
fn through(proxy: &str) -> WebhookConfig {
    WebhookConfig { proxy: Some(proxy.into()), ..inside() }
}

/// A machine without another way out sends through the proxy, which resolves names itself. TLS ends at the receiver.
#[tokio::test]
async fn webhooks_go_through_the_proxy() {
    let (proxy, certificates) = (ConnectProxy::start().await, Certificates::new());
    let names = NameServer::start(|_| Knows::Nothing).await;
    let config = WebhookConfig {
        ca_file: Some(certificates.authority_file()),
        ..through(&proxy.url().replace("http://", "http://alice:p%3Aw@"))
    };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    let mut plain = HttpCatcher::start([]).await.expect("a receiver");
    let secured = [Step::Tls(certificates.acceptor()), REQUEST, Step::Say("HTTP/1.1 201 Created\r\n\r\n")];
    let secured = ScriptedServer::start(secured).await;
    let targets = [
        (format!("http://only-the-proxy-knows.test:{}/hook", plain.address().port()), 204),
        (format!("http://127.0.0.1:{}/hook", plain.address().port()), 204),
        (format!("https://localhost:{}/hook", secured.port()), 201),
    ];
    for (url, status) in &targets {
        let outcome = send_through(&client, url).await;
        assert_eq!((outcome.class, outcome.status), (OutcomeClass::Delivered, Some(*status)), "{url}: {outcome:?}");
    }
    let asked: Vec<String> = proxy.asked().into_iter().map(|asked| asked.target).collect();
    let hosts = targets.map(|(url, _)| url.split('/').nth(2).expect("a host").to_owned());
    assert_eq!(asked, hosts);
    // "alice:p:w" in base64.
    assert!(proxy.asked().iter().all(|asked| asked.authorization.as_deref() == Some("Basic YWxpY2U6cDp3")));
    let caught = plain.next().await;
    assert_eq!((caught.uri.path(), caught.headers.get("proxy-authorization")), ("/hook", None));
}

/// The filter decides before the proxy is asked, because a proxy inside the network reaches internal addresses.
#[tokio::test]
async fn a_blocked_receiver_is_never_asked_for() {
    let proxy = ConnectProxy::start().await;
    let names = NameServer::start(|name| match name {
        "inside.test" => Knows::Addresses(vec![[10, 0, 0, 1].into()]),
        "metadata.test" => Knows::Addresses(vec![[8, 8, 8, 8].into(), [169, 254, 169, 254].into()]),
        _ => Knows::Nothing,
    })
    .await;
    let config = WebhookConfig { allow_private_networks: false, ..through(&proxy.url()) };
    let client = WebhookClient::new(&config, &names.config()).expect("a client");
    for host in ["127.0.0.1", "2130706433", "[::ffff:10.0.0.1]", "169.254.169.254", "inside.test", "metadata.test"] {
        let url = format!("http://{host}:{}/", proxy.address().port());
        for outcome in [client.check(&url).await, send_through(&client, &url).await] {
            assert_eq!(outcome.class, OutcomeClass::Permanent, "{host}: {outcome:?}");
            assert!(error(&outcome).starts_with("blocked address"), "{host}: {outcome:?}");
        }
    }
    assert_eq!(proxy.asked(), []);
}

/// A refusing or missing proxy is not the receiver's fault: the error and its hint must say so.
#[tokio::test]
async fn what_the_proxy_refuses_is_tried_again_and_names_the_proxy() {
    for (answer, said, hint) in [
        (Step::Say("HTTP/1.1 403 Forbidden\r\n\r\n"), "proxy: HTTP 403", "its rules"),
        (
            Step::Say("HTTP/1.0 407 Who\r\nproxy-authenticate: Basic\r\n\r\n"),
            "proxy: HTTP 407",
            "a user and a password",
        ),
        (Step::Say("SSH-2.0-OpenSSH\r\n\r\n"), "proxy: the answer is not HTTP", "the port"),
        (Step::Flood("HTTP/1.1 200 OK\r\n"), "proxy: the answer is not HTTP", "the port"),
        (Step::Say(""), "proxy: connection closed early", "the proxy listens"),
    ] {
        let proxy = ScriptedServer::start([REQUEST, answer]).await;
        let config = through(&format!("http://{}", proxy.address()));
        let client = WebhookClient::new(&config, &DnsConfig::default()).expect("a client");
        let outcome = send_through(&client, "http://127.0.0.1:9/").await;
        assert_eq!((outcome.class, error(&outcome)), (OutcomeClass::Transient, said));
        assert!(outcome.hint.is_some_and(|found| found.contains(hint)), "{outcome:?}");
    }
    let absent = through(&format!("http://127.0.0.1:{}", free_port()));
    let client = WebhookClient::new(&absent, &DnsConfig::default()).expect("a client");
    for outcome in [client.check("http://127.0.0.1:9/").await, send_through(&client, "http://127.0.0.1:9/").await] {
        let said = (outcome.class, error(&outcome));
        assert_eq!(said, (OutcomeClass::Transient, "proxy: connect: connection refused"), "{outcome:?}");
    }
    let silent = ScriptedServer::start([REQUEST, Step::Hang]).await;
    let config =
        WebhookConfig { timeout: Duration::from_millis(400), ..through(&format!("http://{}", silent.address())) };
    let client = WebhookClient::new(&config, &DnsConfig::default()).expect("a client");
    assert_eq!(error(&send_through(&client, "http://127.0.0.1:9/").await), "deadline of 400ms passed");
}

/// Concurrent messages to one receiver also share a connection through the proxy.
#[tokio::test]
async fn a_connection_through_the_proxy_is_kept() {
    let (proxy, receiver) = (ConnectProxy::start().await, HttpCatcher::start([]).await.expect("a receiver"));
    let client = WebhookClient::new(&through(&proxy.url()), &DnsConfig::default()).expect("a client");
    let (url, body, headers) = (receiver.url("/"), WebhookBody::json("{}".to_owned()), ExtraHeaders::default());
    for _ in 0..3 {
        let request = WebhookRequest {
            id: "alert_0123",
            now_s: crate::channels_webhook::now_s(),
            url: &url,
            secret: None,
            body: &body,
            headers: &headers,
            traceparent: None,
            challenge: None,
            keeps_connection: true,
        };
        assert_eq!(client.send(request).await.class, OutcomeClass::Delivered);
    }
    assert_eq!(proxy.asked().len(), 1);
}

/// A misspelled proxy must not cause webhooks to be sent without one.
#[tokio::test]
async fn a_proxy_that_is_none_is_a_mistake_of_the_setting() {
    for bad in ["proxy.test:3128", "https://proxy.test", "http://proxy.test/path"] {
        let error = WebhookClient::new(&through(bad), &DnsConfig::default()).expect_err(bad);
        assert_eq!(error.setting, Some("webhook.proxy"), "{bad}");
    }
}
