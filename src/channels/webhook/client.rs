//! One attempt over HTTP: a signed POST (Standard Webhooks 1.0) to a URL that a subject chose.
//!
//! Owns the client, the resolver that refuses blocked addresses, the deadline and the class of the outcome. Never follows a
//! redirect, never uses a proxy, and hands on what the receiver answered only as the short reply of an outcome.
//! Read next: [`super::blocked_networks`] for what may be called.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::time::timeout_at;

use super::blocked_networks::{Blocked, CallRules, PlainHttp, PrivateNetworks};
use super::config::WebhookConfig;
use super::error::WebhookError;
use super::retry_after;
use super::secret::SigningSecrets;
use crate::channels::authorities;
use crate::channels::connection_error::{self, ConnectionError};
use crate::types::outcome::printable_reply;
use crate::types::secret::same_secret;
use crate::types::{Class, Outcome, Secret};

/// The most that is read of an answer. Of the answer to an alert nothing is used: reading it lets a receiver finish writing before
/// the connection closes. An echo is far shorter. And no receiver may keep us reading.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// What to do about 410, which ends the delivery.
const GONE: &str = "the receiver wants no more webhooks: remove the contact, or ask its owner for another URL";
/// What to do about a certificate that is not trusted.
const UNTRUSTED: &str = "if the certificate authority is your own, name its PEM file as webhook.ca_file";
/// What the attempt log says of a receiver that took a challenge and sent something else back.
const NOT_ECHOED: &str = "the receiver did not send the challenge back";
/// What receivers see as our name.
const USER_AGENT: &str = concat!("quotabell/", env!("CARGO_PKG_VERSION"));

/// One webhook to send.
#[derive(Debug, Clone, Copy)]
pub struct WebhookRequest<'a> {
    /// `webhook-id`: the alert's id, the same on every attempt. Holds no dot.
    pub id: &'a str,
    /// `webhook-timestamp`: when this attempt starts, Unix seconds.
    pub now_s: i64,
    /// Where to, as the subject wrote it; judged here.
    pub url: &'a str,
    /// What signs it; judged here.
    pub secret: &'a Secret,
    /// The JSON.
    pub body: &'a str,
}

/// Sends webhooks.
#[derive(Debug, Clone)]
pub struct WebhookClient {
    client: Client,
    rules: CallRules,
    timeout: Duration,
}

/// How a receiver answers a challenge. It may say more.
#[derive(Deserialize)]
struct Echo {
    challenge: String,
}

/// What a receiver answered.
struct Answer {
    status: StatusCode,
    /// How the attempt ended, if this is no 2xx.
    refused: Option<Outcome>,
    /// The beginning of its body.
    body: Vec<u8>,
}

/// Why a request can't be made.
struct Unsendable {
    class: Class,
    error: String,
}

impl WebhookClient {
    /// Builds the client. Connects nowhere.
    ///
    /// Connections are not kept: each attempt resolves and judges its receiver anew.
    ///
    /// # Errors
    ///
    /// [`WebhookError`], when `webhook.ca_file` or the TLS set-up is broken.
    pub fn new(config: &WebhookConfig) -> Result<Self, WebhookError> {
        let rules = CallRules {
            plain_http: if config.allow_http { PlainHttp::Allowed } else { PlainHttp::Refused },
            private_networks: match config.allow_private_networks {
                true => PrivateNetworks::Allowed,
                false => PrivateNetworks::Refused,
            },
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls(config)?)
            .dns_resolver(CheckedResolver { rules })
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .pool_max_idle_per_host(0)
            .user_agent(USER_AGENT)
            .build()
            .map_err(WebhookError::HttpClient)?;
        Ok(Self { client, rules, timeout: config.timeout })
    }

    /// Sends one webhook and says how it ended. Leaves the machine; repeating it sends again, with the same id.
    ///
    /// The deadline covers all of it: name, connection, TLS, request and answer. The status line decides: a receiver that said
    /// 2xx has the alert, so an error in the rest of its answer does not make us send it twice.
    pub async fn send(&self, request: WebhookRequest<'_>) -> Outcome {
        let started = Instant::now();
        let outcome = match self.exchange(request).await {
            Ok(Answer { refused: None, status, .. }) => {
                Outcome { status: Some(status.as_u16()), ..Outcome::delivered() }
            }
            Ok(Answer { refused: Some(refused), .. }) => refused,
            Err(failed) => failed,
        };
        Outcome { took: started.elapsed(), peer: peer(request.url), ..outcome }
    }

    /// Whether this URL may be called and its host has an address, judged as an attempt would. Asks for the name, connects nowhere.
    pub async fn check(&self, url: &str) -> Outcome {
        let started = Instant::now();
        let outcome = match tokio::time::timeout(self.timeout, self.judge(url)).await {
            Ok(Ok(())) => Outcome::delivered(),
            Ok(Err((class, error))) => Outcome::failed(class, error),
            Err(_) => Outcome::failed(Class::Transient, "the name of its host is not resolved in time"),
        };
        Outcome { took: started.elapsed(), peer: peer(url), ..outcome }
    }

    async fn judge(&self, url: &str) -> Result<(), (Class, String)> {
        let permanent = |error: String| (Class::Permanent, error);
        let url = self.rules.judge_url(url).map_err(|error| permanent(error.to_string()))?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let found = tokio::net::lookup_host((host, 0)).await;
        let found = found.map_err(|_| (Class::Transient, "the name of its host is not resolved".to_owned()))?;
        self.rules.judge_all(found.map(|address| address.ip())).map_err(|blocked| permanent(blocked.to_string()))
    }

    /// Sends one webhook whose answer must be 2xx with `{"challenge": ...}`, the text that the body challenged it with. Leaves the
    /// machine. The deadline covers the answer too, and only its first 16 KiB are looked at.
    ///
    /// Delivered: the receiver sent the challenge back, so whoever runs it wants what we send. A receiver that answered 2xx with
    /// something else is a permanent failure with that status.
    pub async fn challenge(&self, request: WebhookRequest<'_>, challenge: &str) -> Outcome {
        let started = Instant::now();
        let outcome = match self.exchange(request).await {
            Err(failed) | Ok(Answer { refused: Some(failed), .. }) => failed,
            Ok(Answer { status, body, .. }) => {
                let status = Some(status.as_u16());
                match serde_json::from_slice::<Echo>(&body) {
                    Ok(echo) if same_secret(echo.challenge.as_bytes(), challenge.as_bytes()) => {
                        Outcome { status, ..Outcome::delivered() }
                    }
                    _ => Outcome {
                        status,
                        reply: printable_reply(&body),
                        ..Outcome::failed(Class::Permanent, NOT_ECHOED)
                    },
                }
            }
        };
        Outcome { took: started.elapsed(), peer: peer(request.url), ..outcome }
    }

    /// One request and its answer.
    async fn exchange(&self, request: WebhookRequest<'_>) -> Result<Answer, Outcome> {
        let permanent = |error: String| Outcome::failed(Class::Permanent, error);
        let url = self.rules.judge_url(request.url).map_err(|error| permanent(error.to_string()))?;
        let headers = headers(&request).map_err(|Unsendable { class, error }| Outcome::failed(class, error))?;
        let deadline = tokio::time::Instant::now() + self.timeout;
        let sending = self.client.post(url).headers(headers).body(request.body.to_owned()).send();
        let Ok(sent) = timeout_at(deadline, sending).await else {
            let error = format!("deadline of {} passed", humantime::format_duration(self.timeout));
            return Err(Outcome::failed(Class::Transient, error));
        };
        let response = sent.map_err(|error| failure(&error))?;
        let (status, refused) = (response.status(), refusal(&response, request.now_s));
        let mut body = Vec::new();
        // The deadline or the receiver may cut it short.
        let _ = timeout_at(deadline, read(response, &mut body)).await;
        let refused = refused.map(|refused| Outcome { reply: printable_reply(&body), ..refused });
        Ok(Answer { status, refused, body })
    }
}

/// Host and port of a receiver.
fn peer(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The class of a request that got no answer. Only a blocked address and a URL that HTTP cannot express are beyond retrying.
fn failure(error: &reqwest::Error) -> Outcome {
    if let Some(blocked) = connection_error::chain(error).find_map(|error| error.downcast_ref::<Blocked>()) {
        return Outcome::failed(Class::Permanent, blocked.to_string());
    }
    if error.is_builder() {
        return Outcome::failed(Class::Permanent, "malformed URL");
    }
    let found = connection_error::find(error, "request failed");
    let hint = (found == ConnectionError::Untrusted).then_some(UNTRUSTED);
    Outcome { hint, ..Outcome::failed(Class::Transient, found.to_string()) }
}

/// How an attempt ended that got this answer, by its status alone; `None` where it was taken.
fn refusal(response: &Response, now_s: i64) -> Option<Outcome> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let text = format!("HTTP {}", status.as_u16());
    let failed = match status {
        StatusCode::GONE => Outcome { hint: Some(GONE), ..Outcome::failed(Class::Permanent, text) },
        _ => Outcome::failed(Class::Transient, text),
    };
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = asked.and_then(|value| retry_after::parse(value, now_s));
    Some(Outcome { status: Some(status.as_u16()), retry_after, ..failed })
}

/// Reads the body as far as it comes, at most [`ANSWER_BYTES_MAX`].
async fn read(mut response: Response, body: &mut Vec<u8>) {
    while body.len() < ANSWER_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - body.len())]),
            Ok(None) | Err(_) => break,
        }
    }
}

/// The headers of the standard. A secret that cannot sign may be mended: the contact is read anew at each attempt.
fn headers(request: &WebhookRequest<'_>) -> Result<HeaderMap, Unsendable> {
    let secrets = SigningSecrets::parse(request.secret)
        .map_err(|error| Unsendable { class: Class::Transient, error: error.to_string() })?;
    let signature = secrets.sign(request.id, request.now_s, request.body);
    let value = |text: &str| {
        let unsendable = |_| Unsendable { class: Class::Permanent, error: "id does not fit into a header".to_owned() };
        HeaderValue::from_str(text).map_err(unsendable)
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("webhook-id", value(request.id)?);
    headers.insert("webhook-timestamp", HeaderValue::from(request.now_s));
    headers.insert("webhook-signature", value(&signature)?);
    Ok(headers)
}

/// TLS with ring, the system's authorities and `ca_file`. Built here rather than by reqwest, which fails without any authority
/// on the system even where only plain HTTP is called.
fn tls(config: &WebhookConfig) -> Result<rustls::ClientConfig, WebhookError> {
    let roots = authorities::roots("webhook.ca_file", config.ca_file.as_deref())?;
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(WebhookError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Resolves as the system does, and refuses the host when any of its addresses is blocked. What it returns is what is connected
/// to: there is no second look-up between the judgement and the connection.
struct CheckedResolver {
    rules: CallRules,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = self.rules;
        Box::pin(async move {
            // The port is a placeholder: reqwest puts the URL's own in its place.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            rules.judge_all(found.iter().map(|address: &SocketAddr| -> IpAddr { address.ip() }))?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
