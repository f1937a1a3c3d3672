//! Catches webhooks.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use tokio_util::sync::CancellationToken;

use super::catcher::{Catcher, Shared, locked};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct CaughtRequest {
    /// The method; `POST` for a webhook.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, byte for byte: what was signed.
    pub body: Bytes,
    /// The status of the answer that it is given.
    pub status: u16,
    /// When it arrived.
    pub arrived: Instant,
}

/// One programmed answer.
#[derive(Debug, Clone)]
pub struct Answer {
    response: Response<String>,
    held_by: Option<CancellationToken>,
}

impl Answer {
    /// An answer with this status, no headers of its own and no body. Asserts that HTTP has such a status.
    pub fn status(status: u16) -> Self {
        let response = Response::builder().status(status).body(String::new());
        Self { response: response.expect("a status of three digits"), held_by: None }
    }

    /// The same with one more header. Asserts that it can be one.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.response.headers_mut().append(name, value.parse().expect("a header's value"));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: &str) -> Self {
        body.clone_into(self.response.body_mut());
        self
    }

    /// The same, but given only once `gate` is cancelled. The request is recorded when it arrives.
    #[must_use]
    pub fn held_by(mut self, gate: &CancellationToken) -> Self {
        self.held_by = Some(gate.clone());
        self
    }
}

/// A receiver of webhooks, with the answers that are not given yet.
pub type HttpCatcher = Catcher<CaughtRequest, VecDeque<Answer>>;

impl HttpCatcher {
    /// Starts a receiver on a free port of 127.0.0.1 that answers in the order of `answers`, and 204 when they are used
    /// up.
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> io::Result<Self> {
        let catcher = Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), |_| Answer::status(204)).await?;
        locked(&catcher.program).extend(answers);
        Ok(catcher)
    }

    /// Starts a receiver on this address. `respond` makes the answer to a body; answers that are added with
    /// [`Self::then`] go first.
    pub async fn start_on(
        address: SocketAddr,
        respond: impl Fn(&[u8]) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let respond: Arc<Respond> = Arc::new(respond);
        Self::bind(address, VecDeque::new(), |listener, shared| async move {
            let router = Router::new().fallback(catch).with_state((shared, respond));
            // It ends only by being aborted; an accept that fails is tried again by axum.
            let _ = axum::serve(listener, router).await;
        })
        .await
    }

    /// `http://127.0.0.1:<port><path>`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Adds an answer behind those not given yet.
    pub fn then(&self, answer: Answer) {
        locked(&self.program).push_back(answer);
    }
}

/// Makes the answer to a body when no programmed answer is left.
type Respond = dyn Fn(&[u8]) -> Answer + Send + Sync;

type HttpState = (Shared<CaughtRequest, VecDeque<Answer>>, Arc<Respond>);

async fn catch(
    State(((answers, caught), respond)): State<HttpState>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let arrived = Instant::now();
    let next = locked(&answers).pop_front();
    let answer = next.unwrap_or_else(|| respond(&body));
    let status = answer.response.status().as_u16();
    // Nobody listens any more only while the catcher is being dropped.
    let _ = caught.send(CaughtRequest { method, uri, headers, body, status, arrived }).await;
    if let Some(gate) = &answer.held_by {
        gate.cancelled().await;
    }
    answer.response.map(Body::from)
}
