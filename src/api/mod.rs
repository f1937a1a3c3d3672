//! HTTP: health, readiness, metrics, the routes for API nodes, and contacts with their verification.
//!
//! Owns the routes, and in [`verification`] the contacts that are added through them; nothing else stands behind a route: what is
//! asked about subjects is answered by `ledger` and `subjects`. Every error is a problem of RFC 9457. Read next: [`routes`], the
//! table of all of them; [`serving`], how many callers there may be; [`ready`], which says what ready means.

use std::sync::Arc;

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
pub mod patience;
pub mod problem;
pub mod rate_limit;
pub mod ready;
pub mod recorder;
pub mod routes;
pub mod serving;
pub mod token;

pub use checker::{Checker, Checks};
pub use gauges::Gauges;
pub use problem::Problem;
pub use ready::Readiness;
pub use token::Token;

use crate::verification::Desk;
use serving::Bounds;

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
pub async fn serve(api: Arc<Api>, listener: TcpListener, stop: CancellationToken) {
    serving::serve(routes::router(api), listener, Bounds::DAEMON, stop).await;
}
