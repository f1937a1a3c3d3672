//! The wrapper of `one_time_token.lua`: created with its metadata and its end in one step, consumed exactly once.
//!
//! Costs a small hash and the metadata until the token's end, also once it is consumed: that it remembers by whom is
//! what makes a call that is sent again harmless. Knows nothing of what the token looks like: the caller makes it, and
//! stores it under a key made of its digest, so that who reads Redis can't use it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{RedisError, RedisResult};

use crate::redis_client::{RedisClient, Script};

use super::bounds::{bounded, ms};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("one_time_token.lua")));

/// The longest metadata, in bytes: a token refers to what it stands for and does not hold it.
pub const METADATA_BYTES_MAX: usize = 4096;

/// What became of a token that was to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCreation {
    /// It is there, not consumed, with this metadata.
    Created,
    /// One with this key is there already, with other metadata or consumed.
    Exists,
}

/// Why a token could not be created.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum OneTimeTokenError {
    #[error("metadata of a token has {0} bytes, at most {METADATA_BYTES_MAX} are allowed")]
    MetadataTooLong(usize),
    #[error("create a token")]
    Redis(#[from] RedisError),
}

/// Creates a token under `key`, which ends after `ttl`. Repeatable: the same token again is no second one.
pub async fn create(
    client: &RedisClient,
    key: &str,
    metadata: &[u8],
    ttl: Duration,
) -> Result<TokenCreation, OneTimeTokenError> {
    if metadata.len() > METADATA_BYTES_MAX {
        return Err(OneTimeTokenError::MetadataTooLong(metadata.len()));
    }
    let call = SCRIPT.call().key(bounded(key)).arg("create").arg(ms(ttl)).arg(metadata);
    let (answer,): (String,) = call.run(client).await?;
    Ok(if answer == "created" { TokenCreation::Created } else { TokenCreation::Exists })
}

/// Consumes the token under `key` and returns its metadata; `None` when it was never created, has run out, or another
/// claim has consumed it. However many race, one has it.
///
/// `claim` is unique to who consumes, and the same when the call is sent again: then it is given the metadata again.
pub async fn consume(client: &RedisClient, key: &str, claim: &str) -> RedisResult<Option<Vec<u8>>> {
    let reply: Vec<Vec<u8>> = SCRIPT.call().key(bounded(key)).arg("consume").arg(claim).run(client).await?;
    Ok(reply.into_iter().nth(1))
}
