//! Forgetting a subject in the digests that are stored: the wrapper of `forget_in_digests.lua`.
//!
//! A digest is about nobody, so it is not removed with its subjects. It keeps its numbers and loses the names.

use std::sync::LazyLock;

use redis::RedisResult;

use crate::types::{DailyDigest, DeliveryId, Notification, NotificationKind, Subject};
use crate::wire::{Partition, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("forget_in_digests.lua")));

/// Takes the subject out of the digests that these deliveries carry. Repeatable.
///
/// # Errors
///
/// What Redis or the connection said; some may be done.
pub async fn forget_in_digests(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    ids: &[DeliveryId],
) -> RedisResult<()> {
    for key in ids.iter().map(|id| keys.delivery(id)) {
        let mut read = redis::cmd("HGET");
        read.arg(&key).arg(NotificationKind::Digest.as_str());
        // Where another erasure was faster, the digest names fewer: so this ends.
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

/// The digest without this subject; `None` where it does not name it.
fn without(json: &str, subject: &Subject) -> Option<String> {
    let mut digest: DailyDigest = serde_json::from_str(json).ok()?;
    let named = digest.dead_first.len() + digest.waiting_first.len();
    digest.dead_first.retain(|dead| dead.subject != subject.as_str());
    digest.waiting_first.retain(|waiting| waiting != subject);
    let is_changed = digest.dead_first.len() + digest.waiting_first.len() < named;
    is_changed.then(|| Notification::Digest(digest).to_json())
}
