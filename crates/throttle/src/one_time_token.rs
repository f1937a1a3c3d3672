//! The wrapper of `one_time_token.lua`: created with metadata and a TTL in one step, consumed exactly once.
//!
//! Needs a small hash and the metadata until the token's end, also after it was consumed: a repeated call is harmless
//! because the hash remembers who consumed the token. The caller makes the token and should store it under a key made
//! of its digest, so that a reader of Redis cannot use it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{RedisError, RedisResult, Script};

use crate::bounds::{ms, stored_key};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("one_time_token.lua")));

/// Maximum length of the metadata, in bytes: a token refers to its object and does not contain it.
pub const METADATA_BYTES_MAX: usize = 4096;

/// Whether a token was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCreation {
    /// The token exists with this metadata, and nobody has consumed it.
    Created,
    /// A token of this key exists already, with other metadata or consumed.
    Exists,
}

/// Why a token was not created.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum OneTimeTokenError {
    #[error("metadata of a token has {0} bytes, at most {METADATA_BYTES_MAX} are allowed")]
    MetadataTooLong(usize),
    #[error("create a token")]
    Redis(#[from] RedisError),
}

/// Creates a token under `key`, which ends after `ttl`. Repeatable: a second call creates no second token.
///
/// # Errors
///
/// The metadata is too long, or the error of Redis or of the connection.
pub async fn create<C: ConnectionLike>(
    connection: &mut C,
    key: &str,
    metadata: &[u8],
    ttl: Duration,
) -> Result<TokenCreation, OneTimeTokenError> {
    if metadata.len() > METADATA_BYTES_MAX {
        return Err(OneTimeTokenError::MetadataTooLong(metadata.len()));
    }
    let mut call = SCRIPT.key(&*stored_key(key));
    let (answer,): (String,) = call.arg("create").arg(ms(ttl)).arg(metadata).invoke_async(connection).await?;
    Ok(if answer == "created" { TokenCreation::Created } else { TokenCreation::Exists })
}

/// Consumes the token under `key` and returns its metadata; `None` if it was never created, has ended, or another claim
/// has consumed it. If many callers race, one gets it.
///
/// `claim` is unique to the consumer. A repeated call with the same claim gets the metadata again.
///
/// # Errors
///
/// The error of Redis or of the connection. After a broken connection the token may be consumed by this claim.
pub async fn consume<C: ConnectionLike>(connection: &mut C, key: &str, claim: &str) -> RedisResult<Option<Vec<u8>>> {
    let mut call = SCRIPT.key(&*stored_key(key));
    let reply: Vec<Vec<u8>> = call.arg("consume").arg(claim).invoke_async(connection).await?;
    Ok(reply.into_iter().nth(1))
}
