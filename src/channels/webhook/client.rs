//! One attempt over HTTP: a POST to a URL of a subject, signed (Standard Webhooks 1.0) if there is a secret.
//!
//! Owns the client and the deadline. It does not follow redirects, and passes on the receiver's response only as the
//! short reply of an outcome. reqwest builds the request and reads the response. The client below it is that of
//! hyper-util, as in reqwest itself, because reqwest offers no way to count the bytes of a connection. Read next:
//! [`super::connector`], the connection; [`super::outcomes`], the meaning of responses.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Body, Method, Request, Response, Url};
use serde::Deserialize;
use tokio::time::timeout_at;

use super::blocked_networks::Blocked;
use super::closing_receivers::ClosingReceivers;
use super::config::WebhookConfig;
use super::connector::Connector;
use super::extra_headers;
use super::formats::WebhookBody;
use super::outcomes::{hint_of_connection, outcome_of};
use super::proxy::ProxyError;
use super::secret::SigningSecrets;
use crate::channels::channel::deadline_passed;
use crate::channels::error::ChannelError;
use crate::channels::resolver::{DnsConfig, ResolveError, Resolver};
use crate::channels::{connection_error, tls};
use crate::contacts::ExtraHeaders;
use crate::types::outcome::printable_reply;
use crate::types::secret::same_secret;
use crate::types::{Outcome, OutcomeClass, Secret, TraceParent};

/// Maximum number of bytes that are read of a response body. The response to an alert is not used: reading it lets a
/// receiver finish writing before the connection closes. An echo is far shorter. A receiver must not keep the client
/// reading.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of headers of a response, as in curl. hyper's own bound is 100.
const HEADERS_MAX: usize = 5_000;
/// Maximum number of bytes of one response head.
const HEAD_BYTES_MAX: usize = 192 * 1024;
/// Maximum number of idle connections to one receiver, and how long they are kept: shorter than receivers keep them, so
/// that hardly any request meets a closing connection.
const KEPT_MAX: usize = 16;
const KEPT_FOR: Duration = Duration::from_millis(500);
/// The attempt log's text for a receiver that accepted a challenge and sent something else back.
const NOT_ECHOED: &str = "the receiver did not send the challenge back";
/// The User-Agent.
const OUR_NAME: &str = concat!("quotabell/", env!("CARGO_PKG_VERSION"));

/// One webhook to send.
#[derive(Debug, Clone, Copy)]
pub struct WebhookRequest<'a> {
    /// `webhook-id`: the alert's id, the same on every attempt. Contains no dot.
    pub id: &'a str,
    /// `webhook-timestamp`: when this attempt starts, Unix seconds by this machine's clock.
    pub now_s: i64,
    /// The URL, as the subject wrote it; judged here.
    pub url: &'a str,
    /// The signing secret, if there is one; judged here.
    pub secret: Option<&'a Secret>,
    /// The JSON.
    pub body: &'a WebhookBody,
    /// Additional headers of the contact; judged here.
    pub headers: &'a ExtraHeaders,
    /// The trace context that the receiver continues.
    pub traceparent: Option<&'a TraceParent>,
    /// The text that the receiver must send back, such as `{"challenge": ...}`, if it is asked for consent.
    pub challenge: Option<&'a str>,
    /// Whether more deliveries to this receiver are due and it answered last time: the connection is then kept for
    /// them.
    pub keeps_connection: bool,
}

/// Sends requests, on connections of [`Connector`].
type Client = legacy::Client<Connector, Body>;

/// Sends webhooks.
#[derive(Debug, Clone)]
pub struct WebhookClient {
    /// Opens a new connection for each request.
    single: Client,
    /// Keeps connections for [`KEPT_FOR`].
    keeping: Client,
    closing: Arc<ClosingReceivers>,
    connector: Connector,
}

impl WebhookClient {
    /// Builds the client. Does not connect.
    ///
    /// A receiver is resolved and judged again for each connection. Connections are kept only if more deliveries follow
    /// at once: then no connection lives long after a change of its name, and many receivers with one message each do
    /// not hold sockets.
    ///
    /// # Errors
    ///
    /// [`ChannelError`] if `webhook.ca_file` or the TLS setup is faulty.
    pub fn new(config: &WebhookConfig, dns: &DnsConfig) -> Result<Self, ChannelError> {
        let mut tls = tls::client_config("webhook.ca_file", config.ca_file.as_deref())?;
        // HTTP/2 has no advantage if a connection carries one request, and hyper keeps reading what a receiver floods
        // such a connection with after the attempt has ended.
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connector = Connector {
            resolver: Arc::new(Resolver::new(dns, config.timeout)),
            policy: config.egress_policy(),
            tls: Arc::new(tls),
            proxy: config.proxy().map_err(|problem| ChannelError::of_setting("webhook.proxy", problem))?,
            timeout: config.timeout,
        };
        let client = |kept_max| {
            let mut builder = legacy::Client::builder(TokioExecutor::new());
            builder
                .pool_timer(TokioTimer::new())
                .pool_max_idle_per_host(kept_max)
                .pool_idle_timeout(KEPT_FOR)
                .http1_max_buf_size(HEAD_BYTES_MAX)
                // The status decides, whatever the header lines contain. curl and browsers accept these lines too.
                .http1_allow_spaces_after_header_name_in_responses(true)
                .http1_allow_obsolete_multiline_headers_in_responses(true)
                .http1_ignore_invalid_headers_in_responses(true)
                .http1_max_headers(HEADERS_MAX);
            builder.build(connector.clone())
        };
        Ok(Self { single: client(0), keeping: client(KEPT_MAX), closing: Arc::default(), connector })
    }

    /// Sends one webhook and returns the outcome. A repeated call sends it again, with the same id.
    ///
    /// The deadline covers name, connection, TLS, request and response. The status line decides: a receiver that
    /// answered 2xx has the alert, so an error in the rest of its response does not cause a second delivery. After a
    /// challenge, the first 16 KiB of the body decide too: the outcome is delivered only if the receiver sent the
    /// challenge back, and otherwise a permanent failure with that status.
    pub async fn send(&self, request: WebhookRequest<'_>) -> Outcome {
        let started = Instant::now();
        let outcome = match self.connector.policy.check_url(request.url) {
            Ok(url) => self.attempt(request, url).await.unwrap_or_else(|failed| failed),
            Err(refused) => permanent(refused),
        };
        Outcome { took: started.elapsed(), peer: peer(request.url), ..outcome }
    }

    /// The outcome of every attempt with this URL, if the URL alone decides it. Pure.
    pub fn refusal(&self, url: &str) -> Option<Outcome> {
        let refused = self.connector.policy.check_url(url).err()?;
        Some(Outcome { peer: peer(url), ..permanent(refused) })
    }

    /// Whether this URL may be called and its host has an address, judged as in an attempt. Resolves the name, but does
    /// not connect.
    pub async fn check(&self, url: &str) -> Outcome {
        let started = Instant::now();
        let outcome = match tokio::time::timeout(self.connector.timeout, self.check_before_connecting(url)).await {
            Ok(judged) => judged.map_or_else(|failed| failed, |()| Outcome::delivered()),
            Err(_) => Outcome::failed(OutcomeClass::Transient, "the name of its host is not resolved in time"),
        };
        Outcome { took: started.elapsed(), peer: peer(url), ..outcome }
    }

    async fn check_before_connecting(&self, url: &str) -> Result<(), Outcome> {
        let url = self.connector.policy.check_url(url).map_err(permanent)?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        self.connector.check(host).await.map_err(|error| match error.downcast_ref::<ResolveError>() {
            None => failure(&*error),
            Some(error) => {
                let hint = hint_of_connection(connection_error::find(error, ""));
                Outcome { hint, ..Outcome::failed(OutcomeClass::Transient, "the name of its host is not resolved") }
            }
        })
    }

    async fn attempt(&self, request: WebhookRequest<'_>, url: Url) -> Result<Outcome, Outcome> {
        // Transient, because somebody may correct the secret or the header: the contact is read again at each attempt.
        let unsigned = |error: String| Outcome::failed(OutcomeClass::Transient, error);
        let secrets = request.secret.map(SigningSecrets::parse).transpose().map_err(unsigned)?;
        let added = extra_headers::parse(request.headers).map_err(unsigned)?;
        let unfit = || permanent("id does not fit into a header".to_owned());
        let headers = headers(&request, added, secrets.as_ref()).ok_or_else(unfit)?;
        let timeout = self.connector.timeout;
        let deadline = tokio::time::Instant::now() + timeout;
        let origin = url.origin().ascii_serialization();
        let keeps_connection = request.keeps_connection && self.closing.lets_keep(&origin);
        let client = if keeps_connection { &self.keeping } else { &self.single };
        let mut post = Request::new(Method::POST, url);
        *post.headers_mut() = headers;
        *post.body_mut() = Some(request.body.json.clone().into());
        let sending = client.request(post.try_into().map_err(|_| permanent("malformed URL".to_owned()))?);
        let sent = timeout_at(deadline, sending).await.map_err(|_| deadline_passed(timeout))?;
        let response = Response::from(
            sent.map_err(|error| {
                if keeps_connection && connection_error::is_closed(&error) {
                    self.closing.note(origin);
                }
                Outcome { may_have_arrived: !error.is_connect(), ..failure(&error) }
            })?
            .map(Body::wrap),
        );
        let outcome = outcome_of(response.status(), response.headers(), request.now_s);
        let mut body = Vec::new();
        // The deadline or the receiver may end the body early.
        let _ = timeout_at(deadline, read(response, &mut body)).await;
        let Outcome { class, status, .. } = outcome;
        Ok(match request.challenge {
            Some(challenge) if class == OutcomeClass::Delivered && !echoes(&body, challenge) => {
                Outcome { status, reply: printable_reply(&body), ..permanent(NOT_ECHOED.to_owned()) }
            }
            _ if class == OutcomeClass::Delivered => outcome,
            _ => Outcome { reply: printable_reply(&body), ..outcome },
        })
    }
}

fn permanent(error: String) -> Outcome {
    Outcome::failed(OutcomeClass::Permanent, error)
}

/// Whether the body is a JSON object with the challenge. It may have other fields, which are not decoded.
fn echoes(body: &[u8], challenge: &str) -> bool {
    #[derive(Deserialize)]
    struct Echo {
        challenge: String,
    }
    let echo = serde_json::from_slice::<Echo>(body);
    echo.is_ok_and(|echo| same_secret(echo.challenge.as_bytes(), challenge.as_bytes()))
}

/// Host and port of a receiver.
fn peer(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The class of a request without a response. Only a blocked address is permanent.
fn failure(error: &(dyn Error + 'static)) -> Outcome {
    if let Some(blocked) = connection_error::chain(error).find_map(|error| error.downcast_ref::<Blocked>()) {
        return permanent(blocked.to_string());
    }
    if let Some(failed) = connection_error::chain(error).find_map(|error| error.downcast_ref::<ProxyError>()) {
        return Outcome { hint: Some(failed.hint()), ..Outcome::failed(OutcomeClass::Transient, failed.to_string()) };
    }
    let found = connection_error::find(error, "request failed");
    Outcome { hint: hint_of_connection(found), ..Outcome::failed(OutcomeClass::Transient, found) }
}

/// Reads the body until it ends, fails or has [`ANSWER_BYTES_MAX`].
async fn read(mut response: Response, body: &mut Vec<u8>) {
    while body.len() < ANSWER_BYTES_MAX {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - body.len())]),
            Ok(None) | Err(_) => break,
        }
    }
}

/// The headers of the standard, and those of the contact. A request without a secret has no signature. `None` if the id
/// can't be in a header.
fn headers(request: &WebhookRequest<'_>, added: HeaderMap, secrets: Option<&SigningSecrets>) -> Option<HeaderMap> {
    let WebhookBody { content_type, json } = request.body;
    let mut headers = added;
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(OUR_NAME));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert("webhook-id", HeaderValue::from_str(request.id).ok()?);
    headers.insert("webhook-timestamp", HeaderValue::from(request.now_s));
    if let Some(traceparent) = request.traceparent {
        headers.entry("traceparent").or_insert(HeaderValue::from_str(traceparent.as_str()).ok()?);
    }
    if let Some(secrets) = secrets {
        let signature = secrets.sign(request.id, request.now_s, json);
        headers.insert("webhook-signature", HeaderValue::from_str(&signature).ok()?);
    }
    Some(headers)
}
