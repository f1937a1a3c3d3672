//! Confirm links: a one-time token in a URL, of which Redis holds only a digest.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::RedisResult;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

use super::Candidate;
use crate::throttle::one_time_token::{self, OneTimeTokenError, TokenCreation};
use crate::types::{ContactId, Keys, Subject};
use crate::wire::RedisClient;

/// 256 bits: nobody guesses one.
const TOKEN_BYTES: usize = 32;

/// By what a token is claimed: one thing is done with it, and it may be tried again.
const CLAIM: &str = "confirm";

/// What a token stands for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Meant {
    pub(super) subject: Subject,
    pub(super) contact: ContactId,
    /// What it verifies: the endpoint that it was sent to, as it was added then.
    pub(super) endpoint: String,
}

/// Makes a link below `public_url` that confirms the contact once.
///
/// # Errors
///
/// [`OneTimeTokenError`]: Redis, or a contact whose id is too long for a token.
pub(super) async fn make(
    client: &RedisClient,
    keys: &Keys,
    public_url: &Url,
    candidate: &Candidate,
    endpoint: &str,
    lives: Duration,
) -> Result<String, OneTimeTokenError> {
    let Candidate { subject, contact } = candidate.clone();
    let meant = Meant { subject, contact, endpoint: endpoint.to_owned() };
    let metadata = serde_json::to_vec(&meant).expect("text is JSON");
    loop {
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
        if one_time_token::create(client, &key(keys, &token), &metadata, lives).await? == TokenCreation::Created {
            return Ok(below(public_url, &token));
        }
    }
}

/// The link of a token. The URL may have a path, with a slash at its end or not.
fn below(public_url: &Url, token: &str) -> String {
    format!("{}/confirm/{token}", public_url.as_str().trim_end_matches('/'))
}

/// Claims a token and says what it stands for; `None` for one that was ended, has run out or never was.
///
/// Whoever holds the token has the claim, until [`end`]: an answer that was lost on the way costs nobody the link.
pub(super) async fn consume(client: &RedisClient, keys: &Keys, token: &str) -> RedisResult<Option<Meant>> {
    let metadata = one_time_token::consume(client, &key(keys, token), CLAIM).await?;
    Ok(metadata.and_then(|metadata| serde_json::from_slice(&metadata).ok()))
}

/// Ends a token whose consent is stored, or void. Repeatable.
pub(super) async fn end(client: &RedisClient, keys: &Keys, token: &str) -> RedisResult<()> {
    let _: u64 = client.query(redis::cmd("UNLINK").arg(key(keys, token))).await?;
    Ok(())
}

fn key(keys: &Keys, token: &str) -> String {
    let digest: String = Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    keys.verify_link(&digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::config::HttpConfig;

    fn link(public_url: &str) -> Option<String> {
        let listen = String::new();
        let http = HttpConfig { listen, token: None, token_file: None, public_url: Some(public_url.to_owned()) };
        http.confirm_links_below().map(|url| below(&url, "t"))
    }

    /// A link that leads nowhere is found by the first customer.
    #[test]
    fn a_link_lies_below_the_public_url_or_there_is_none() {
        for (public_url, expected) in [
            ("https://x.test", "https://x.test/confirm/t"),
            ("https://x.test/", "https://x.test/confirm/t"),
            ("http://x.test:8080", "http://x.test:8080/confirm/t"),
            ("https://x.test/alerts", "https://x.test/alerts/confirm/t"),
            ("https://x.test/a/b/", "https://x.test/a/b/confirm/t"),
            // As a browser would read it: mail software makes a link only of what has no spaces.
            (" https://X.test/my alerts// ", "https://x.test/my%20alerts/confirm/t"),
            ("https://bücher.test", "https://xn--bcher-kva.test/confirm/t"),
        ] {
            assert_eq!(link(public_url).as_deref(), Some(expected), "{public_url}");
        }
        for bad in [
            "",
            "x.test",
            "x.test:80/alerts",
            "/alerts",
            "https://",
            "ftp://x.test",
            "mailto:a@x.test",
            "https://x.test?",
            "https://x.test/?a=1",
            "https://x.test/#",
            "https://x.test/#/alerts",
            "https://u@x.test",
            "https://u:p@x.test",
        ] {
            assert_eq!(link(bad), None, "{bad}");
        }
    }
}
