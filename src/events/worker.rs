//! The loop of a partition: read after the checkpoint, add up, commit, again.
//!
//! While the server runs the script of one batch the next is already being read and added up; only the commit itself is strictly
//! one after another, because each names the checkpoint that the one before it wrote. Whatever goes wrong, the answer is the same:
//! drop what was read and start from the stored checkpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::audit::{Audit, AuditFinding};
use crate::ledger::retention::Retention;
use crate::ledger::seen::{SeenLookup, SeenQuery};
use crate::ledger::{Batch, CommitOutcome, Committer};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::subjects::{Plans, SettingsCache};
use crate::types::{Keys, StreamId, UnixMs};
use crate::wire::backoff::{Backoff, BackoffPolicy};
use crate::wire::xread::{StreamReader, XreadReply};
use crate::wire::{RedisClient, RedisEndpoint};

use super::batch_builder::{AddOutcome, BatchBuilder, CounterHeadroom, LastRow, ReadEntry};
use super::config::StreamConfig;
use super::headroom::Headroom;
use super::in_flight_commit::{FinishedCommit, InFlightCommit};
use super::lease::{LeaseStatus, PartitionLease};
use super::read_sizer::ReadSizer;
use super::report::WorkerReport;
use super::retention_timer::RetentionTimer;
use super::session_error::SessionError;

/// How long an idle read waits in the server. Also how often a stream is audited.
const BLOCK: Duration = Duration::from_secs(1);
/// Settings that change while they are read are read again, this often at most; then the next batch sees them.
const READ_AGAIN_MAX: u32 = 3;
/// Starting over this often without a commit in between is no race any more: wait before the next try.
const RESTARTS_AT_ONCE: u32 = 3;

/// Reads and commits one partition.
#[derive(Debug)]
pub struct EventWorker {
    target: RedisEndpoint,
    client: Arc<RedisClient>,
    lease: Option<PartitionLease>,
    keys: Keys,
    committer: Arc<Committer>,
    seen: SeenLookup,
    audit: Audit,
    retention_timer: RetentionTimer,
    plans: Plans,
    cache: SettingsCache<LastRow>,
    changes: ChangeFeed,
    builder: BatchBuilder,
    report: WorkerReport,
    audited: Instant,
    /// Restarts since the last commit.
    restarts: u32,
    read_sizer: ReadSizer,
    headroom: Headroom,
}

/// What a worker is made of.
#[derive(Debug)]
pub struct EventWorkerParts {
    /// Where Redis is; the reader connects by itself.
    pub target: RedisEndpoint,
    /// For everything but reading.
    pub client: Arc<RedisClient>,
    /// Who reads where there are several workers; without it all do, and each batch is a race.
    pub lease: Option<PartitionLease>,
    /// The partition's keys.
    pub keys: Keys,
    /// How to read.
    pub config: StreamConfig,
    /// How to commit.
    pub committer: Committer,
    /// The plans.
    pub plans: Plans,
    /// The most subjects held in memory.
    pub cache_entries: usize,
    /// ChangeFeed of subjects.
    pub changes: ChangeFeed,
    /// Notified after a commit that raised alerts.
    pub raised: Arc<Notify>,
}

impl EventWorker {
    /// A worker that has not read anything yet.
    #[must_use]
    pub fn new(parts: EventWorkerParts) -> Self {
        let EventWorkerParts { target, client, lease, keys, config, committer, plans, cache_entries, changes, raised } =
            parts;
        Self {
            seen: SeenLookup::new(keys.clone()),
            audit: Audit::new(keys.clone()),
            retention_timer: RetentionTimer::new(Retention::new(keys.clone(), config.late_max)),
            cache: SettingsCache::new(cache_entries, &plans),
            builder: BatchBuilder::new(config.late_max),
            report: WorkerReport::new(raised),
            committer: Arc::new(committer),
            audited: Instant::now(),
            restarts: 0,
            read_sizer: ReadSizer::new(config.batch_entries),
            headroom: Headroom::default(),
            target,
            client,
            lease,
            keys,
            plans,
            changes,
        }
    }

    /// Reads and commits until stopped, while the lease is ours; a commit that is under way is finished first. Never gives up: an
    /// outage is waited out.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut lease = self.lease.take();
        self.read(lease.as_mut(), &stop).await;
        if let Some(lease) = lease {
            lease.release(&self.client).await;
        }
    }

    async fn read(&mut self, mut lease: Option<&mut PartitionLease>, stop: &CancellationToken) {
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
                        self.report.circling(&error);
                    }
                    if self.restarts > RESTARTS_AT_ONCE { retries.next_delay() } else { Duration::ZERO }
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
        let Some(lease) = lease else { return self.session(stop).await.map(|()| LeaseStatus::Stopped) };
        if lease.wait(&self.client, &mut self.report, stop).await? == LeaseStatus::Stopped {
            return Ok(LeaseStatus::Stopped);
        }
        let (client, over) = (Arc::clone(&self.client), stop.child_token());
        lease.keep_during(&client, &over, self.session(&over)).await
    }

    /// Works on one connection until it is stopped (`Ok`) or something makes it start over.
    async fn session(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        let mut at = self.checkpoint().await?;
        self.builder.set_headroom(self.headroom.as_of(at));
        let mut reader = StreamReader::connect(&self.target, self.keys.stream()).await?;
        let mut in_flight = InFlightCommit::default();
        reader.request(&at.to_string(), self.read_sizer.count(), Some(BLOCK)).await?;
        loop {
            let received = match self.receive(&mut reader, &mut in_flight, stop).await? {
                Some(received) => received,
                None => return self.settle(&mut in_flight).await,
            };
            let Some(last) = received.last else {
                self.settle(&mut in_flight).await?;
                self.look_round(at).await?;
                self.report.serving();
                self.retention_timer.look(&self.client, at, UnixMs(received.server_ms)).await;
                reader.request(&at.to_string(), self.read_sizer.count(), Some(BLOCK)).await?;
                continue;
            };
            let to = StreamId { ms: last.ms, seq: last.seq };
            self.read_sizer.came(&received);
            reader.request(&to.to_string(), self.read_sizer.count(), Some(BLOCK)).await?;
            self.add_up(&reader, at, to, &received).await?;
            self.settle(&mut in_flight).await?;
            let batch = self.finish(at).await?;
            in_flight = InFlightCommit::of(batch, &self.committer, &self.client);
            at = to;
        }
    }

    async fn checkpoint(&self) -> Result<StreamId, SessionError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.checkpoint()).arg("id");
        let stored: Option<String> = self
            .client
            .query(&command)
            .await
            .map_err(|source| SessionError::Redis { operation: "read the checkpoint", source })?;
        Ok(stored.and_then(|id| id.parse().ok()).unwrap_or(StreamId::ZERO))
    }

    /// Waits for the next reply, and meanwhile for the commit that is under way. `None` when stopped.
    async fn receive(
        &mut self,
        reader: &mut StreamReader,
        in_flight: &mut InFlightCommit,
        stop: &CancellationToken,
    ) -> Result<Option<XreadReply>, SessionError> {
        let receive = reader.receive();
        tokio::pin!(receive);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                done = in_flight.finished() => self.judge(done).await?,
                received = &mut receive => return Ok(Some(received?)),
            }
        }
    }

    /// Adds up what was read, reading the settings of subjects where they are not held.
    async fn add_up(
        &mut self,
        reader: &StreamReader,
        from: StreamId,
        to: StreamId,
        received: &XreadReply,
    ) -> Result<(), SessionError> {
        self.cache.shrink();
        self.take_changes();
        self.builder.begin(from, to, received.entries as u64, UnixMs(received.server_ms));
        let mut again: Vec<usize> = Vec::new();
        let mut cold: Vec<u32> = Vec::new();
        for entry in entries_of(reader) {
            let at = entry.at;
            if let AddOutcome::Needs(slot) = self.builder.add(&mut self.cache, entry) {
                again.push(at);
                cold.push(slot);
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        cold.sort_unstable();
        cold.dedup();
        self.read_settings(&cold).await?;
        let mut wanted = again.into_iter().peekable();
        for entry in entries_of(reader) {
            if wanted.next_if_eq(&entry.at).is_some() && self.builder.add(&mut self.cache, entry) != AddOutcome::Done {
                return Err(SessionError::Again("settings changed while they were read"));
            }
        }
        Ok(())
    }

    /// Reads settings until none of them changed while it was read: a change is noticed after the reading it came too late for.
    async fn read_settings(&mut self, cold: &[u32]) -> Result<(), SessionError> {
        for again in 0..=READ_AGAIN_MAX {
            let missing: Vec<u32> =
                cold.iter().copied().filter(|slot| self.cache.slot(*slot).profile().is_none()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let unreadable = self
                .cache
                .read(&self.client, &self.keys, &self.plans, &missing)
                .await
                .map_err(|source| SessionError::Redis { operation: "read the settings of subjects", source })?;
            self.report.unreadable(&unreadable);
            // Somebody who writes a subject all the time must not stop the counting: what changes during the last reading is left
            // for the next batch, which comes well within the second that a change may take.
            if again < READ_AGAIN_MAX && self.changes.is_live() {
                self.take_changes();
            }
        }
        Ok(())
    }

    fn take_changes(&mut self) {
        match self.changes.take() {
            SubjectChanges::Any => self.cache.changed_all(),
            SubjectChanges::Of(subjects) => subjects.iter().for_each(|subject| self.cache.changed(subject)),
        }
        self.report.cached(self.cache.len());
    }

    /// Looks up the ids of events that have one, as of the checkpoint that the batch was read from, and closes the batch.
    async fn finish(&mut self, from: StreamId) -> Result<Batch, SessionError> {
        let identified = self.builder.identified();
        if !identified.is_empty() {
            let questions: Vec<SeenQuery<'_>> = identified
                .iter()
                .map(|event| SeenQuery { window: event.seen.window, member: &event.seen.member })
                .collect();
            let found = self
                .seen
                .look_up(&self.client, from, &questions)
                .await
                .map_err(|source| SessionError::Redis { operation: "look event ids up", source })?;
            if found.checkpoint != from {
                return Err(SessionError::Again("another worker committed"));
            }
            self.builder.resolve(&found.counted);
        }
        Ok(self.builder.finish(&mut self.cache))
    }

    /// Waits for the commit that is under way, if there is one.
    async fn settle(&mut self, in_flight: &mut InFlightCommit) -> Result<(), SessionError> {
        if in_flight.is_under_way() {
            let done = in_flight.finished().await;
            self.judge(done).await?;
        }
        Ok(())
    }

    /// Says what a commit's answer means for the session.
    async fn judge(&mut self, done: FinishedCommit) -> Result<(), SessionError> {
        let FinishedCommit { batch, answer, took } = done;
        let answer = answer.map_err(|source| SessionError::Redis { operation: "commit a batch", source })?;
        self.report.answered(&batch, &answer, took);
        match answer {
            CommitOutcome::Committed(_) => {
                self.restarts = 0;
                self.builder.set_headroom(CounterHeadroom::new());
                self.headroom = Headroom::default();
                self.retention_timer.committed(&batch);
                self.retention_timer.look(&self.client, batch.to, batch.read_at).await;
                // A stream that is never idle for as long as a blocking read waits has to be audited too.
                if self.audited.elapsed() < BLOCK { Ok(()) } else { self.look_round(batch.to).await }
            }
            CommitOutcome::Stale(_) => {
                Err(SessionError::Again("another worker committed, or this commit's reply was lost"))
            }
            CommitOutcome::Lost => Err(SessionError::Again("the batch's last entry has gone from the stream")),
            CommitOutcome::Recreated => self.look_round(batch.from).await,
            CommitOutcome::Old => Err(SessionError::Again("the batch was read too long ago")),
            CommitOutcome::Overflow(full) => {
                self.headroom.learn(&batch, &full);
                Err(SessionError::Again("a counter is full"))
            }
        }
    }

    /// Nothing is unread: looks whether entries, or the stream itself, went away behind our back.
    async fn look_round(&mut self, at: StreamId) -> Result<(), SessionError> {
        self.audited = Instant::now();
        let finding = self
            .audit
            .run(&self.client, at)
            .await
            .map_err(|source| SessionError::Redis { operation: "audit the usage stream", source })?;
        self.report.audited(self.keys.stream(), at, finding);
        match finding {
            AuditFinding::Stale(_) => Err(SessionError::Again("another worker committed")),
            AuditFinding::Recreated => Err(SessionError::Again("the stream was made again")),
            AuditFinding::Even | AuditFinding::Unread | AuditFinding::Gap(_) | AuditFinding::Rewound(_) => Ok(()),
        }
    }
}

fn entries_of(reader: &StreamReader) -> impl Iterator<Item = ReadEntry<impl Iterator<Item = (&[u8], &[u8])> + Clone>> {
    reader.entries().enumerate().map(|(at, entry)| ReadEntry {
        at,
        id: StreamId::parse(entry.id).unwrap_or(StreamId::ZERO),
        fields: entry.fields.map(|field| (field.name, field.value)),
    })
}
