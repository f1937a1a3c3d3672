//! The OpenAPI document of the routes; `tests/it/api_openapi.rs` compares it with the routes.
//!
//! Written by hand: most of it is what no type of a handler tells (which problem a status bears, headers, bounds of
//! text, examples), and would stand beside each handler at the same length.

use axum::http::header;
use axum::response::IntoResponse;

/// `openapi.json`.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`
pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
