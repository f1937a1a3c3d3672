//! The loop of a partition on one connection: read after the checkpoint, add up, commit, again.
//!
//! While one commit is under way the next batch grows, reading by reading; only the commits themselves are strictly one
//! after another, because each names the checkpoint that the one before it wrote.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::ledger::CommitReply;
use crate::ledger::audit::AuditFinding;
use crate::redis_client::ReadError;
use crate::redis_client::xread::{StreamReader, XreadReply};
use crate::types::{StreamId, UnixMs};

use super::audit_report::report_audit;
use super::in_flight_commit::{FinishedCommit, InFlightCommit};
use super::session_error::SessionError;
use super::session_start::SessionStart;
use super::state_loader::FinishedRead;
use super::worker::EventWorker;

/// How long an idle read waits in the server. Also how often a stream is audited.
const BLOCK: Duration = Duration::from_secs(1);
/// So many read entries are counted when a session begins. More are left only where none are trimmed: then there is
/// time to look.
const RETURNED_LOOK_MAX: u32 = 10_000;
/// How often a reader that may not subscribe tries again, so that a right that is granted takes effect by itself.
const SUBSCRIBE_EVERY: Duration = Duration::from_secs(5);
/// A batch that grows because more entries are there is committed after this long, full or not.
const HOLD_MAX: Duration = Duration::from_millis(100);

/// What the loop waited for.
enum Waited {
    /// A commit was answered.
    Committed,
    /// What entries wait for was read.
    ReadMissing,
    /// A reading came.
    Read(XreadReply),
    /// What follows a commit was done.
    Tidied,
    /// It is to stop.
    Stopped,
    /// Nothing has come.
    Nothing,
}

impl EventWorker {
    /// Works on one connection until it is stopped (`Ok`) or something makes it start over.
    pub(super) async fn run_session(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        let start = self.start().await?;
        // A server that was started again may have brought entries back, and the next commit trims them.
        self.audit(start.checkpoint, RETURNED_LOOK_MAX).await?;
        self.builder.set_erasure_epoch(start.erasure_epoch);
        self.loader.cancel();
        self.ahead.clear();
        self.builder.begin_session(start.instance.clone(), start.checkpoint, self.batch_sizer.bounds());
        let mut in_flight = InFlightCommit::default();
        let instance = start.instance.clone();
        let ended = self.read_and_commit(start, &mut in_flight, stop).await;
        if matches!(ended, Err(SessionError::Read(_))) {
            self.commit_rest(&mut in_flight).await?;
        }
        if let Err(SessionError::Read(ReadError::LongEntry(entry))) = &ended {
            self.refuse_truncated(instance, entry, &mut in_flight).await?;
            return Err(SessionError::Again("an entry was too large to be read"));
        }
        ended
    }

    /// The loop; ends as [`Self::run_session`], with what was added and is not committed yet in the batch.
    async fn read_and_commit(
        &mut self,
        SessionStart { checkpoint, .. }: SessionStart,
        in_flight: &mut InFlightCommit,
        stop: &CancellationToken,
    ) -> Result<(), SessionError> {
        let mut reader = StreamReader::connect(&self.endpoint, self.keys.stream()).await?;
        self.report.memory_unbounded(reader.unbounded());
        self.builder.read_from(reader.run_id());
        // Whether more entries are there than were asked for: then batches grow before they are committed.
        let mut is_behind = false;
        let mut begun = Instant::now();
        let mut subscribed = Instant::now();
        let mut after = checkpoint;
        if self.read_sizer.is_stuck() {
            after = self.read_one(after).await?;
        }
        self.request(&mut reader, after, is_behind).await?;
        loop {
            let can_add = self.ahead.add_some(&mut self.builder, &mut self.held);
            self.begin_loading(in_flight)?;
            let may_grow = (is_behind || can_add) && begun.elapsed() < HOLD_MAX && !self.builder.is_full();
            if !may_grow && self.may_commit(in_flight) {
                *in_flight = self.commit().await?;
                begun = Instant::now();
                // It leaves before more is added.
                tokio::task::yield_now().await;
                continue;
            }
            match self.wait(&mut reader, in_flight, can_add, stop).await? {
                Waited::Stopped => {
                    self.finish_commit(in_flight).await?;
                    // Whoever looks at the stream while no daemon runs is to see how far it was read.
                    if self.stream_maintenance.tidy_due().is_some() {
                        self.tidy_now().await;
                    }
                    return Ok(());
                }
                Waited::Committed | Waited::ReadMissing | Waited::Tidied | Waited::Nothing => {}
                Waited::Read(reply) => {
                    is_behind = reply.entries().len() >= self.read_sizer.count() as usize;
                    self.builder.note_reading(is_behind, UnixMs(reply.server_ms()));
                    if reader.unbounded().is_some() && subscribed.elapsed() >= SUBSCRIBE_EVERY {
                        subscribed = Instant::now();
                        reader.subscribe_again().await?;
                        self.report.memory_unbounded(reader.unbounded());
                    }
                    let Some(last) = reply.last() else {
                        if self.builder.entries() == 0 && self.ahead.is_empty() {
                            self.finish_commit(in_flight).await?;
                            self.at_stream_end(after, UnixMs(reply.server_ms())).await?;
                        }
                        self.request(&mut reader, after, is_behind).await?;
                        continue;
                    };
                    after = last;
                    self.read_sizer.came(reply.entries().len(), reply.bytes());
                    self.request(&mut reader, after, is_behind).await?;
                    self.begin_reading()?;
                    if self.builder.entries() == 0 && self.ahead.is_empty() {
                        begun = Instant::now();
                    }
                    self.ahead.push(reply, &mut self.builder, &mut self.held);
                }
            }
        }
    }

    /// Asks for the entries after one, so that the server reads while the last ones are added. Where there is no more,
    /// a batch that waits for more must not wait for the next event.
    async fn request(&self, reader: &mut StreamReader, after: StreamId, is_behind: bool) -> Result<(), SessionError> {
        let block = (!is_behind).then_some(BLOCK);
        Ok(reader.request(&after.to_string(), self.read_sizer.count(), block).await?)
    }

    /// Waits for the next reply, or for the commit that is under way; where entries can be added, only looks what has
    /// come.
    async fn wait(
        &mut self,
        reader: &mut StreamReader,
        in_flight: &mut InFlightCommit,
        can_add: bool,
        stop: &CancellationToken,
    ) -> Result<Waited, SessionError> {
        let tidy_due = self.stream_maintenance.tidy_due();
        let tidy_at = tokio::time::Instant::from_std(tidy_due.unwrap_or_else(Instant::now));
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(Waited::Stopped),
            done = in_flight.finished() => self.after_commit(done).await.map(|()| Waited::Committed),
            done = self.loader.finished() => self.apply_read(done).map(|()| Waited::ReadMissing),
            received = reader.receive(), if !self.ahead.is_full() => Ok(Waited::Read(received?)),
            () = tokio::time::sleep_until(tidy_at), if tidy_due.is_some() && !in_flight.is_under_way() => {
                self.tidy().await;
                Ok(Waited::Tidied)
            }
            () = tokio::task::yield_now(), if can_add => Ok(Waited::Nothing),
        }
    }

    /// Before the entries of a reading are added: what is held stays within its bounds, and settings that changed are
    /// noticed.
    pub(super) fn begin_reading(&mut self) -> Result<(), SessionError> {
        if self.held.totals.is_overgrown(self.held.cache.entries_max()) {
            return Err(SessionError::Again("more counters are held than may be"));
        }
        if self.builder.has_used_numbers_up() {
            return Err(SessionError::Again("batches are numbered anew"));
        }
        self.report.forgot_ids(self.held.event_ids.take_forgotten());
        self.loader.touch(&mut self.held, &self.builder);
        self.held.touch(self.ahead.missing(), self.builder.number());
        self.held.shrink(self.builder.oldest_batch_in_use());
        self.loader.take_changes(&mut self.held, &self.report);
        Ok(())
    }

    /// Begins to read what is missing, if anything is.
    pub(super) fn begin_loading(&mut self, in_flight: &InFlightCommit) -> Result<(), SessionError> {
        let Self { client, ahead, held, builder, loader, .. } = self;
        loader.begin(client, ahead, held, builder, in_flight.is_under_way())
    }

    /// Holds what was missing.
    pub(super) fn apply_read(&mut self, done: FinishedRead) -> Result<(), SessionError> {
        self.loader.apply_read(done, &mut self.ahead, &mut self.held, &mut self.builder, &self.report)
    }

    /// Whether there is a batch that may be committed now.
    pub(super) fn may_commit(&self, in_flight: &InFlightCommit) -> bool {
        let is_ready = self.builder.is_ready() && !self.loader.is_older_than(&self.builder);
        self.builder.entries() > 0 && is_ready && !in_flight.is_under_way()
    }

    /// Closes the batch, begins its commit, and the next batch behind it.
    pub(super) async fn commit(&mut self) -> Result<InFlightCommit, SessionError> {
        let cost = self.builder.cost();
        let batch = self.builder.finish(&mut self.held);
        self.builder.begin(batch.instance.clone(), batch.to, self.batch_sizer.bounds());
        let noted = self.stream_maintenance.will_commit(&self.client, &batch).await;
        noted.map_err(|source| SessionError::Redis { operation: "note which days are archived again", source })?;
        Ok(InFlightCommit::begin(batch, cost, &self.committer, &self.client))
    }

    /// Waits for the commit that is under way, if there is one.
    pub(super) async fn finish_commit(&mut self, in_flight: &mut InFlightCommit) -> Result<(), SessionError> {
        if in_flight.is_under_way() {
            let done = in_flight.finished().await;
            self.after_commit(done).await?;
        }
        Ok(())
    }

    /// Says what a commit's answer means for the session, and does what follows a commit.
    async fn after_commit(&mut self, done: FinishedCommit) -> Result<(), SessionError> {
        done.adjust(&mut self.batch_sizer);
        let FinishedCommit { batch, answer, took, .. } = done;
        let answer = answer.map_err(|source| SessionError::Redis { operation: "commit a batch", source })?;
        self.report.answered(&batch, &answer, took);
        match answer {
            CommitReply::Committed { .. } => {
                self.restarts = 0;
                self.stream_maintenance.committed(&batch);
                self.tidy().await;
                self.stream_maintenance.close_periods(&self.client, batch.to, batch.read_at).await;
                // A stream that is never idle for as long as a blocking read waits has to be audited too.
                if self.audited.elapsed() < BLOCK { Ok(()) } else { self.audit(batch.to, 0).await }
            }
            CommitReply::Stale(_) => Err(SessionError::Again(
                "another worker committed, a subject was erased, Redis was emptied, or this commit's reply was lost",
            )),
            CommitReply::Replaced => Err(SessionError::Again("the server was replaced since the batch was read")),
            CommitReply::Lost => Err(SessionError::Again("the batch's last entry has gone from the stream")),
            CommitReply::Recreated => self.audit(batch.from, 0).await,
            CommitReply::Old => Err(SessionError::Again("the batch was read too long ago")),
            CommitReply::Drift(_) => Err(SessionError::Again("a counter was changed by somebody else")),
        }
    }

    async fn tidy(&mut self) {
        if self.stream_maintenance.tidy_due().is_some_and(|due| due <= Instant::now()) {
            self.tidy_now().await;
        }
    }

    async fn tidy_now(&mut self) {
        if let Some(warnings) = self.stream_maintenance.tidy(&self.client).await {
            self.report.tidied(&warnings);
        }
    }

    /// Nothing is unread.
    async fn at_stream_end(&mut self, at: StreamId, now: UnixMs) -> Result<(), SessionError> {
        self.audit(at, 0).await?;
        self.report.recovered();
        self.stream_maintenance.counted_until(now);
        self.stream_maintenance.close_periods(&self.client, at, now).await;
        Ok(())
    }

    /// Looks whether entries, or the stream itself, went away behind our back. Counts so many read entries where there
    /// are unread ones.
    async fn audit(&mut self, at: StreamId, read_max: u32) -> Result<(), SessionError> {
        self.audited = Instant::now();
        let finding = self
            .audit
            .run(&self.client, at, read_max)
            .await
            .map_err(|source| SessionError::Redis { operation: "audit the usage stream", source })?;
        report_audit(self.keys.stream(), at, finding);
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
