//! Starts a session after the stored checkpoint, without counters in memory.

use redis::RedisResult;
use std::time::Instant;

use crate::ledger::{Batch, CountedEventIds, RememberedWindows, grants_due};
use crate::redis_client::xread::StreamReader;
use crate::redis_client::{ErrorKind, Partition, error_kind};
use crate::subjects::SettingsCache;
use crate::types::{DeploymentId, StreamId};

use super::batch_builder::BatchBuilder;
use super::in_flight_commit::InFlightCommit;
use super::parse::arrival_of;
use super::read_ahead::ReadAhead;
use super::session::Session;
use super::session_error::SessionError;
use super::state_loader::StateLoader;
use super::worker_cache::WorkerCache;
use super::worker_context::EventWorker;

/// Maximum number of read entries that are counted when a session starts. More are left only if nothing is trimmed;
/// then this look is not urgent.
const RETURNED_LOOK_MAX: u32 = 10_000;

impl<'w> Session<'w> {
    /// Reads where to start, connects the reader, and takes the worker's settings of subjects.
    ///
    /// # Errors
    ///
    /// A failure of Redis, or a state of the stream or the checkpoint that forbids counting.
    pub(super) async fn start(worker: &'w mut EventWorker) -> Result<Self, SessionError> {
        let (first, event_ids) = worker.first_batch().await?;
        worker.stream_maintenance.begin_session(event_ids.window());
        // A restarted server may have brought entries back, and the next commit would trim them.
        worker.audit(first.from, RETURNED_LOOK_MAX).await?;
        let parts = &worker.parts;
        let reader = StreamReader::connect(&parts.endpoint, parts.keys.stream()).await?;
        worker.report.memory_unbounded(reader.unbounded());
        let first = Batch { server: reader.run_id().cloned(), ..first };
        let partition = Partition { client: parts.client.clone(), keys: parts.keys.clone() };
        let due = grants_due::next(&partition).await;
        let due = due.map_err(|source| SessionError::Redis { operation: "read when grants expire", source })?;
        let none = SettingsCache::new(parts.cache_entries, &parts.plans);
        let settings = std::mem::replace(&mut worker.settings, none);
        let bounds = worker.batch_sizer.bounds();
        let mut builder = BatchBuilder::new(parts.keys.clone(), parts.config.late_max, first, bounds)
            .with_age_max(parts.config.age_max);
        builder.set_grants_due(due);
        let now = Instant::now();
        Ok(Self {
            after: builder.from(),
            builder,
            held: WorkerCache::new(settings, event_ids).with_metrics_max(parts.config.metrics_max),
            loader: StateLoader::new(parts.keys.clone(), parts.plans.clone(), parts.changes.clone()),
            reader,
            ahead: ReadAhead::default(),
            in_flight: InFlightCommit::default(),
            is_behind: false,
            batch_began: now,
            subscribed: now,
            audited: now,
            worker,
        })
    }
}

impl EventWorker {
    /// The first batch, which follows the stored checkpoint, and the ids of the events counted before it.
    async fn first_batch(&mut self) -> Result<(Batch, CountedEventIds), SessionError> {
        let redis = |source| SessionError::Redis { operation: "read the checkpoint", source };
        let mut stored = redis::cmd("HMGET");
        stored.arg(self.parts.keys.checkpoint()).arg("id").arg("instance").arg("erasure_epoch").arg("format");
        type Stored = (Option<String>, Option<String>, Option<u64>, Option<String>, Option<String>);
        let (id, instance, erasure_epoch, format, counted_before): Stored =
            self.parts.client.query(stored.arg("counted_before")).await.map_err(redis)?;
        if id.is_none() && format.is_none() {
            self.refuse_to_begin_again().await?;
        }
        let stored = instance.map(|instance| DeploymentId::from_stored(&instance));
        // A checkpoint that was set by hand has no name, but its deployment still exists.
        if id.is_none() || stored.is_some() {
            self.report.deployment_found(id.as_ref().and(stored.as_ref()));
        }
        let instance = match stored {
            Some(instance) => instance,
            None => {
                let drawn = self.draw_instance().await.map_err(redis)?;
                if id.is_some() {
                    // The checkpoint was set by hand. Nothing of the deployment is lost.
                    self.report.deployment = Some(drawn.clone());
                }
                drawn
            }
        };
        let checkpoint = StreamId::from_stored(id.as_deref());
        let now = self.parts.client.server_time().await.map_err(redis)?;
        // After a stream was made again, the newest ids may be above the checkpoint: its entries may have been counted
        // under another name.
        let newest_ids = checkpoint.max(StreamId::from_stored(counted_before.as_deref()));
        let config = &self.parts.config;
        let remembered = RememberedWindows::covering(config.event_ids_window);
        let mut event_ids = CountedEventIds::new(config.event_ids_max).remembering(remembered);
        let windows = remembered.around(arrival_of(newest_ids, now), newest_ids);
        let complete = event_ids.read(&self.parts.client, &self.parts.keys, windows, checkpoint).await;
        if !complete.map_err(|source| SessionError::Redis { operation: "read the ids of counted events", source })? {
            return Err(SessionError::Again("another worker committed while the ids of events were read"));
        }
        let batch = Batch::new(instance, checkpoint);
        Ok((Batch { erasure_epoch: erasure_epoch.unwrap_or(0), ..batch }, event_ids))
    }

    /// Refuses to start at the stream's beginning if only the checkpoint was deleted: every entry that is still there
    /// would be counted a second time. Without a checkpoint, the totals tell whether anything was counted; after
    /// FLUSHALL they are gone as well.
    async fn refuse_to_begin_again(&self) -> Result<(), SessionError> {
        let (checkpoint, totals) = (self.parts.keys.checkpoint(), self.parts.keys.totals());
        let counted: RedisResult<Option<String>> =
            self.parts.client.query(redis::cmd("HGET").arg(&totals).arg("counted")).await;
        match counted.map_err(|source| SessionError::Redis { operation: "read what was counted", source })? {
            Some(counted) => Err(SessionError::CheckpointGone { checkpoint, totals, counted }),
            None => Ok(()),
        }
    }

    /// Names a deployment that has no name yet. A deployment that this daemon has seen keeps its name: to other
    /// daemons, another name is another deployment. If the server has no room, the first commit makes room and stores
    /// the name.
    async fn draw_instance(&self) -> RedisResult<DeploymentId> {
        let drawn = self.report.deployment.clone().unwrap_or_else(DeploymentId::random);
        let checkpoint = self.parts.keys.checkpoint();
        let kept: RedisResult<bool> =
            self.parts.client.query(redis::cmd("HSETNX").arg(&checkpoint).arg("instance").arg(drawn.as_str())).await;
        match kept {
            Ok(true) => Ok(drawn),
            Ok(false) => {
                let first: String =
                    self.parts.client.query(redis::cmd("HGET").arg(&checkpoint).arg("instance")).await?;
                Ok(DeploymentId::from_stored(&first))
            }
            Err(error) if error_kind(&error) == ErrorKind::Full => Ok(drawn),
            Err(error) => Err(error),
        }
    }
}
