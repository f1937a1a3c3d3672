//! Routes for probes, scrapers and client generators: health, readiness, metrics, the OpenAPI document. Everybody who
//! reaches the port may use them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::gauges;
use super::operation::{Describe, OperationDoc};
use super::state::ApiState;
use crate::types::meters::{self, Meter};

/// The version of the Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn readyz(State(api): State<Arc<ApiState>>) -> Response {
    match api.readiness.check().await {
        Ok(()) => (StatusCode::OK, "ready\n").into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")).into_response(),
    }
}

/// `GET /metrics`
pub(super) async fn metrics(State(api): State<Arc<ApiState>>) -> Response {
    gauges::refresh(&api.partitions, &api.readiness).await;
    let page = api.recorder.render() + &plans_info(&api.reads.plans.fingerprint());
    ([(header::CONTENT_TYPE, METRICS_TYPE)], page).into_response()
}

/// `GET /openapi.json`
pub(super) async fn openapi(State(api): State<Arc<ApiState>>) -> OpenApi {
    OpenApi(api.openapi)
}

/// The response with the document.
pub(super) struct OpenApi(&'static str);

impl IntoResponse for OpenApi {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

impl Describe for OpenApi {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer::<Map<String, Value>>(200);
    }
}

/// The series of the plans in effect. The recorder would keep a series for each earlier fingerprint.
fn plans_info(fingerprint: &str) -> String {
    let meter = meters::ALL.iter().find(|meter| meter.name == meters::PLANS).expect("it is one of them");
    let Meter { name, help, .. } = meter;
    format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name}{{fingerprint=\"{fingerprint}\"}} 1\n")
}
