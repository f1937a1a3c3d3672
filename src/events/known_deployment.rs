//! Which deployment this daemon has seen in a partition, so that an emptied or exchanged Redis does not go unnoticed.
//!
//! A checkpoint that is gone looks like a deployment that has not counted anything yet. Only a daemon that has seen the
//! one before can tell the difference.

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::types::DeploymentId;

/// Notes in `known` the deployment that is stored now; `None` if nothing has been counted. Returns the one that it has
/// replaced: everything that belonged to that one is gone. Each loss is returned once.
pub(super) fn replaced(known: &mut Option<DeploymentId>, stored: Option<&DeploymentId>) -> Option<DeploymentId> {
    if known.as_ref() == stored { None } else { std::mem::replace(known, stored.cloned()) }
}

/// The deployment that this checkpoint belongs to; `None` if nothing was counted yet.
///
/// # Errors
///
/// What Redis or the connection said.
pub async fn stored_deployment(client: &RedisClient, checkpoint: &str) -> RedisResult<Option<DeploymentId>> {
    let mut command = redis::cmd("HMGET");
    command.arg(checkpoint).arg("id").arg("instance");
    let (id, instance): (Option<String>, Option<String>) = client.query(&command).await?;
    Ok(id.and(instance).map(|instance| DeploymentId::from_stored(&instance)))
}

/// Whether a deployment is stored without a name: somebody deleted its checkpoint alone, or set it by hand.
///
/// # Errors
///
/// What Redis or the connection said.
pub(super) async fn is_unnamed(client: &RedisClient, checkpoint: &str, totals: &str) -> RedisResult<bool> {
    let has = async |key: &str, field: &str| client.query::<bool>(redis::cmd("HEXISTS").arg(key).arg(field)).await;
    Ok(has(checkpoint, "id").await? || has(totals, "counted").await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss that is reported with each session would page somebody for ever, and a first start would too.
    #[test]
    fn a_loss_is_found_once_and_a_first_commit_is_none() {
        let [one, other] = ["one", "other"].map(DeploymentId::from_stored);
        let mut known = None;
        let stored = [None, Some(&one), Some(&one), None, None, Some(&other), Some(&one)];
        let lost = stored.map(|stored| replaced(&mut known, stored));
        assert_eq!(lost, [None, None, None, Some(one.clone()), None, None, Some(other)]);
    }
}
