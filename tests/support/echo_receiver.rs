//! A webhook receiver that is asked for its consent: it checks each signature, echoes challenges as configured, and
//! stores requests.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::support::receivers::CaughtRequest;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::eventually::WAIT_MAX;

/// How it answers a challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// Correctly.
    Right,
    /// With another text.
    Wrong,
    /// With 204 and no body.
    Nothing,
    /// With the right text, after more bytes than the daemon reads.
    TooLate,
    /// With the right text and a status that refuses.
    Refused,
    /// Correctly, but only after it is released.
    Held,
}

/// The receiver on a free port. Stops on drop.
#[derive(Debug)]
pub struct EchoReceiver {
    address: SocketAddr,
    arrived: mpsc::UnboundedReceiver<CaughtRequest>,
    held: Arc<Notify>,
    task: JoinHandle<()>,
}

impl EchoReceiver {
    pub async fn start(echo: Echo) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (told, arrived) = mpsc::unbounded_channel();
        let held = Arc::new(Notify::new());
        let router = Router::new().fallback(take).with_state((echo, told, Arc::clone(&held)));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, arrived, held, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits for the next request.
    pub async fn next(&mut self) -> CaughtRequest {
        let next = tokio::time::timeout(WAIT_MAX, self.arrived.recv()).await.expect("a request in time");
        next.expect("the server lives")
    }

    /// Releases the response that has waited longest.
    pub fn let_go(&self) {
        self.held.notify_one();
    }

    pub fn try_next(&mut self) -> Option<CaughtRequest> {
        self.arrived.try_recv().ok()
    }
}

impl Drop for EchoReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(
    State((echo, told, held)): State<(Echo, mpsc::UnboundedSender<CaughtRequest>, Arc<Notify>)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let json: Value = serde_json::from_slice(&body).expect("JSON");
    let _ = told.send(CaughtRequest { method, uri, headers, body, status: 200, arrived: Instant::now() });
    let challenge = &json["data"]["challenge"];
    if challenge.is_null() {
        return StatusCode::NO_CONTENT.into_response();
    }
    let right = json!({"challenge": challenge, "hello": 1}).to_string();
    match echo {
        Echo::Right => right.into_response(),
        Echo::Held => {
            held.notified().await;
            right.into_response()
        }
        Echo::Wrong => json!({"challenge": "another"}).to_string().into_response(),
        Echo::Nothing => StatusCode::NO_CONTENT.into_response(),
        Echo::TooLate => format!("{}{right}", " ".repeat(16 * 1024)).into_response(),
        Echo::Refused => (StatusCode::FORBIDDEN, right).into_response(),
    }
}
