//! Erases a subject from stored digests: the wrapper of `forget_in_digests.lua`.
//!
//! A digest belongs to no subject, so it is not removed. It keeps its numbers and loses the subject's name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use redis::RedisResult;

use super::subject_deliveries::deliveries_of;
use crate::redis_client::{Partition, Partitions, Script};
use crate::types::{DailyDigest, DeliveryId, Notification, NotificationKind, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("forget_in_digests.lua")));

/// Removes the subject from the digests in these deliveries. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some digests may already be changed.
pub async fn forget_in_digests(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    ids: &[DeliveryId],
) -> RedisResult<()> {
    for key in ids.iter().map(|id| keys.delivery(id)) {
        let mut read = redis::cmd("HGET");
        read.arg(&key).arg(NotificationKind::Digest.as_str());
        // If another erasure was faster, the digest names fewer subjects, so this loop ends.
        while let Some(stored) = client.query::<Option<String>>(&read).await? {
            let Some(without) = without(&stored, subject) else { break };
            let answer: String = SCRIPT.call().key(&key).arg(stored).arg(without).run(client).await?;
            if answer == "replaced" {
                break;
            }
        }
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
                forget_in_digests(partitions.first(), &subject, ids).await?;
            }
        }
    }
    Ok(())
}

/// The digest without this subject; `None` if it does not name the subject.
fn without(json: &str, subject: &Subject) -> Option<String> {
    let mut digest: DailyDigest = serde_json::from_str(json).ok()?;
    let named = digest.dead_first.len() + digest.waiting_first.len();
    digest.dead_first.retain(|dead| dead.subject != subject.as_str());
    digest.waiting_first.retain(|waiting| waiting != subject);
    let is_changed = digest.dead_first.len() + digest.waiting_first.len() < named;
    is_changed.then(|| Notification::Digest(digest).to_json())
}
