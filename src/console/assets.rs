//! The files that pages load. Their names contain a part of their SHA-256, so browsers may keep them for ever.
//!
//! `idiomorph.min.js` comes unmodified from the npm package idiomorph 0.8.0. It changes a page into its next version
//! and keeps focus, selection and open details.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::types::text::hex;

/// Where they are.
pub(super) const FOLDER: &str = "/assets/";

/// Number of bytes of the digest in a name.
const DIGEST_BYTES: usize = 6;

/// A file, with the name in its URL.
pub(super) struct Asset {
    pub(super) name: String,
    content_type: &'static str,
    content: &'static [u8],
}

impl Asset {
    fn new(stem: &str, extension: &str, content_type: &'static str, content: &'static [u8]) -> Self {
        let name = format!("{stem}-{}.{extension}", hex(&Sha256::digest(content)[..DIGEST_BYTES]));
        Self { name, content_type, content }
    }

    /// The answer with the file.
    pub(super) fn to_response(&self) -> Response {
        let headers = [(CONTENT_TYPE, self.content_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
        (headers, self.content).into_response()
    }

    fn css(stem: &str, content: &'static [u8]) -> Self {
        Self::new(stem, "css", "text/css; charset=utf-8", content)
    }

    fn script(stem: &str, content: &'static [u8]) -> Self {
        Self::new(stem, "js", "text/javascript; charset=utf-8", content)
    }
}

/// All of them: the style sheet, the scripts in the order in which pages load them, and the icon of pages.
pub(super) static ASSETS: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    [
        Asset::css("console", include_bytes!("../../templates/console/console.css")),
        Asset::script("idiomorph", include_bytes!("../../templates/console/idiomorph/idiomorph.min.js")),
        Asset::script("console", include_bytes!("../../templates/console/console.js")),
        Asset::new("icon", "svg", "image/svg+xml", include_bytes!("../../templates/console/icon.svg")),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    /// A modified copy would be code of our own that nobody reviews.
    #[test]
    fn idiomorph_is_the_published_file() {
        let sums = include_str!("../../templates/console/idiomorph/SHA256SUMS");
        let [_, idiomorph, ..] = &*ASSETS;
        assert_eq!(sums, format!("{}  idiomorph.min.js\n", hex(&Sha256::digest(idiomorph.content))));
        assert!(include_str!("../../templates/console/idiomorph/LICENSE").starts_with("Zero-Clause BSD"));
    }

    /// The first page must be quick on a slow line.
    #[test]
    fn all_assets_together_are_small() {
        assert!(ASSETS.iter().map(|asset| asset.content.len()).sum::<usize>() < 40_000);
    }
}
