//! Finds subjects with a certain plan. Reads the hash of every subject, so it is for rare use.

use redis::RedisResult;

use super::record::PLAN;
use crate::redis_client::{ErrorKind, RedisClient, Scan, error_kind};
use crate::types::Keys;
use crate::types::text::escaped_bytes;

/// A subject and its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPlan {
    /// The subject, in printable form.
    pub subject: String,
    /// Its plan.
    pub plan: String,
}

/// The first subject found with one of these plans, on any server of a cluster.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn first_subject_naming(
    client: &RedisClient,
    keys: &Keys,
    plans: &[String],
) -> RedisResult<Option<NamedPlan>> {
    for server in client.primaries().await? {
        let mut scan = Scan::keys(keys.subject_pattern());
        while let Some(found) = scan.next::<Vec<u8>>(&server).await? {
            let mut pipeline = redis::pipe();
            pipeline.ignore_errors();
            for key in &found {
                pipeline.cmd("HGET").arg(key).arg(PLAN);
            }
            let named: Vec<RedisResult<Option<Vec<u8>>>> = client.pipe(&pipeline).await?;
            for (key, named) in found.iter().zip(named) {
                let named = match named {
                    // A key that is not a hash is not a subject.
                    Err(error) if error_kind(&error) == ErrorKind::WrongType => None,
                    named => named?,
                };
                if let Some(plan) = plans.iter().find(|plan| named.as_deref() == Some(plan.as_bytes())) {
                    let subject = escaped_bytes(&key[keys.subject_prefix().len()..]);
                    return Ok(Some(NamedPlan { subject, plan: plan.clone() }));
                }
            }
        }
    }
    Ok(None)
}
