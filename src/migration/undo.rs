//! Undoes an incomplete migration: removes all copies from the target, so that daemons may work in the source.

use crate::redis_client::{Partition, RedisClient};

use super::append::CopiedStream;
use super::endpoints::Migration;
use super::error::MigrationError;
use super::marks::{MOVED_TO, TargetState, ensure_no_daemon};
use super::target::{Purpose, Target};

impl Migration<'_> {
    /// Removes the copies, then the marks. Repeatable. Returns the number of keys removed from the target.
    ///
    /// # Errors
    ///
    /// [`MigrationError`]: a complete migration can't be undone, because a daemon may have counted in the target.
    /// Events that producers wrote to the target stay.
    pub async fn undo(&self, mut say: impl FnMut(&str)) -> Result<u64, MigrationError> {
        let state = self.source_state().await?;
        self.ensure_not_moved().await?;
        ensure_no_daemon(self.to).await?;
        let mut removed = 0;
        match self.target_state(&state).await? {
            TargetState::Complete => return Err(MigrationError::Complete(self.to.first().keys.checkpoint())),
            TargetState::Empty => {}
            TargetState::Begun => {
                let events = self.compare_stream(CopiedStream::Usage, &state).await?.surplus();
                if events > 0 {
                    return Err(MigrationError::EventsAtTarget { events });
                }
                say("removing what was copied");
                removed += self.remove_copied_subjects().await?;
                removed += self.clear_copies().await?;
                // The first checkpoint last, because it tells who owns the settings of subjects.
                for Partition { client, keys } in self.to.iter().skip(1).chain(self.to.iter().take(1)) {
                    removed += remove(client, &[keys.stream(), &keys.checkpoint()]).await?;
                }
            }
        }
        for Partition { client, keys } in self.from.iter() {
            let unmark = redis::cmd("HDEL").arg(keys.checkpoint()).arg(MOVED_TO).to_owned();
            let () = client.query(&unmark).await.map_err(MigrationError::redis("remove the mark of the source"))?;
        }
        Ok(removed)
    }

    async fn remove_copied_subjects(&self) -> Result<u64, MigrationError> {
        if !self.owns_subjects().await? {
            return Ok(0);
        }
        // Without copied subjects, every subject of the target is foreign.
        let subjects = Target::new(self.to, Purpose::Compare).other_subjects().await?;
        self.remove_subjects(&subjects).await.map_err(MigrationError::redis("remove settings of subjects"))?;
        Ok(subjects.len() as u64)
    }
}

async fn remove(client: &RedisClient, keys: &[&str]) -> Result<u64, MigrationError> {
    client.query(redis::cmd("UNLINK").arg(keys)).await.map_err(MigrationError::redis("remove what was copied"))
}
