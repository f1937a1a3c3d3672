//! The files that pages load. Their names contain a part of their SHA-256, so browsers may keep them for ever.

use std::sync::Arc;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use crate::types::text::hex;

/// Number of bytes of the digest in a name.
const DIGEST_BYTES: usize = 6;

/// A file that is served.
#[derive(Debug, Clone)]
pub(super) struct PortalAsset {
    pub(super) name: String,
    content_type: &'static str,
    bytes: Arc<[u8]>,
}

impl PortalAsset {
    /// A file with a name such as `portal-0123456789ab.css`.
    pub(super) fn new(stem: &str, ending: &str, content_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest = hex(&Sha256::digest(&bytes)[..DIGEST_BYTES]);
        Self { name: format!("{stem}-{digest}.{ending}"), content_type, bytes: bytes.into() }
    }

    /// The answer with the file.
    pub(super) fn to_response(&self) -> Response {
        let cached = (CACHE_CONTROL, "public, max-age=31536000, immutable");
        ([(CONTENT_TYPE, self.content_type), cached], self.bytes.to_vec()).into_response()
    }
}
