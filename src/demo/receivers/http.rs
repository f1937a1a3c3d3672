//! Receives webhooks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;

use super::Catcher;

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
    /// The status of its answer.
    pub status: u16,
    /// When it arrived.
    pub arrived: Instant,
}

/// A receiver of webhooks.
pub type HttpCatcher = Catcher<CaughtRequest>;

/// The answer to a body.
type Respond = dyn Fn(&[u8]) -> Response + Send + Sync;
type HttpState = (mpsc::Sender<CaughtRequest>, Arc<Respond>);

impl HttpCatcher {
    /// Starts a receiver on this address. `respond` makes the answer to a body.
    pub async fn start_on<R: IntoResponse + 'static>(
        address: SocketAddr,
        respond: impl Fn(&[u8]) -> R + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let respond: Arc<Respond> = Arc::new(move |body: &[u8]| respond(body).into_response());
        Self::bind(address, |listener, caught| async move {
            let router = Router::new().fallback(catch).with_state((caught, respond));
            // axum retries a failed accept, so this ends only when the task is aborted.
            let _ = axum::serve(listener, router).await;
        })
        .await
    }

    /// `http://127.0.0.1:<port><path>`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn catch(
    State((caught, respond)): State<HttpState>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let arrived = Instant::now();
    let answer = respond(&body);
    let status = answer.status().as_u16();
    // Sending fails only while the catcher is being dropped.
    let _ = caught.send(CaughtRequest { method, uri, headers, body, status, arrived }).await;
    answer
}
