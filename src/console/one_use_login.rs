//! Logins without a token, for people who may use the command line: `quotabell console` stores the digest of a secret
//! for 30 seconds, and prints the address of a page with a button. Opening the page changes nothing, so that programs
//! that look at links spend nothing.

use std::time::Duration;

use redis::RedisResult;
use sha2::{Digest, Sha256};

use crate::redis_client::Partition;
use crate::types::nonce;
use crate::types::text::hex;

/// How long a login may take.
pub const LOGIN_TTL: Duration = Duration::from_secs(30);

/// Stores a login, and returns its secret.
///
/// # Errors
///
/// The failure of Redis or the connection; the login may be stored.
pub async fn create(Partition { client, keys }: &Partition) -> RedisResult<String> {
    let secret = nonce();
    let ttl_ms = LOGIN_TTL.as_millis() as u64;
    let command = redis::cmd("SET").arg(keys.console_link(&digest(&secret))).arg(1).arg("PX").arg(ttl_ms).to_owned();
    client.query::<()>(&command).await?;
    Ok(secret)
}

/// Uses a login up. Returns whether it existed.
pub async fn consume(Partition { client, keys }: &Partition, secret: &str) -> RedisResult<bool> {
    client.query::<u64>(redis::cmd("DEL").arg(keys.console_link(&digest(secret)))).await.map(|removed| removed > 0)
}

fn digest(secret: &str) -> String {
    hex(&Sha256::digest(secret))
}
