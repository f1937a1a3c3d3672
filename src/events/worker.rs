//! The loop of a partition: read after the checkpoint, add up, commit, again.
//!
//! While one commit is under way the next batch grows, reading by reading; only the commits themselves are strictly one after
//! another, because each names the checkpoint that the one before it wrote. Whatever goes wrong, the answer is the same: drop what
//! was read and what is held, and start from the stored checkpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::audit::{Audit, AuditFinding};
use crate::ledger::retention::Retention;
use crate::ledger::{CommitOutcome, Committer, HeldTotals, SeenWindows, Tidier};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::subjects::{Plans, SettingsCache};
use crate::types::{Instance, Keys, StreamId, UnixMs};
use crate::wire::backoff::{Backoff, BackoffPolicy};
use crate::wire::xread::StreamReader;
use crate::wire::{RedisClient, RedisEndpoint};

use super::batch_builder::{AddOutcome, BatchBuilder, ReadEntry};
use super::batch_sizer::BatchSizer;
use super::config::StreamConfig;
use super::held_state::{HeldState, Missing};
use super::in_flight_commit::{FinishedCommit, InFlightCommit};
use super::janitor::Janitor;
use super::lease::{LeaseStatus, PartitionLease};
use super::parse::arrival_of;
use super::read_sizer::ReadSizer;
use super::report::WorkerReport;
use super::session_error::SessionError;

/// How long an idle read waits in the server. Also how often a stream is audited.
const BLOCK: Duration = Duration::from_secs(1);
/// Settings that change while they are read are read again, this often at most; then the next batch sees them.
const READ_AGAIN_MAX: u32 = 3;
/// What events need is read in so many steps at most: settings, then counters. Above it something changes all the time.
const READ_STEPS_MAX: u32 = 8;
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
    audit: Audit,
    janitor: Janitor,
    plans: Plans,
    held: HeldState,
    changes: ChangeFeed,
    builder: BatchBuilder,
    report: WorkerReport,
    audited: Instant,
    /// Restarts since the last commit.
    restarts: u32,
    read_sizer: ReadSizer,
    batch_sizer: BatchSizer,
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
    /// Changes of subjects.
    pub changes: ChangeFeed,
    /// Notified after a commit that raised alerts.
    pub raised: Arc<Notify>,
}

/// Where a session begins.
#[derive(Debug)]
struct SessionStart {
    checkpoint: StreamId,
    instance: Instance,
}

/// A reading whose entries are being added.
#[derive(Debug)]
struct Reading {
    server: UnixMs,
    /// Entries that were added.
    added: usize,
    entries: usize,
}

/// What the loop waited for.
enum Waited {
    /// A commit was answered.
    Committed,
    /// A reading came.
    Read(crate::wire::xread::XreadReply),
    /// What follows a commit was done.
    Tidied,
    /// It is to stop.
    Stopped,
}

impl EventWorker {
    /// A worker that has not read anything yet.
    #[must_use]
    pub fn new(parts: EventWorkerParts) -> Self {
        let EventWorkerParts { target, client, lease, keys, config, committer, plans, cache_entries, changes, raised } =
            parts;
        let batch_sizer = BatchSizer::new();
        Self {
            audit: Audit::new(keys.clone()),
            janitor: Janitor::new(
                Tidier::new(keys.clone(), config.trim),
                Retention::new(keys.clone(), config.late_max),
            ),
            held: HeldState {
                cache: SettingsCache::new(cache_entries, &plans),
                totals: HeldTotals::default(),
                seen: SeenWindows::default(),
            },
            builder: BatchBuilder::new(config.late_max, batch_sizer.bounds()),
            report: WorkerReport::new(raised),
            committer: Arc::new(committer),
            audited: Instant::now(),
            restarts: 0,
            read_sizer: ReadSizer::new(config.batch_entries),
            batch_sizer,
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
        let SessionStart { checkpoint, instance } = self.start().await?;
        self.builder.begin(instance.clone(), checkpoint, self.batch_sizer.bounds());
        let mut reader = StreamReader::connect(&self.target, self.keys.stream()).await?;
        let mut in_flight = InFlightCommit::default();
        let mut reading: Option<Reading> = None;
        // Whether more entries are there than were asked for: then batches grow before they are committed.
        let mut is_behind = false;
        let mut after = checkpoint;
        self.request(&mut reader, after, is_behind).await?;
        loop {
            if let Some(open) = &mut reading {
                self.add_up(&reader, open).await?;
                if open.added == open.entries {
                    reading = None;
                }
            }
            let is_due = self.builder.entries() > 0 && (self.builder.is_full() || !is_behind);
            if is_due && !in_flight.is_under_way() {
                let next = self.builder.reached_entry();
                in_flight = self.commit().await?;
                self.builder.begin(instance.clone(), next, self.batch_sizer.bounds());
                continue;
            }
            if reading.is_some() {
                self.settle(&mut in_flight).await?;
                continue;
            }
            match self.wait(&mut reader, &mut in_flight, stop).await? {
                Waited::Stopped => return self.settle(&mut in_flight).await,
                Waited::Committed | Waited::Tidied => {}
                Waited::Read(received) => {
                    let server = UnixMs(received.server_ms);
                    is_behind = received.entries >= self.read_sizer.count() as usize;
                    let Some(last) = received.last else {
                        if self.builder.entries() == 0 {
                            self.settle(&mut in_flight).await?;
                            self.look_round(after, server).await?;
                        }
                        self.request(&mut reader, after, is_behind).await?;
                        continue;
                    };
                    after = last;
                    self.read_sizer.came(&received);
                    self.request(&mut reader, after, is_behind).await?;
                    self.begin_reading()?;
                    reading = Some(Reading { server, added: 0, entries: received.entries });
                }
            }
        }
    }

    /// Asks for the entries after one, so that the server reads while the last ones are added. Where there is no more, a batch that
    /// waits for more must not wait for the next event.
    async fn request(&self, reader: &mut StreamReader, after: StreamId, is_behind: bool) -> Result<(), SessionError> {
        let block = (!is_behind).then_some(BLOCK);
        Ok(reader.request(&after.to_string(), self.read_sizer.count(), block).await?)
    }

    /// Forgets what is held, for another worker may have committed, and looks where to begin.
    async fn start(&mut self) -> Result<SessionStart, SessionError> {
        let redis = |source| SessionError::Redis { operation: "read the checkpoint", source };
        self.held.forget_totals();
        let mut pipeline = redis::pipe();
        pipeline.cmd("HSETNX").arg(self.keys.checkpoint()).arg("instance").arg(Instance::random().as_str()).ignore();
        pipeline.cmd("HMGET").arg(self.keys.checkpoint()).arg("id").arg("instance");
        let ((id, instance),): ((Option<String>, String),) = self.client.pipe(&pipeline).await.map_err(redis)?;
        let checkpoint = id.and_then(|id| id.parse().ok()).unwrap_or(StreamId::ZERO);
        let now = self.client.server_time().await.map_err(redis)?;
        self.held.seen = SeenWindows::read(&self.client, &self.keys, arrival_of(checkpoint, now))
            .await
            .map_err(|source| SessionError::Redis { operation: "read the ids of counted events", source })?;
        Ok(SessionStart { checkpoint, instance: Instance::from_stored(&instance) })
    }

    /// Waits for the next reply, or for the commit that is under way.
    async fn wait(
        &mut self,
        reader: &mut StreamReader,
        in_flight: &mut InFlightCommit,
        stop: &CancellationToken,
    ) -> Result<Waited, SessionError> {
        let tidy_due = self.janitor.tidy_due();
        let tidy_at = tokio::time::Instant::from_std(tidy_due.unwrap_or_else(Instant::now));
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(Waited::Stopped),
            done = in_flight.finished() => self.judge(done).await.map(|()| Waited::Committed),
            received = reader.receive() => Ok(Waited::Read(received?)),
            () = tokio::time::sleep_until(tidy_at), if tidy_due.is_some() && !in_flight.is_under_way() => {
                self.tidy().await;
                Ok(Waited::Tidied)
            }
        }
    }

    /// Before the entries of a reading are added: what is held stays within its bounds, and settings that changed are noticed.
    fn begin_reading(&mut self) -> Result<(), SessionError> {
        if self.held.totals.is_overgrown(self.held.cache.entries_max()) {
            return Err(SessionError::Again("more counters are held than there is room for"));
        }
        self.held.shrink(self.builder.live());
        self.take_changes();
        Ok(())
    }

    /// Adds entries until the batch is full or the reading ends, reading what is not held.
    async fn add_up(&mut self, reader: &StreamReader, reading: &mut Reading) -> Result<(), SessionError> {
        loop {
            let mut outcome = AddOutcome::Added;
            for entry in entries_of(reader).skip(reading.added) {
                outcome = self.builder.add(&mut self.held, &entry, reading.server);
                if outcome != AddOutcome::Added {
                    break;
                }
                reading.added += 1;
            }
            if outcome != AddOutcome::Missing {
                return Ok(());
            }
            self.read_missing(reader, reading).await?;
        }
    }

    /// Reads what the rest of a reading needs and is not held.
    async fn read_missing(&mut self, reader: &StreamReader, reading: &Reading) -> Result<(), SessionError> {
        for _ in 0..READ_STEPS_MAX {
            let mut missing = Missing::default();
            for entry in entries_of(reader).skip(reading.added) {
                self.builder.missing(&mut self.held, &entry, reading.server, &mut missing);
            }
            if missing.is_empty() {
                return Ok(());
            }
            if !missing.settings.is_empty() {
                missing.settings.sort_unstable();
                missing.settings.dedup();
                self.read_settings(&missing.settings).await?;
                continue;
            }
            self.held
                .read(&self.client, &self.keys, missing, reading.server, self.builder.live())
                .await
                .map_err(|source| SessionError::Redis { operation: "read counters", source })?;
        }
        Err(SessionError::Again("settings changed while they were read"))
    }

    /// Closes the batch, and begins its commit.
    async fn commit(&mut self) -> Result<InFlightCommit, SessionError> {
        let reached = self.builder.reached(&self.held);
        let records = self
            .held
            .records(&self.client, &self.keys, reached.into_iter())
            .await
            .map_err(|source| SessionError::Redis { operation: "read what was raised", source })?;
        let batch = self.builder.finish(&mut self.held, records);
        Ok(InFlightCommit::of(batch, &self.committer, &self.client))
    }

    /// Reads settings until none of them changed while it was read: a change is noticed after the reading it came too late for.
    async fn read_settings(&mut self, cold: &[u32]) -> Result<(), SessionError> {
        for again in 0..=READ_AGAIN_MAX {
            let missing: Vec<u32> =
                cold.iter().copied().filter(|slot| self.held.cache.slot(*slot).profile().is_none()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let unreadable = self
                .held
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
            SubjectChanges::Any => self.held.cache.changed_all(),
            SubjectChanges::Of(subjects) => subjects.iter().for_each(|subject| self.held.cache.changed(subject)),
        }
        self.report.cached(self.held.cache.len());
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
        let answer = answer.map_err(|source| {
            self.batch_sizer.failed();
            SessionError::Redis { operation: "commit a batch", source }
        })?;
        self.report.answered(&batch, &answer, took);
        match answer {
            CommitOutcome::Committed { .. } => {
                self.restarts = 0;
                self.batch_sizer.committed(batch.groups.iter().map(|group| group.rows.len()).sum(), took);
                self.janitor.committed(&batch);
                self.tidy().await;
                self.janitor.close_periods(&self.client, batch.to, batch.read_at).await;
                // A stream that is never idle for as long as a blocking read waits has to be audited too.
                if self.audited.elapsed() < BLOCK { Ok(()) } else { self.audit(batch.to).await }
            }
            CommitOutcome::Stale(_) => {
                Err(SessionError::Again("another worker committed, or this commit's reply was lost"))
            }
            CommitOutcome::Lost => Err(SessionError::Again("the batch's last entry has gone from the stream")),
            CommitOutcome::Recreated => self.audit(batch.from).await,
            CommitOutcome::Old => {
                self.batch_sizer.failed();
                Err(SessionError::Again("the batch was read too long ago"))
            }
            CommitOutcome::Drift(_) => Err(SessionError::Again("a counter was changed by somebody else")),
        }
    }

    async fn tidy(&mut self) {
        if self.janitor.tidy_due().is_some_and(|due| due <= Instant::now()) {
            let warnings = self.janitor.tidy(&self.client).await;
            self.report.tidied(&warnings);
        }
    }

    /// Nothing is unread.
    async fn look_round(&mut self, at: StreamId, now: UnixMs) -> Result<(), SessionError> {
        self.audit(at).await?;
        self.report.serving();
        self.janitor.close_periods(&self.client, at, now).await;
        Ok(())
    }

    /// Looks whether entries, or the stream itself, went away behind our back.
    async fn audit(&mut self, at: StreamId) -> Result<(), SessionError> {
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
    reader.entries().map(|entry| ReadEntry {
        id: StreamId::parse(entry.id).unwrap_or(StreamId::ZERO),
        fields: entry.fields.map(|field| (field.name, field.value)),
    })
}
