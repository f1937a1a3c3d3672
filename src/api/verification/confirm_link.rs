//! Confirm links: a one-time token in a URL, of which Redis holds only a digest.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::RedisResult;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Candidate;
use crate::throttle::one_time_token::{self, Created, TokenError};
use crate::types::{ContactId, Keys, Subject};
use crate::wire::Link;

/// 256 bits: nobody guesses one.
const TOKEN_BYTES: usize = 32;

/// By what a token is claimed: one thing is done with it, and it may be tried again.
const CLAIM: &str = "confirm";

/// What a token stands for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Meant {
    pub(super) subject: Subject,
    pub(super) contact: ContactId,
    /// Fingerprint of the endpoint that it was sent to.
    pub(super) endpoint: String,
}

/// Makes a link below `public_url` that confirms the contact once.
///
/// # Errors
///
/// [`TokenError`]: Redis, or a contact whose id is too long for a token.
pub(super) async fn make(
    link: &Link,
    keys: &Keys,
    public_url: &str,
    candidate: &Candidate,
    endpoint: &str,
    lives: Duration,
) -> Result<String, TokenError> {
    let Candidate { subject, contact } = candidate.clone();
    let meant = Meant { subject, contact, endpoint: endpoint.to_owned() };
    let metadata = serde_json::to_vec(&meant).expect("text is JSON");
    loop {
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
        if one_time_token::create(link, &key(keys, &token), &metadata, lives).await? == Created::New {
            return Ok(format!("{}/confirm/{token}", public_url.trim_end_matches('/')));
        }
    }
}

/// Claims a token and says what it stands for; `None` for one that was ended, has run out or never was.
///
/// Whoever holds the token has the claim, until [`end`]: an answer that was lost on the way costs nobody the link.
pub(super) async fn consume(link: &Link, keys: &Keys, token: &str) -> RedisResult<Option<Meant>> {
    let metadata = one_time_token::consume(link, &key(keys, token), CLAIM).await?;
    Ok(metadata.and_then(|metadata| serde_json::from_slice(&metadata).ok()))
}

/// Ends a token whose consent is stored, or void. Repeatable.
pub(super) async fn end(link: &Link, keys: &Keys, token: &str) -> RedisResult<()> {
    let _: u64 = link.query(redis::cmd("UNLINK").arg(key(keys, token))).await?;
    Ok(())
}

fn key(keys: &Keys, token: &str) -> String {
    let digest: String = Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    keys.verify_link(&digest)
}
