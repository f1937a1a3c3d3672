//! Erases subjects from stored digests.
//!
//! A digest belongs to no subject, so it is not removed. It keeps its numbers and loses the names.

use std::collections::BTreeSet;

use redis::RedisResult;

use super::subject_deliveries::deliveries_of;
use crate::redis_client::replace_field::replace_field;
use crate::redis_client::{Partition, Partitions};
use crate::types::{Branch, DailyDigest, DeliveryId, Notification, NotificationKind, Separator, Subject};

/// Removes the subjects of a branch from the digests in these deliveries. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some digests may already be changed.
pub async fn forget_in_digests(
    Partition { client, keys }: &Partition,
    branch: &Branch,
    ids: &[DeliveryId],
) -> RedisResult<()> {
    for id in ids {
        replace_field(client, &keys.delivery(id), NotificationKind::Digest.as_str(), |json| without(json, branch))
            .await?;
    }
    Ok(())
}

/// Removes erased subjects from these digests, because a subject may be erased after a digest was read and before it
/// was stored. A subject without deliveries was erased: every subject in a digest has some. Repeatable.
pub(super) async fn forget_erased(partitions: &Partitions, ids: &[DeliveryId]) -> RedisResult<()> {
    let Partition { client, keys } = partitions.first();
    for id in ids {
        let mut read = redis::cmd("HGET");
        read.arg(keys.delivery(id)).arg(NotificationKind::Digest.as_str());
        let stored: Option<String> = client.query(&read).await?;
        let Some(digest) = stored.and_then(|json| serde_json::from_str::<DailyDigest>(&json).ok()) else { continue };
        let dead = digest.dead_first.iter().filter_map(|dead| dead.subject.parse().ok());
        let named: BTreeSet<Subject> = digest.waiting_first.iter().cloned().chain(dead).collect();
        for subject in named {
            if deliveries_of(partitions.partition_of(&subject), Some(&subject)).await?.is_empty() {
                forget_in_digests(partitions.first(), &Branch::new(subject, Separator::NONE), ids).await?;
            }
        }
    }
    Ok(())
}

/// The digest without the subjects of a branch; `None` if it names none of them.
fn without(json: &str, branch: &Branch) -> Option<String> {
    let mut digest: DailyDigest = serde_json::from_str(json).ok()?;
    let named = digest.dead_first.len() + digest.waiting_first.len();
    digest.dead_first.retain(|dead| !branch.contains(&dead.subject));
    digest.waiting_first.retain(|waiting| !branch.contains(waiting.as_str()));
    let is_changed = digest.dead_first.len() + digest.waiting_first.len() < named;
    is_changed.then(|| Notification::Digest(digest).to_json())
}
