//! The files that pages load. Their names contain a part of their SHA-256, so browsers may keep them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::types::text::hex;

/// Where they are.
pub(super) const FOLDER: &str = "/assets/";

const CSS: &[u8] = include_bytes!("../../templates/console/console.css");
/// Number of bytes of the digest in a name.
const DIGEST_BYTES: usize = 6;

/// The name of the style sheet.
pub(super) static CSS_NAME: LazyLock<String> =
    LazyLock::new(|| format!("console-{}.css", hex(&Sha256::digest(CSS)[..DIGEST_BYTES])));

/// `GET /assets/{name}`
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    if name != *CSS_NAME {
        return StatusCode::NOT_FOUND.into_response();
    }
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (StatusCode::OK, headers, CSS).into_response()
}
