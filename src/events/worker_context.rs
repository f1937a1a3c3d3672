//! The state that a worker keeps from session to session. Read next: [`super::worker`], which runs the sessions.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::ledger::audit::{AuditFinding, audit};
use crate::ledger::ends_feed::EndsFeed;
use crate::ledger::history::HistoryConfig;
use crate::ledger::retention::PeriodArchiver;
use crate::ledger::{Committer, RememberedWindows};
use crate::redis_client::{RedisClient, RedisEndpoint};
use crate::subjects::watch::ChangeFeed;
use crate::subjects::{Plans, SettingsCache};
use crate::types::{Keys, StreamId};

use super::batch_sizer::BatchSizer;
use super::config::StreamConfig;
use super::counting_status::CountingStatus;
use super::lease::PartitionLease;
use super::read_sizer::ReadSizer;
use super::report::WorkerReport;
use super::session_error::SessionError;
use super::stream_maintenance::StreamMaintenance;
use super::worker_cache::SubjectRows;

/// Reads and commits one partition.
#[derive(Debug)]
pub struct EventWorker {
    pub(super) parts: EventWorkerParts,
    pub(super) stream_maintenance: StreamMaintenance,
    /// Settings of subjects, which outlive a session.
    pub(super) settings: SettingsCache<SubjectRows>,
    pub(super) report: WorkerReport,
    /// Number of restarts since the last commit.
    pub(super) restarts: u32,
    pub(super) read_sizer: ReadSizer,
    pub(super) batch_sizer: BatchSizer,
}

/// The parts of a worker.
#[derive(Debug)]
pub struct EventWorkerParts {
    /// The Redis server. The reader opens its own connection.
    pub endpoint: RedisEndpoint,
    /// The connection for everything except reading.
    pub client: Arc<RedisClient>,
    /// The lease that decides who reads. Without one, all workers read and race for each batch.
    pub lease: Option<PartitionLease>,
    /// The keys of the partition.
    pub keys: Keys,
    /// The settings of reading.
    pub config: StreamConfig,
    /// How long history is kept.
    pub history: HistoryConfig,
    /// Commits the batches.
    pub committer: Arc<Committer>,
    /// The plans.
    pub plans: Plans,
    /// Maximum number of subjects in memory.
    pub cache_entries: usize,
    /// The feed of changed subjects.
    pub changes: ChangeFeed,
    /// Receives the subjects whose counts were lowered, and the ends of the periods of new alerts.
    pub judged: EndsFeed,
    /// Notified after a commit that raised alerts.
    pub new_alerts: Arc<Notify>,
    /// Receives the partitions in which counting has stopped.
    pub status: CountingStatus,
}

impl EventWorker {
    /// Creates a worker that has not read anything yet.
    pub fn new(parts: EventWorkerParts) -> Self {
        let EventWorkerParts { keys, config, .. } = &parts;
        Self {
            stream_maintenance: StreamMaintenance::new(
                keys.clone(),
                config.trim,
                RememberedWindows::covering(config.event_ids_window),
                PeriodArchiver::new(keys.clone(), config.late_max, parts.history),
            ),
            settings: SettingsCache::new(parts.cache_entries, &parts.plans),
            report: WorkerReport::new(
                keys.partition(),
                (Arc::clone(&parts.new_alerts), parts.judged.clone()),
                parts.status.clone(),
            ),
            restarts: 0,
            read_sizer: ReadSizer::new(config.batch_entries),
            batch_sizer: BatchSizer::new(),
            parts,
        }
    }

    /// Checks whether others removed entries or the stream. If there are unread entries, counts up to `read_max` of the
    /// read ones.
    pub(super) async fn audit(&self, at: StreamId, read_max: u32) -> Result<(), SessionError> {
        let finding = audit(&self.parts.client, &self.parts.keys, at, read_max).await;
        let finding = finding.map_err(|source| SessionError::Redis { operation: "audit the usage stream", source })?;
        WorkerReport::audited(self.parts.keys.stream(), at, finding);
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
