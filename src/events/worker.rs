//! The worker of a partition: reads and commits while the lease is its own, and starts over whenever something goes
//! wrong.
//!
//! Whatever goes wrong, the answer is the same: drop what was read and what is held, and start from the stored
//! checkpoint. Read next: [`super::session`], the loop on one connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::audit::Audit;
use crate::ledger::history::HistoryConfig;
use crate::ledger::retention::PeriodArchiver;
use crate::ledger::{Committer, StreamTrimmer};
use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::redis_client::{ErrorKind, RedisClient, RedisEndpoint};
use crate::subjects::Plans;
use crate::subjects::watch::ChangeFeed;
use crate::types::Keys;

use super::batch_builder::BatchBuilder;
use super::batch_sizer::BatchSizer;
use super::config::StreamConfig;
use super::counting_status::CountingStatus;
use super::lease::{LeaseStatus, PartitionLease};
use super::read_ahead::ReadAhead;
use super::read_sizer::ReadSizer;
use super::report::WorkerReport;
use super::session_error::SessionError;
use super::state_loader::StateLoader;
use super::stream_maintenance::StreamMaintenance;
use super::worker_cache::WorkerCache;

/// Starting over this often without a commit in between is no race any more: wait before the next try.
const RESTARTS_AT_ONCE: u32 = 3;

/// Reads and commits one partition.
#[derive(Debug)]
pub struct EventWorker {
    pub(super) endpoint: RedisEndpoint,
    pub(super) client: Arc<RedisClient>,
    pub(super) lease: Option<PartitionLease>,
    pub(super) keys: Keys,
    pub(super) committer: Arc<Committer>,
    pub(super) audit: Audit,
    pub(super) stream_maintenance: StreamMaintenance,
    pub(super) ahead: ReadAhead,
    pub(super) loader: StateLoader,
    pub(super) held: WorkerCache,
    pub(super) builder: BatchBuilder,
    pub(super) report: WorkerReport,
    pub(super) audited: Instant,
    /// Restarts since the last commit.
    pub(super) restarts: u32,
    pub(super) read_sizer: ReadSizer,
    pub(super) batch_sizer: BatchSizer,
}

/// What a worker is made of.
#[derive(Debug)]
pub struct EventWorkerParts {
    /// Where Redis is; the reader connects by itself.
    pub endpoint: RedisEndpoint,
    /// For everything but reading.
    pub client: Arc<RedisClient>,
    /// Who reads where there are several workers; without it all do, and each batch is a race.
    pub lease: Option<PartitionLease>,
    /// The partition's keys.
    pub keys: Keys,
    /// How to read.
    pub config: StreamConfig,
    /// How long history is kept.
    pub history: HistoryConfig,
    /// How to commit.
    pub committer: Committer,
    /// The plans.
    pub plans: Plans,
    /// The most subjects held in memory.
    pub cache_entries: usize,
    /// Changes of subjects.
    pub changes: ChangeFeed,
    /// Notified after a commit that raised alerts.
    pub new_alerts: Arc<Notify>,
    /// Told when counting stops for good.
    pub status: CountingStatus,
}

impl EventWorker {
    /// A worker that has not read anything yet.
    pub fn new(parts: EventWorkerParts) -> Self {
        let EventWorkerParts { endpoint, client, lease, keys, config, history, committer, plans, .. } = parts;
        let EventWorkerParts { cache_entries, changes, new_alerts, status, .. } = parts;
        let batch_sizer = BatchSizer::new();
        let held = WorkerCache::new(cache_entries, config.event_ids_max, &plans).with_metrics_max(config.metrics_max);
        let loader = StateLoader::new(keys.clone(), plans, changes);
        Self {
            audit: Audit::new(keys.clone()),
            stream_maintenance: StreamMaintenance::new(
                StreamTrimmer::new(keys.clone(), config.trim),
                PeriodArchiver::new(keys.clone(), config.late_max, history),
            ),
            held,
            builder: BatchBuilder::new(keys.clone(), config.late_max, batch_sizer.bounds())
                .with_age_max(config.age_max),
            report: WorkerReport::new(keys.partition(), new_alerts, status),
            committer: Arc::new(committer),
            audited: Instant::now(),
            restarts: 0,
            read_sizer: ReadSizer::new(config.batch_entries),
            batch_sizer,
            endpoint,
            client,
            lease,
            keys,
            ahead: ReadAhead::default(),
            loader,
        }
    }

    /// Reads and commits until stopped, while the lease is ours; a commit that is under way is finished first. Waits
    /// every outage out. Returns before it was stopped only where everything was moved to another deployment.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut lease = self.lease.take();
        self.run_sessions(lease.as_mut(), &stop).await;
        if let Some(lease) = lease {
            lease.release(&self.client).await;
        }
    }

    /// One session after another, until `stop`, or until nothing is left to read here.
    async fn run_sessions(&mut self, mut lease: Option<&mut PartitionLease>, stop: &CancellationToken) {
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        loop {
            let before = self.report.commits();
            let error = match self.run_with_lease(lease.as_deref_mut(), stop).await {
                Ok(LeaseStatus::Stopped) => return,
                Ok(LeaseStatus::Held | LeaseStatus::HeldByOther) => {
                    // Whoever reads the partition holds as much: this daemon needs the memory for its own.
                    self.held.forget_totals();
                    retries.reset();
                    continue;
                }
                Err(error) => error,
            };
            if self.report.commits() > before {
                retries.reset();
                self.restarts = 0;
            }
            if matches!(error, SessionError::Read(_)) {
                self.read_sizer.failed();
            }
            let delay = match error.error_kind() {
                None => {
                    self.restarts += 1;
                    tracing::debug!(reason = %error, "reading again");
                    if self.restarts == RESTARTS_AT_ONCE + 1 {
                        self.report.makes_no_progress(&error);
                    }
                    if self.restarts > RESTARTS_AT_ONCE { retries.next_delay() } else { Duration::ZERO }
                }
                Some(ErrorKind::MovedAway) => {
                    tracing::debug!(%error, "the partition was moved away");
                    return;
                }
                Some(kind) => {
                    self.report.redis_failed(kind, &error);
                    retries.next_delay()
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// Waits until the lease is ours, and works on one connection while it is.
    async fn run_with_lease(
        &mut self,
        lease: Option<&mut PartitionLease>,
        stop: &CancellationToken,
    ) -> Result<LeaseStatus, SessionError> {
        let Some(lease) = lease else { return self.run_session(stop).await.map(|()| LeaseStatus::Stopped) };
        if lease.wait(&self.client, &mut self.report, stop).await? == LeaseStatus::Stopped {
            return Ok(LeaseStatus::Stopped);
        }
        let (client, over) = (Arc::clone(&self.client), stop.child_token());
        lease.keep_during(&client, &over, self.run_session(&over)).await
    }
}
