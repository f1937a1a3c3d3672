//! HTTP: health, readiness, metrics, the routes for API nodes, and contacts with their verification.
//!
//! Owns the routes, and in [`verification`] the contacts that are added through them; nothing else stands behind a route: what is
//! asked about subjects is answered by `ledger` and `subjects`. Every error is a problem of RFC 9457. Read next: [`routes`], the
//! table of all of them; [`ready`], which says what ready means.

use std::sync::Arc;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub mod body;
mod check;
pub mod checker;
pub mod config;
mod confirm;
mod contacts;
pub mod gauges;
pub mod openapi;
mod pages;
pub mod problem;
pub mod rate_limit;
pub mod ready;
pub mod recorder;
pub mod routes;
pub mod token;
pub mod verification;

pub use checker::{Checker, Checks};
pub use gauges::Gauges;
pub use problem::Problem;
pub use ready::Readiness;
pub use token::Token;

use verification::Desk;

/// What the routes look at.
#[derive(Debug)]
pub struct Api {
    /// Whether the daemon is ready.
    pub readiness: Arc<Readiness>,
    /// What is read from Redis when somebody asks for metrics.
    pub gauges: Gauges,
    /// The counters of this process.
    pub recorder: metrics_exporter_prometheus::PrometheusHandle,
    /// What callers must show, where the operator has set it.
    pub token: Option<Token>,
    /// What API nodes ask.
    pub checks: Checks,
    /// Contacts that a subject's own side adds.
    pub contacts: Desk,
}

/// Serves the routes on a listener that is bound already, until stopped.
///
/// # Errors
///
/// Those of accepting connections.
pub async fn serve(api: Arc<Api>, listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
    // Off by default: an answer in two writes would wait for the caller's acknowledgement, up to 40 ms.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
    });
    axum::serve(listener, routes::router(api)).with_graceful_shutdown(stop.cancelled_owned()).await
}
