//! The OpenAPI document of the routes, written by hand; `tests/it/api_openapi.rs` compares it with the routes.

use axum::http::header;
use axum::response::IntoResponse;

/// `openapi.json`.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`
pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
