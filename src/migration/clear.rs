//! Removes earlier copies from the target, because the source may have changed.

use redis::RedisResult;

use crate::redis_client::{Partition, RedisClient, Scan};
use crate::types::{KeyFamily, Keys};

use super::Migration;
use super::append::CopiedStream;
use super::error::MigrationError;
use super::target::Target;

impl Migration<'_> {
    /// Removes all copies of an earlier run, except events, which are appended once, and settings of subjects, which
    /// other streams of the target may use. Returns the number of removed keys.
    pub(super) async fn clear_copies(&self) -> Result<u64, MigrationError> {
        let mut removed = 0;
        for Partition { client, keys } in self.to.iter() {
            let redis = MigrationError::redis(format!("remove what was copied to {}", keys.stream()));
            removed += remove_keys(client, keys).await.map_err(&redis)?;
            forget_copied_entries(client, keys).await.map_err(&redis)?;
        }
        Ok(removed)
    }

    /// Removes settings of subjects that an earlier run copied and that the source no longer has.
    pub(super) async fn remove_other_subjects(&self, copied: &Target<'_>) -> Result<(), MigrationError> {
        let others = copied.other_subjects().await?;
        match others.first() {
            Some(other) if !self.owns_subjects().await? => Err(MigrationError::OtherSettings(other.clone())),
            _ => self.remove_subjects(&others).await.map_err(MigrationError::redis("remove settings of subjects")),
        }
    }

    /// Removes these keys of subjects from the target.
    pub(super) async fn remove_subjects(&self, subjects: &[String]) -> RedisResult<()> {
        for subject in subjects {
            let () = self.to.first().client.query(redis::cmd("UNLINK").arg(subject)).await?;
        }
        Ok(())
    }
}

/// Removes all keys of the partition except its stream and its checkpoint. Data of other streams stays.
async fn remove_keys(client: &RedisClient, keys: &Keys) -> RedisResult<u64> {
    let server = client.primary().await?;
    let mut scan = Scan::keys(keys.pattern());
    let mut removed = 0;
    while let Some(mut found) = scan.next::<String>(&server).await? {
        found.retain(|key| KeyFamily::parse(keys, key).is_some_and(|family| family.name != "checkpoint"));
        if !found.is_empty() {
            removed += client.query::<u64>(redis::cmd("UNLINK").arg(found)).await?;
        }
    }
    Ok(removed)
}

/// Forgets the copy progress of the removed streams, so that their entries are appended again.
async fn forget_copied_entries(client: &RedisClient, keys: &Keys) -> RedisResult<()> {
    let mut fields: Vec<String> = client.query(redis::cmd("HKEYS").arg(keys.checkpoint())).await?;
    fields.retain(|field| CopiedStream::Usage.is_field_of_another(field));
    if fields.is_empty() { Ok(()) } else { client.query(redis::cmd("HDEL").arg(keys.checkpoint()).arg(fields)).await }
}
