//! HTTP: health, readiness, metrics.
//!
//! Owns the routes and nothing behind them. Never changes anything: every route here is a GET. Read next: [`ready`], which says
//! what ready means.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub mod config;
pub mod gauges;
pub mod ready;
pub mod recorder;

pub use gauges::Gauges;
pub use ready::Readiness;

/// What the routes look at.
#[derive(Debug)]
pub struct Api {
    /// Whether the daemon is ready.
    pub readiness: Arc<Readiness>,
    /// What is read from Redis when somebody asks for metrics.
    pub gauges: Gauges,
    /// The counters of this process.
    pub recorder: metrics_exporter_prometheus::PrometheusHandle,
}

/// The version of the Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the routes on a listener that is bound already, until stopped.
///
/// # Errors
///
/// Those of accepting connections.
pub async fn serve(api: Arc<Api>, listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
    axum::serve(listener, router(api)).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// The routes.
pub fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(api)
}

async fn readyz(State(api): State<Arc<Api>>) -> Response {
    match api.readiness.check().await {
        Ok(()) => (StatusCode::OK, "ready\n").into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

async fn metrics(State(api): State<Arc<Api>>) -> Response {
    api.gauges.refresh(&api.readiness).await;
    ([(header::CONTENT_TYPE, METRICS_TYPE)], api.recorder.render()).into_response()
}
