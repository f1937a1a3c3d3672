//! The deployment that this daemon has seen in a partition, so that an emptied or exchanged Redis does not go
//! unnoticed.
//!
//! A missing checkpoint looks like a deployment that has not counted anything yet. Only a daemon that saw the
//! checkpoint before can tell the difference.

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::types::{DeploymentId, Keys};

/// Notes in `known` the deployment that is stored now; `None` if nothing has been counted. Returns the deployment that
/// it replaced and that is lost. Each loss is returned once.
pub(super) fn replaced(known: &mut Option<DeploymentId>, stored: Option<&DeploymentId>) -> Option<DeploymentId> {
    if known.as_ref() == stored { None } else { std::mem::replace(known, stored.cloned()) }
}

/// The deployment that this checkpoint belongs to; `None` if nothing has been counted yet.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn stored_deployment(client: &RedisClient, checkpoint: &str) -> RedisResult<Option<DeploymentId>> {
    let (id, instance): (Option<String>, Option<String>) =
        client.query(redis::cmd("HMGET").arg(checkpoint).arg("id").arg("instance")).await?;
    Ok(id.and(instance).map(|instance| DeploymentId::from_stored(&instance)))
}

/// Whether the deployment has data but no name: somebody deleted only its checkpoint, or set it by hand.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub(super) async fn is_unnamed(client: &RedisClient, keys: &Keys) -> RedisResult<bool> {
    let has = async |key: String, field: &str| client.query::<bool>(redis::cmd("HEXISTS").arg(key).arg(field)).await;
    Ok(has(keys.checkpoint(), "id").await? || has(keys.totals(), "counted").await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss that is reported with each session would page somebody again and again, and so would a first start.
    #[test]
    fn a_loss_is_found_once_and_a_first_commit_is_none() {
        let [one, other] = ["one", "other"].map(DeploymentId::from_stored);
        let mut known = None;
        let stored = [None, Some(&one), Some(&one), None, None, Some(&other), Some(&one)];
        let lost = stored.map(|stored| replaced(&mut known, stored));
        assert_eq!(lost, [None, None, None, Some(one.clone()), None, None, Some(other)]);
    }
}
