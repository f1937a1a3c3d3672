//! Confirm links: a token in a URL. Redis holds only its digest. Pure.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use url::Url;

use crate::types::text::hex;

/// 256 bits, which nobody can guess.
const TOKEN_BYTES: usize = 32;

/// Generates a token or a key.
pub(super) fn generate() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>())
}

/// The URL of a token for this page. The public URL may have a path, with or without a slash at its end.
pub(super) fn url_of(public_url: &Url, page: &str, token: &str) -> String {
    format!("{}/{page}/{token}", public_url.as_str().trim_end_matches('/'))
}

/// The stored form of a token.
pub(super) fn stored_form(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::config::HttpConfig;

    fn link(public_url: &str) -> Option<String> {
        let listen = String::new();
        let http = HttpConfig {
            listen,
            token: None,
            token_file: None,
            tokens: Vec::new(),
            public_url: Some(public_url.to_owned()),
        };
        http.confirm_links_below().map(|url| url_of(&url, "confirm", "t"))
    }

    /// Otherwise the first customer would find a broken link.
    #[test]
    fn a_link_lies_below_the_public_url_or_there_is_none() {
        for (public_url, expected) in [
            ("https://x.test", "https://x.test/confirm/t"),
            ("https://x.test/", "https://x.test/confirm/t"),
            ("http://x.test:8080", "http://x.test:8080/confirm/t"),
            ("https://x.test/alerts", "https://x.test/alerts/confirm/t"),
            ("https://x.test/a/b/", "https://x.test/a/b/confirm/t"),
            // In the form of a browser: mail software creates links only for URLs without spaces.
            (" https://X.test/my alerts// ", "https://x.test/my%20alerts/confirm/t"),
            ("https://bücher.test", "https://xn--bcher-kva.test/confirm/t"),
        ] {
            assert_eq!(link(public_url).as_deref(), Some(expected), "{public_url}");
        }
        let bad = "|x.test|x.test:80/alerts|/alerts|https://|ftp://x.test|mailto:a@x.test|https://x.test?|https://x.test/?a=1|\
                   https://x.test/#|https://x.test/#/alerts|https://u@x.test|https://u:p@x.test";
        for bad in bad.split('|') {
            assert_eq!(link(bad), None, "{bad}");
        }
    }
}
