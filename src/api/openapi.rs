//! The OpenAPI document of the routes, written by hand and held against them by `tests/it/api_openapi.rs`.

use axum::http::header;
use axum::response::IntoResponse;

/// `openapi.json`.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`
pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
