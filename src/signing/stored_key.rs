//! A key of the deployment that signs texts, one for all daemons.

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::types::nonce;

/// The text stored at `key`, generated if there is none. It is read every time: somebody may delete it to invalidate
/// all that it signed, and a failover may lose it. Daemons with different keys would refuse each other's texts.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn stored_key(client: &RedisClient, key: &str) -> RedisResult<String> {
    let get = redis::cmd("GET").arg(key).to_owned();
    if let Some(stored) = client.query::<Option<String>>(&get).await? {
        return Ok(stored);
    }
    // As long as the hash.
    let generated = format!("{}{}", nonce(), nonce());
    let _: Option<String> = client.query(redis::cmd("SET").arg(key).arg(generated).arg("NX")).await?;
    client.query(&get).await
}
