//! One attempt over HTTP: a signed POST (Standard Webhooks 1.0) to a URL that a subject chose.
//!
//! Owns the client, the resolver that refuses blocked addresses, the deadline and the class of the outcome. Never follows a
//! redirect, never uses a proxy, never hands on what the receiver answered: of the answer to a challenge it says whether it was the
//! right one. Read next: [`super::address`] for what may be called.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::time::timeout_at;

use super::TransportError;
use super::address::{PlainHttp, PrivateNetworks, Reach};
use super::config::WebhookConfig;
use super::email::{Arrival, Posted};
use super::secret::SigningSecrets;
use super::trouble::{self, Trouble};
use super::{authorities, retry_after};
use crate::types::{Class, Outcome, Secret};

/// The most that is read of an answer. Of the answer to an alert nothing is used: reading it lets a receiver finish writing before
/// the connection closes. An echo is far shorter. And no receiver may keep us reading.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
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
pub struct Webhook {
    client: Client,
    reach: Reach,
    timeout: Duration,
}

/// What became of a challenge.
#[derive(Debug)]
pub enum Challenged {
    /// The receiver sent it back: whoever runs it wants what we send.
    Echoed,
    /// The receiver took it, and answered something else.
    NotEchoed,
    /// It did not arrive, or was refused.
    Failed(Posted),
}

/// How a receiver answers a challenge. It may say more.
#[derive(Deserialize)]
struct Echo {
    challenge: String,
}

/// A receiver's answer whose body is not read yet.
struct Answer {
    response: Response,
    /// Until when it may be read.
    deadline: tokio::time::Instant,
}

/// Why an attempt failed; how it ends in the attempt log.
struct Failure {
    class: Class,
    status: Option<u16>,
    error: String,
    retry_after: Option<Duration>,
    arrival: Arrival,
}

impl Webhook {
    /// Builds the client. Connects nowhere.
    ///
    /// Connections are not kept: each attempt resolves and judges its receiver anew.
    ///
    /// # Errors
    ///
    /// [`TransportError`], when `webhook.ca_file` or the TLS set-up is broken.
    pub fn new(config: &WebhookConfig) -> Result<Self, TransportError> {
        let reach = Reach {
            plain_http: if config.allow_http { PlainHttp::Allowed } else { PlainHttp::Refused },
            private_networks: match config.allow_private_networks {
                true => PrivateNetworks::Allowed,
                false => PrivateNetworks::Refused,
            },
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls(config)?)
            .dns_resolver(CheckedResolver { reach })
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .pool_max_idle_per_host(0)
            .user_agent(USER_AGENT)
            .build()
            .map_err(TransportError::HttpClient)?;
        Ok(Self { client, reach, timeout: config.timeout })
    }

    /// Sends one webhook and says how it ended. Leaves the machine; repeating it sends again, with the same id.
    ///
    /// The deadline covers all of it: name, connection, TLS, request and answer. The status line decides: a receiver that said
    /// 2xx has the alert, so trouble in the rest of its answer does not make us send it twice.
    pub async fn send(&self, request: WebhookRequest<'_>) -> Outcome {
        let started = Instant::now();
        let ended = self.attempt(request).await;
        outcome(ended, started.elapsed())
    }

    /// Sends one webhook whose answer must be 2xx with `{"challenge": ...}`, the text that the body challenged it with. Leaves the
    /// machine. The deadline covers the answer too, and only its first 16 KiB are looked at.
    pub async fn challenge(&self, request: WebhookRequest<'_>, challenge: &str) -> Challenged {
        let started = Instant::now();
        let Answer { response, deadline } = match self.exchange(request).await {
            Ok(answer) => answer,
            Err(failure) => return Challenged::Failed(failure.posted(started.elapsed())),
        };
        if let Err(failure) = judge_answer(&response, request.now_s) {
            return Challenged::Failed(failure.posted(started.elapsed()));
        }
        let body = timeout_at(deadline, read(response)).await.unwrap_or_default();
        match serde_json::from_slice::<Echo>(&body) {
            Ok(echo) if echo.challenge == challenge => Challenged::Echoed,
            _ => Challenged::NotEchoed,
        }
    }

    async fn attempt(&self, request: WebhookRequest<'_>) -> Result<StatusCode, Failure> {
        let Answer { response, deadline } = self.exchange(request).await?;
        let judged = judge_answer(&response, request.now_s);
        // Only politeness, so its end changes nothing: the deadline or the receiver may cut it short.
        let _ = timeout_at(deadline, read(response)).await;
        judged
    }

    async fn exchange(&self, request: WebhookRequest<'_>) -> Result<Answer, Failure> {
        let url = self.reach.judge_url(request.url).map_err(|error| Failure::permanent(error.to_string()))?;
        let headers = headers(&request)?;
        let deadline = tokio::time::Instant::now() + self.timeout;
        let posting = self.post(url, headers, request.body);
        let Ok(posted) = timeout_at(deadline, posting).await else {
            return Err(Failure::transient(self.deadline_text(), Arrival::Possible));
        };
        let response = posted.map_err(|error| Failure::of(&error))?;
        Ok(Answer { response, deadline })
    }

    async fn post(&self, url: Url, headers: HeaderMap, body: &str) -> reqwest::Result<Response> {
        self.client.post(url).headers(headers).body(body.to_owned()).send().await
    }

    fn deadline_text(&self) -> String {
        format!("deadline of {} passed", humantime::format_duration(self.timeout))
    }
}

impl Failure {
    fn permanent(error: String) -> Self {
        Self { class: Class::Permanent, status: None, error, retry_after: None, arrival: Arrival::Never }
    }

    fn transient(error: String, arrival: Arrival) -> Self {
        Self { class: Class::Transient, status: None, error, retry_after: None, arrival }
    }

    fn posted(self, took: Duration) -> Posted {
        let arrival = self.arrival;
        Posted { outcome: outcome(Err(self), took), arrival }
    }

    /// The class of a request that got no answer. Only a blocked address and a URL that HTTP cannot express are beyond retrying.
    fn of(error: &reqwest::Error) -> Self {
        match trouble::find(error, "request failed") {
            Trouble::Blocked(blocked) => Self::permanent(blocked.to_string()),
            Trouble::Other(_) if error.is_builder() => Self::permanent("malformed URL".to_owned()),
            Trouble::Other(text) if error.is_connect() => Self::transient(text, Arrival::Never),
            Trouble::Other(text) => Self::transient(text, Arrival::Possible),
        }
    }
}

fn outcome(ended: Result<StatusCode, Failure>, took: Duration) -> Outcome {
    match ended {
        Ok(status) => {
            Outcome { class: Class::Delivered, status: Some(status.as_u16()), error: None, retry_after: None, took }
        }
        Err(Failure { class, status, error, retry_after, .. }) => {
            Outcome { class, status, error: Some(error), retry_after, took }
        }
    }
}

/// The class of an answer, by its status alone.
fn judge_answer(response: &Response, now_s: i64) -> Result<StatusCode, Failure> {
    let status = response.status();
    if status.is_success() {
        return Ok(status);
    }
    let class = if status == StatusCode::GONE { Class::Permanent } else { Class::Transient };
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    Err(Failure {
        class,
        status: Some(status.as_u16()),
        error: format!("HTTP {}", status.as_u16()),
        retry_after: asked.and_then(|value| retry_after::parse(value, now_s)),
        arrival: Arrival::Possible,
    })
}

/// The body as far as it came, at most [`ANSWER_BYTES_MAX`].
async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - body.len())]),
            Ok(None) | Err(_) => break,
        }
    }
    body
}

/// The headers of the standard. A secret that cannot sign may be mended: the contact is read anew at each attempt.
fn headers(request: &WebhookRequest<'_>) -> Result<HeaderMap, Failure> {
    let secrets =
        SigningSecrets::parse(request.secret).map_err(|error| Failure::transient(error.to_string(), Arrival::Never))?;
    let signature = secrets.sign(request.id, request.now_s, request.body);
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| Failure::permanent("id does not fit into a header".to_owned()))
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
fn tls(config: &WebhookConfig) -> Result<rustls::ClientConfig, TransportError> {
    let roots = authorities::roots("webhook.ca_file", config.ca_file.as_deref())?;
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TransportError::WebhookTls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Resolves as the system does, and refuses the host when any of its addresses is blocked. What it returns is what is connected
/// to: there is no second look-up between the judgement and the connection.
struct CheckedResolver {
    reach: Reach,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach;
        Box::pin(async move {
            // The port is a placeholder: reqwest puts the URL's own in its place.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            reach.judge_all(found.iter().map(|address: &SocketAddr| -> IpAddr { address.ip() }))?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
