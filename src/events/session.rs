//! The loop of a partition on one connection: read after the checkpoint, add up, commit, repeat.
//!
//! While one commit runs, the next batch grows, reading by reading. Only the commits are strictly sequential, because
//! each names the checkpoint that the previous one wrote.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::ledger::CommitReply;
use crate::redis_client::ReadError;
use crate::redis_client::xread::{StreamReader, XreadReply};
use crate::subjects::watch::SubjectChanges;
use crate::types::{StreamId, UnixMs};

use super::batch_builder::BatchBuilder;
use super::in_flight_commit::{FinishedCommit, InFlightCommit};
use super::read_ahead::ReadAhead;
use super::session_error::SessionError;
use super::state_loader::{FinishedRead, StateLoader};
use super::worker_cache::WorkerCache;
use super::worker_context::EventWorker;

/// How long an idle read waits in the server, and how often a stream is audited.
const BLOCK: Duration = Duration::from_secs(1);
/// How often a reader that may not subscribe tries again, so that a newly granted right takes effect.
const SUBSCRIBE_EVERY: Duration = Duration::from_secs(5);
/// A growing batch is committed after this time, full or not.
const HOLD_MAX: Duration = Duration::from_millis(100);

/// The state of a worker on one connection. [`Session::start`] builds it from the stored state; an error ends it, and
/// its state is dropped.
pub(super) struct Session<'w> {
    pub(super) worker: &'w mut EventWorker,
    pub(super) reader: StreamReader,
    /// The last entry that was read.
    pub(super) after: StreamId,
    /// Whether the last reading was full. Batches then grow before they are committed.
    pub(super) is_behind: bool,
    pub(super) ahead: ReadAhead,
    pub(super) loader: StateLoader,
    pub(super) held: WorkerCache,
    pub(super) builder: BatchBuilder,
    pub(super) batch_began: Instant,
    pub(super) in_flight: InFlightCommit,
    /// When the reader last tried to subscribe.
    pub(super) subscribed: Instant,
    pub(super) audited: Instant,
}

impl Session<'_> {
    /// Reads and commits until it is stopped (`Ok`) or something makes the worker start over.
    pub(super) async fn run(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        let ended = self.read_and_commit(stop).await;
        let Err(SessionError::Read(error)) = &ended else { return ended };
        self.commit_rest().await?;
        let ReadError::LongEntry(entry) = error else { return ended };
        self.refuse_truncated(entry).await?;
        Err(SessionError::Again("an entry was too large to be read"))
    }

    /// Returns the settings of subjects to the worker.
    pub(super) fn end(self) {
        self.worker.settings = self.held.cache;
    }

    /// The loop; ends like [`Self::run`]. Entries that were added and not committed are still in the batch.
    async fn read_and_commit(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        if self.worker.read_sizer.is_stuck() {
            self.read_one().await?;
        }
        self.request().await?;
        loop {
            let can_add = self.ahead.add_some(&mut self.builder, &mut self.held);
            if let Some(subject) = self.builder.take_unsure() {
                self.worker.parts.changes.note(SubjectChanges::Of(vec![subject]));
                self.loader.take_changes(&mut self.held, &self.worker.report);
            }
            self.begin_loading()?;
            if self.settle_due_grants().await? {
                continue;
            }
            let may_grow = self.batch_began.elapsed() < HOLD_MAX && !self.builder.is_full();
            let keeps_growing = may_grow && (self.is_behind || can_add);
            if !keeps_growing && self.may_commit() {
                self.commit().await?;
                self.batch_began = Instant::now();
                // Lets the commit be sent before more is added.
                tokio::task::yield_now().await;
                continue;
            }
            let tidy_due = self.worker.stream_maintenance.tidy_due();
            let tidy_at = tokio::time::Instant::from_std(tidy_due.unwrap_or_else(Instant::now));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                done = self.in_flight.finished() => self.after_commit(done).await?,
                done = self.loader.finished() => self.apply_read(done)?,
                reply = self.reader.receive(), if !self.ahead.is_full() => self.take_reading(reply?).await?,
                () = tokio::time::sleep_until(tidy_at), if tidy_due.is_some() && !self.in_flight.is_under_way() => {
                    self.tidy().await;
                }
                () = tokio::task::yield_now(), if can_add => {}
            }
        }
        self.finish_commit().await?;
        // The consumer group must show the final position while no daemon runs.
        if self.worker.stream_maintenance.tidy_due().is_some() {
            self.tidy_now().await;
        }
        Ok(())
    }

    /// Requests the entries after the last one, so that the server reads while the worker adds. If the last reading was
    /// not full, the server waits for the next event.
    async fn request(&mut self) -> Result<(), SessionError> {
        let block = (!self.is_behind).then_some(BLOCK);
        Ok(self.reader.request(&self.after.to_string(), self.worker.read_sizer.count(), block).await?)
    }

    /// Takes the reply to [`Self::request`], and requests the next one.
    async fn take_reading(&mut self, reply: XreadReply) -> Result<(), SessionError> {
        let read_at = UnixMs(reply.server_ms());
        self.is_behind = reply.entries().len() >= self.worker.read_sizer.count() as usize;
        self.builder.note_reading(self.is_behind, read_at);
        if self.reader.unbounded().is_some() && self.subscribed.elapsed() >= SUBSCRIBE_EVERY {
            self.subscribed = Instant::now();
            self.reader.subscribe_again().await?;
            self.worker.report.memory_unbounded(self.reader.unbounded());
        }
        let Some(last) = reply.last() else {
            if self.builder.entries() == 0 && self.ahead.is_empty() {
                self.finish_commit().await?;
                self.at_stream_end(read_at).await?;
            }
            return self.request().await;
        };
        self.after = last;
        self.worker.read_sizer.received(reply.entries().len(), reply.bytes());
        self.request().await?;
        self.begin_reading()?;
        if self.builder.entries() == 0 && self.ahead.is_empty() {
            self.batch_began = Instant::now();
        }
        self.ahead.push(reply, &mut self.builder, &mut self.held);
        Ok(())
    }

    /// Prepares for the entries of a reading: keeps the cache within its bounds, and takes changed settings into
    /// account.
    pub(super) fn begin_reading(&mut self) -> Result<(), SessionError> {
        if self.held.totals.is_overgrown(self.held.cache.entries_max()) {
            return Err(SessionError::Again("too many counters are held"));
        }
        self.worker.report.forgot_ids(self.held.event_ids.take_forgotten());
        self.loader.touch(&mut self.held, &self.builder);
        self.held.touch(self.ahead.missing(), self.builder.number());
        self.held.shrink(self.builder.oldest_batch_in_use());
        self.loader.take_changes(&mut self.held, &self.worker.report);
        Ok(())
    }

    /// Begins to read missing state, if there is any.
    pub(super) fn begin_loading(&mut self) -> Result<(), SessionError> {
        let beside_commit = self.in_flight.is_under_way();
        let client = &self.worker.parts.client;
        self.loader.begin(client, &mut self.ahead, &self.held, &self.builder, beside_commit)
    }

    /// Stores the state that was missing.
    pub(super) fn apply_read(&mut self, done: FinishedRead) -> Result<(), SessionError> {
        let report = &self.worker.report;
        self.loader.apply_read(done, &mut self.ahead, &mut self.held, &mut self.builder, report)
    }

    /// Whether a batch may be committed now.
    pub(super) fn may_commit(&self) -> bool {
        let is_ready = self.builder.is_ready(&self.held) && !self.loader.is_older_than(&self.builder);
        self.builder.entries() > 0 && is_ready && !self.in_flight.is_under_way()
    }

    /// Closes the batch and starts its commit; the next batch follows it.
    pub(super) async fn commit(&mut self) -> Result<(), SessionError> {
        let cost = self.builder.cost();
        let batch = self.builder.finish(&mut self.held, self.worker.batch_sizer.bounds());
        let EventWorker { parts, stream_maintenance, .. } = &mut *self.worker;
        let noted = stream_maintenance.will_commit(&parts.client, &batch).await;
        noted.map_err(|source| SessionError::Redis { operation: "note which days are archived again", source })?;
        self.in_flight = InFlightCommit::begin(batch, cost, &parts.committer, &parts.client);
        Ok(())
    }

    /// Waits for the running commit, if there is one.
    pub(super) async fn finish_commit(&mut self) -> Result<(), SessionError> {
        if self.in_flight.is_under_way() {
            let done = self.in_flight.finished().await;
            self.after_commit(done).await?;
        }
        Ok(())
    }

    /// Handles the reply to a commit: whether the session continues, and the work after a commit.
    async fn after_commit(&mut self, done: FinishedCommit) -> Result<(), SessionError> {
        done.adjust(&mut self.worker.batch_sizer);
        let FinishedCommit { batch, answer, took, .. } = done;
        let answer = answer.map_err(|source| SessionError::Redis { operation: "commit a batch", source })?;
        self.worker.report.answered(&batch, &answer, took);
        match answer {
            CommitReply::Committed { grants_due, .. } => {
                self.builder.set_grants_due(grants_due);
                self.worker.restarts = 0;
                self.worker.stream_maintenance.committed(&batch);
                self.tidy().await;
                self.worker.stream_maintenance.close_periods(&self.worker.parts.client, batch.to, batch.read_at).await;
                // A busy stream, at which no read blocks, must be audited too.
                if self.audited.elapsed() < BLOCK { Ok(()) } else { self.audit(batch.to).await }
            }
            CommitReply::Stale(_) => Err(SessionError::Again(
                "another worker committed, a subject was erased, Redis was emptied, or this commit's reply was lost",
            )),
            CommitReply::GrantsDue => Err(SessionError::Again("grants expire before the last event of the batch")),
            CommitReply::Replaced => Err(SessionError::Again("the server was replaced since the batch was read")),
            CommitReply::Lost => Err(SessionError::Again("the batch's last entry has gone from the stream")),
            CommitReply::Recreated => self.audit(batch.from).await,
            CommitReply::Old => Err(SessionError::Again("the batch was read too long ago")),
            CommitReply::Drift(_) => Err(SessionError::Again("a counter was changed by somebody else")),
        }
    }

    async fn tidy(&mut self) {
        if self.worker.stream_maintenance.tidy_due().is_some_and(|due| due <= Instant::now()) {
            self.tidy_now().await;
        }
    }

    async fn tidy_now(&mut self) {
        if let Some(warnings) = self.worker.stream_maintenance.tidy(&self.worker.parts.client).await {
            self.worker.report.tidied(&warnings);
        }
    }

    /// Does the work that is due when no unread entries are left.
    async fn at_stream_end(&mut self, now: UnixMs) -> Result<(), SessionError> {
        let at = self.after;
        self.audit(at).await?;
        self.worker.report.recovered();
        self.settle_grants(now).await?;
        self.worker.stream_maintenance.counted_until(now);
        self.worker.stream_maintenance.close_periods(&self.worker.parts.client, at, now).await;
        Ok(())
    }

    async fn audit(&mut self, at: StreamId) -> Result<(), SessionError> {
        self.audited = Instant::now();
        self.worker.audit(at, 0).await
    }
}
