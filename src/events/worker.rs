//! The worker of a partition: reads and commits while the lease is its own, and starts over whenever something goes
//! wrong.
//!
//! Whatever goes wrong, the answer is the same: drop what was read and what is held, and start from the stored
//! checkpoint. Read next: [`super::session`], the loop on one connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::audit::{Audit, AuditFinding};
use crate::ledger::history::HistoryConfig;
use crate::ledger::retention::PeriodArchiver;
use crate::ledger::{Committer, StreamTrimmer};
use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::redis_client::{ErrorKind, RedisClient, RedisEndpoint};
use crate::subjects::watch::ChangeFeed;
use crate::subjects::{Plans, SettingsCache};
use crate::types::{Keys, StreamId};

use super::audit_report::report_audit;
use super::batch_sizer::BatchSizer;
use super::config::StreamConfig;
use super::counting_status::CountingStatus;
use super::lease::{LeaseStatus, PartitionLease};
use super::read_sizer::ReadSizer;
use super::report::WorkerReport;
use super::session::Session;
use super::session_error::SessionError;
use super::stream_maintenance::StreamMaintenance;
use super::worker_cache::SubjectRows;

/// Starting over this often without a commit in between is no race any more: wait before the next try.
const RESTARTS_AT_ONCE: u32 = 3;

/// Reads and commits one partition.
#[derive(Debug)]
pub struct EventWorker {
    pub(super) parts: EventWorkerParts,
    pub(super) audit: Audit,
    pub(super) stream_maintenance: StreamMaintenance,
    /// Settings of subjects, which outlive a session.
    pub(super) settings: SettingsCache<SubjectRows>,
    pub(super) report: WorkerReport,
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
    pub committer: Arc<Committer>,
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
        let EventWorkerParts { keys, config, .. } = &parts;
        Self {
            audit: Audit::new(keys.clone()),
            stream_maintenance: StreamMaintenance::new(
                StreamTrimmer::new(keys.clone(), config.trim),
                PeriodArchiver::new(keys.clone(), config.late_max, parts.history),
            ),
            settings: SettingsCache::new(parts.cache_entries, &parts.plans),
            report: WorkerReport::new(keys.partition(), Arc::clone(&parts.new_alerts), parts.status.clone()),
            restarts: 0,
            read_sizer: ReadSizer::new(config.batch_entries),
            batch_sizer: BatchSizer::new(),
            parts,
        }
    }

    /// Reads and commits until stopped, while the lease is ours; a commit that is under way is finished first. Waits
    /// every outage out. Returns before it was stopped only where everything was moved to another deployment.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut lease = self.parts.lease.take();
        self.run_sessions(lease.as_mut(), &stop).await;
        if let Some(lease) = lease {
            lease.release(&self.parts.client).await;
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
        if lease.wait(&self.parts.client, &mut self.report, stop).await? == LeaseStatus::Stopped {
            return Ok(LeaseStatus::Stopped);
        }
        let (client, over) = (Arc::clone(&self.parts.client), stop.child_token());
        lease.keep_during(&client, &over, self.run_session(&over)).await
    }

    /// Works on one connection until it is stopped (`Ok`) or something makes it start over.
    async fn run_session(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        let mut session = Session::start(self).await?;
        let ended = session.run(stop).await;
        session.end();
        ended
    }

    /// Looks whether entries, or the stream itself, went away behind our back. If there are unread entries, counts up
    /// to `read_max` of those that were read.
    pub(super) async fn audit(&self, at: StreamId, read_max: u32) -> Result<(), SessionError> {
        let finding = self.audit.run(&self.parts.client, at, read_max).await;
        let finding = finding.map_err(|source| SessionError::Redis { operation: "audit the usage stream", source })?;
        report_audit(self.parts.keys.stream(), at, finding);
        match finding {
            AuditFinding::Stale(_) => Err(SessionError::Again("another worker committed")),
            AuditFinding::Recreated => Err(SessionError::Again("the stream was made again")),
            AuditFinding::Even
            | AuditFinding::Unread
            | AuditFinding::Gap(_)
            | AuditFinding::Returned(_)
            | AuditFinding::Rewound(_) => Ok(()),
        }
    }
}
