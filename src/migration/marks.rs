//! The marks in the checkpoints of both deployments: the progress of the target, and that the source was left.

use redis::RedisResult;

use crate::ledger::commit_settings::FORMAT;
use crate::redis_client::{Partition, Partitions, RedisClient, Scan};
use crate::types::{KeyFamily, Keys, StreamId};

use super::endpoints::Migration;
use super::error::MigrationError;
use super::source;

/// Prefix of the checkpoint's field `migration` while a deployment is being copied to.
pub const COPYING: &str = "copying";
/// Prefix of the field after the migration.
const COMPLETE: &str = "done";

/// The field of the source's checkpoint that names the target.
pub(super) const MOVED_TO: &str = "moved_to";
/// The field of the target's first checkpoint that tells who owns the settings of subjects.
pub(super) const SETTINGS: &str = "migration_settings";
/// The target had no subjects before, so all were copied.
const OWN: &str = "own";
/// The target had subjects of another stream.
const SHARED: &str = "shared";
/// The field of the target's first checkpoint with the counted positions of the source's partitions.
pub(super) const COUNTED: &str = "migration_counted";

/// The state of the source's checkpoints.
#[derive(Debug)]
pub(super) struct SourceState {
    pub(super) instance: String,
    pub(super) fingerprint: String,
    /// Per partition, the last counted entry.
    pub(super) counted: Vec<StreamId>,
}

/// Progress of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetState {
    /// The target is empty.
    Empty,
    /// The target may hold a part of this source.
    Begun,
    /// The target holds everything except events that reached the source later.
    Complete,
}

impl SourceState {
    /// The newest entry that any partition has counted. Entries of the target must be newer.
    pub(super) fn last_counted(&self) -> StreamId {
        self.counted.iter().copied().max().unwrap_or(StreamId::ZERO)
    }

    pub(super) fn mark_of_complete(&self) -> String {
        format!("{COMPLETE} {}", self.instance)
    }
}

impl Migration<'_> {
    pub(super) async fn source_state(&self) -> Result<SourceState, MigrationError> {
        let mut state = SourceState { instance: String::new(), fingerprint: String::new(), counted: Vec::new() };
        for Partition { client, keys } in self.from.iter() {
            let checkpoint = keys.checkpoint();
            let mut read = redis::cmd("HMGET");
            read.arg(&checkpoint).arg(&["id", "format", "instance", "fingerprint"]);
            type Stored = (Option<String>, Option<String>, Option<String>, Option<String>);
            let read: RedisResult<Stored> = client.query(&read).await;
            let (id, format, instance, fingerprint) =
                read.map_err(MigrationError::redis(format!("read {checkpoint}")))?;
            if let Some(format) = format.filter(|format| format != FORMAT) {
                return Err(MigrationError::Format { checkpoint, format });
            }
            state.instance = instance.unwrap_or(state.instance);
            state.fingerprint = fingerprint.unwrap_or(state.fingerprint);
            state.counted.push(id.and_then(|id| id.parse().ok()).unwrap_or(StreamId::ZERO));
        }
        if state.instance.is_empty() {
            return Err(MigrationError::NothingStored(self.from.first().keys.checkpoint()));
        }
        Ok(state)
    }

    /// Fails if the source was moved to another target, because two targets would both send its alerts under the same
    /// ids. Returns whether every partition of the source is marked as moved to this target.
    pub(super) async fn ensure_not_moved(&self) -> Result<bool, MigrationError> {
        let (here, mut is_marked) = (self.moved_to(), true);
        for Partition { client, keys } in self.from.iter() {
            let checkpoint = keys.checkpoint();
            let read = redis::cmd("HGET").arg(&checkpoint).arg(MOVED_TO).to_owned();
            let moved_to: RedisResult<Option<String>> = client.query(&read).await;
            match moved_to.map_err(MigrationError::redis(format!("read {checkpoint}")))? {
                Some(moved_to) if moved_to != here => {
                    return Err(MigrationError::MovedElsewhere { checkpoint, moved_to });
                }
                moved_to => is_marked &= moved_to.is_some(),
            }
        }
        Ok(is_marked)
    }

    /// The mark for the source. It includes the number of partitions, because another number is another deployment.
    fn moved_to(&self) -> String {
        format!("{} with stream.partitions = {}", self.to_shown, self.to.count())
    }

    pub(super) async fn target_state(&self, source: &SourceState) -> Result<TargetState, MigrationError> {
        let of_source = |state: &str| state.split_once(' ').is_some_and(|(_, instance)| instance == source.instance);
        let (mut is_complete, mut is_begun) = (true, false);
        for Partition { client, keys } in self.to.iter() {
            let checkpoint = keys.checkpoint();
            let redis = MigrationError::redis(format!("look whether {checkpoint} is at the target"));
            let read = redis::cmd("HGET").arg(&checkpoint).arg("migration").to_owned();
            let state: Option<String> = client.query(&read).await.map_err(&redis)?;
            match state {
                Some(state) if of_source(&state) => {
                    (is_complete, is_begun) = (is_complete && state.starts_with(COMPLETE), true);
                }
                Some(_) => return Err(MigrationError::NotEmpty(checkpoint)),
                None => {
                    is_complete = false;
                    if let Some(key) = any_key(client, keys).await.map_err(&redis)? {
                        return Err(MigrationError::NotEmpty(key));
                    }
                }
            }
        }
        Ok(match (is_complete, is_begun) {
            (true, _) => TargetState::Complete,
            (_, true) => TargetState::Begun,
            _ => TargetState::Empty,
        })
    }

    /// Marks both deployments: from then on no daemon counts or sends in either.
    pub(super) async fn mark(&self, source: &SourceState, target: TargetState) -> Result<(), MigrationError> {
        let copying = format!("{COPYING} {}", source.instance);
        if target == TargetState::Empty {
            let settings = match source::ensure_no_other_subjects(self.from.first(), self.to.first()).await? {
                0 => OWN,
                _ => SHARED,
            };
            let Partition { client, keys } = self.to.first();
            let mut mark = redis::cmd("HSET");
            mark.arg(keys.checkpoint()).arg("migration").arg(&copying).arg(SETTINGS).arg(settings);
            let () = client.query(&mark).await.map_err(MigrationError::redis("mark the target"))?;
        }
        set_in_checkpoints(self.to, "migration", &copying, "mark the target").await?;
        set_in_checkpoints(self.from, MOVED_TO, &self.moved_to(), "mark the source").await
    }

    /// Whether the subjects of the target were copied there, so that those missing in the source may be removed.
    pub(super) async fn owns_subjects(&self) -> Result<bool, MigrationError> {
        let Partition { client, keys } = self.to.first();
        let read = redis::cmd("HGET").arg(keys.checkpoint()).arg(SETTINGS).to_owned();
        let settings: RedisResult<Option<String>> = client.query(&read).await;
        Ok(settings.map_err(MigrationError::redis("read the mark of the target"))?.as_deref() == Some(OWN))
    }

    /// Fails if the source has counted events since an earlier run appended them, because the target would count them
    /// too.
    pub(super) async fn ensure_counted_as_before(&self, source: &SourceState) -> Result<(), MigrationError> {
        let Partition { client, keys } = self.to.first();
        let redis = MigrationError::redis("record the counted position of the source");
        let counted = source.counted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let note = redis::cmd("HSETNX").arg(keys.checkpoint()).arg(COUNTED).arg(&counted).to_owned();
        let () = client.query(&note).await.map_err(&redis)?;
        let noted: String =
            client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg(COUNTED)).await.map_err(&redis)?;
        if noted == counted { Ok(()) } else { Err(MigrationError::CountedSince) }
    }
}

async fn set_in_checkpoints(
    partitions: &Partitions,
    field: &str,
    value: &str,
    what: &str,
) -> Result<(), MigrationError> {
    for Partition { client, keys } in partitions.iter() {
        let set = redis::cmd("HSET").arg(keys.checkpoint()).arg(field).arg(value).to_owned();
        client.query::<()>(&set).await.map_err(MigrationError::redis(what))?;
    }
    Ok(())
}

/// An existing key of the partition other than the stream.
async fn any_key(client: &RedisClient, keys: &Keys) -> RedisResult<Option<String>> {
    let server = client.primary().await?;
    let mut scan = Scan::keys(keys.pattern());
    while let Some(found) = scan.next::<String>(&server).await? {
        if let Some(key) = found.into_iter().find(|key| KeyFamily::parse(keys, key).is_some()) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

pub(super) async fn ensure_no_daemon(partitions: &Partitions) -> Result<(), MigrationError> {
    for Partition { client, keys } in partitions.iter() {
        let lease = keys.lease();
        let holder: RedisResult<Option<String>> = client.query(redis::cmd("GET").arg(&lease)).await;
        let redis = MigrationError::redis(format!("look whether a daemon holds {lease}"));
        if let Some(holder) = holder.map_err(redis)? {
            return Err(MigrationError::Daemon { lease, holder });
        }
    }
    Ok(())
}
