//! Catches webhooks.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Running, WAITING_MAX};

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
    status: u16,
    headers: Vec<Header>,
    body: String,
    held_by: Option<CancellationToken>,
}

#[derive(Debug, Clone)]
struct Header {
    name: &'static str,
    value: String,
}

impl Answer {
    /// An answer with this status, no headers of its own and no body.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), held_by: None }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push(Header { name, value: value.to_owned() });
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// The same, but given only once `gate` is cancelled. The request is recorded when it arrives.
    #[must_use]
    pub fn held_by(mut self, gate: &CancellationToken) -> Self {
        self.held_by = Some(gate.clone());
        self
    }
}

/// A receiver of webhooks. Gone when dropped.
#[derive(Debug)]
pub struct HttpCatcher {
    address: SocketAddr,
    answers: Answers,
    caught: mpsc::Receiver<CaughtRequest>,
    _running: Running,
}

type Answers = Arc<Mutex<VecDeque<Answer>>>;

#[derive(Clone)]
struct Shared {
    answers: Answers,
    respond: Arc<Respond>,
    caught: mpsc::Sender<CaughtRequest>,
}

/// Makes the answer to a body when no programmed answer is left.
type Respond = dyn Fn(&[u8]) -> Answer + Send + Sync;

impl HttpCatcher {
    /// Starts a receiver on a free port of 127.0.0.1 that answers in the order of `answers`, and 204 when they are used up.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> io::Result<Self> {
        let catcher = Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), |_| Answer::status(204)).await?;
        answers.into_iter().for_each(|answer| catcher.then(answer));
        Ok(catcher)
    }

    /// Starts a receiver on this address. `respond` makes the answer to a body; answers that are added with [`Self::then`] go first.
    ///
    /// # Errors
    ///
    /// When the address can't be bound.
    pub async fn start_on(
        address: SocketAddr,
        respond: impl Fn(&[u8]) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let answers = Answers::default();
        let (sender, caught) = mpsc::channel(WAITING_MAX);
        let shared = Shared { answers: answers.clone(), respond: Arc::new(respond), caught: sender };
        let router = Router::new().fallback(catch).with_state(shared);
        let running = Running(tokio::spawn(async move {
            // It ends only by being aborted; an accept that fails is tried again by axum.
            let _ = axum::serve(listener, router).await;
        }));
        Ok(Self { address, answers, caught, _running: running })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:<port><path>`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Adds an answer behind those not given yet.
    pub fn then(&self, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push_back(answer);
    }

    /// The next request; waits for it. Safe to drop while it waits.
    pub async fn next(&mut self) -> CaughtRequest {
        self.caught.recv().await.expect("the server holds the sender for as long as this handle lives")
    }

    /// The next request, if one has arrived.
    pub fn try_next(&mut self) -> Option<CaughtRequest> {
        self.caught.try_recv().ok()
    }
}

async fn catch(State(shared): State<Shared>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let arrived = Instant::now();
    let next = shared.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let answer = next.unwrap_or_else(|| (shared.respond)(&body));
    // Nobody listens any more only while the catcher is being dropped.
    let _ = shared.caught.send(CaughtRequest { method, uri, headers, body, status: answer.status, arrived }).await;
    if let Some(gate) = &answer.held_by {
        gate.cancelled().await;
    }
    let mut response = Response::builder().status(answer.status);
    for Header { name, value } in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).unwrap_or_else(|_| {
        let mut broken = Response::new(Body::empty());
        *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        broken
    })
}
