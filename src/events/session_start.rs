//! Where a session begins: behind the stored checkpoint, with nothing held.

use redis::RedisResult;

use crate::redis_client::{ErrorKind, error_kind};
use crate::types::{DeploymentId, StreamId};

use super::parse::arrival_of;
use super::session_error::SessionError;
use super::worker::EventWorker;

/// Where a session begins.
#[derive(Debug)]
pub(super) struct SessionStart {
    pub(super) checkpoint: StreamId,
    pub(super) instance: DeploymentId,
    /// How often counters were removed.
    pub(super) erasure_epoch: u64,
}

impl EventWorker {
    /// Forgets what is held, for another worker may have committed, and looks where to begin.
    pub(super) async fn start(&mut self) -> Result<SessionStart, SessionError> {
        let redis = |source| SessionError::Redis { operation: "read the checkpoint", source };
        self.held.forget_totals();
        if self.builder.has_used_numbers_up() {
            self.held.cache.forget_use();
            self.builder.restart_numbers();
        }
        let mut stored = redis::cmd("HMGET");
        stored.arg(self.keys.checkpoint()).arg("id").arg("instance").arg("erasure_epoch").arg("format");
        type Stored = (Option<String>, Option<String>, Option<u64>, Option<String>, Option<String>);
        let (id, instance, erasure_epoch, format, counted_before): Stored =
            self.client.query(stored.arg("counted_before")).await.map_err(redis)?;
        if id.is_none() && format.is_none() {
            self.refuse_to_begin_again().await?;
        }
        let stored = instance.map(|instance| DeploymentId::from_stored(&instance));
        // A checkpoint that was set by hand has no name, and its deployment is still there.
        if id.is_none() || stored.is_some() {
            self.report.deployment_found(id.as_ref().and(stored.as_ref()));
        }
        let instance = match stored {
            Some(instance) => instance,
            None => {
                let drawn = self.draw_instance().await.map_err(redis)?;
                if id.is_some() {
                    self.report.deployment_named(&drawn);
                }
                drawn
            }
        };
        let checkpoint = StreamId::from_stored(id.as_deref());
        let now = self.client.server_time().await.map_err(redis)?;
        // After a stream was made again the newest ids lie ahead: its entries may have been counted under another name.
        let newest_ids = checkpoint.max(StreamId::from_stored(counted_before.as_deref()));
        let complete =
            self.held.event_ids.read(&self.client, &self.keys, arrival_of(newest_ids, now), checkpoint).await;
        if !complete.map_err(|source| SessionError::Redis { operation: "read the ids of counted events", source })? {
            return Err(SessionError::Again("another worker committed while the ids of events were read"));
        }
        self.stream_maintenance.begin_session(self.held.event_ids.window());
        Ok(SessionStart { checkpoint, instance, erasure_epoch: erasure_epoch.unwrap_or(0) })
    }

    /// Where no checkpoint is stored, nothing was counted, or the checkpoint alone was deleted: from the stream's
    /// beginning every entry that is still there would be counted a second time. After FLUSHALL the totals have gone as
    /// well.
    async fn refuse_to_begin_again(&self) -> Result<(), SessionError> {
        let (checkpoint, totals) = (self.keys.checkpoint(), self.keys.totals());
        let counted: RedisResult<Option<String>> =
            self.client.query(redis::cmd("HGET").arg(&totals).arg("counted")).await;
        match counted.map_err(|source| SessionError::Redis { operation: "read what was counted", source })? {
            Some(counted) => Err(SessionError::CheckpointGone { checkpoint, totals, counted }),
            None => Ok(()),
        }
    }

    /// Names a deployment that has no name yet. One that this daemon has seen keeps its name: to other daemons another
    /// name is another deployment. A server without room gets the name with the first commit, which makes room.
    async fn draw_instance(&self) -> RedisResult<DeploymentId> {
        let drawn = self.report.known_deployment().cloned().unwrap_or_else(DeploymentId::random);
        let checkpoint = self.keys.checkpoint();
        let kept: RedisResult<bool> =
            self.client.query(redis::cmd("HSETNX").arg(&checkpoint).arg("instance").arg(drawn.as_str())).await;
        match kept {
            Ok(true) => Ok(drawn),
            Ok(false) => {
                let first: String = self.client.query(redis::cmd("HGET").arg(&checkpoint).arg("instance")).await?;
                Ok(DeploymentId::from_stored(&first))
            }
            Err(error) if error_kind(&error) == ErrorKind::Full => Ok(drawn),
            Err(error) => Err(error),
        }
    }
}
