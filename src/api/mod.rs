//! HTTP: health, readiness, metrics, `/v1/check`, subjects with their usage, history and alerts,
//! rankings, deliveries, and contacts with their verification.
//!
//! Owns the routes and how they are served. What is asked about subjects is answered by `ledger`, `subjects`,
//! `verification` and `views`. Every error is a problem of RFC 9457. Read next: [`routes`], the table of all of them;
//! [`server`], the limits on connections; [`ready`], what readiness means.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub mod body;
mod check;
pub mod check_service;
pub mod config;
pub mod connection_limit;
mod consent_html;
mod consent_links;
mod contacts;
mod deliveries;
pub mod gauges;
mod list_query;
mod mutes;
pub mod openapi;

mod path;
pub mod plan_reload;
mod probes;
pub mod problem;
pub mod rate_limit_headers;
pub mod ready;
pub mod recorder;
mod reload;
pub mod routes;
pub mod server;
pub mod state;
mod subject_body;
mod subjects;
pub mod timeouts;
pub mod token;
mod top;
pub mod top_cache;

pub use check_service::CheckService;
pub use gauges::Gauges;
pub use problem::Problem;
pub use ready::Readiness;
pub use state::ApiState;
pub use token::Token;

use server::ServerLimits;

/// Serves the routes on a listener that is bound already, until stopped.
pub async fn serve(state: Arc<ApiState>, listener: TcpListener, stop: CancellationToken) {
    server::serve(routes::routes(state), listener, ServerLimits::DAEMON, stop).await;
}
