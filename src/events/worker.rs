//! The loop of a partition: read after the checkpoint, add up, commit, again.
//!
//! While the server runs the script of one batch the next is already being read and added up; only the commit itself is strictly
//! one after another, because each names the checkpoint that the one before it wrote. Whatever goes wrong, the answer is the same:
//! drop what was read and start from the stored checkpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::audit::{Audit, Finding};
use crate::ledger::retention::Retention;
use crate::ledger::seen::{Question, SeenBefore};
use crate::ledger::{Answer, Batch, Committer};
use crate::subjects::watch::{Change, Changes};
use crate::subjects::{Cache, Plans};
use crate::types::{Keys, StreamId, UnixMs};
use crate::wire::backoff::{Retries, Schedule};
use crate::wire::xread::{Received, StreamReader};
use crate::wire::{RedisClient, RedisEndpoint};

use super::closing::Closing;
use super::committing::{Committed, Committing};
use super::config::StreamConfig;
use super::fold::{Entry, Fold, Folded, Headroom, Hint};
use super::lease::{PartitionLease, Turn};
use super::pace::Pace;
use super::report::Report;
use super::room::Room;
use super::trouble::SessionError;

/// How long an idle read waits in the server. Also how often a stream is audited.
const BLOCK: Duration = Duration::from_secs(1);
/// Settings that change while they are read are read again, this often at most; then the next batch sees them.
const READ_AGAIN_MAX: u32 = 3;
/// Starting over this often without a commit in between is no race any more: wait before the next try.
const RESTARTS_AT_ONCE: u32 = 3;

/// Reads and commits one partition.
#[derive(Debug)]
pub struct Worker {
    target: RedisEndpoint,
    client: Arc<RedisClient>,
    lease: Option<PartitionLease>,
    keys: Keys,
    committer: Arc<Committer>,
    seen: SeenBefore,
    audit: Audit,
    closing: Closing,
    plans: Plans,
    cache: Cache<Hint>,
    changes: Changes,
    fold: Fold,
    report: Report,
    audited: Instant,
    /// Restarts since the last commit.
    restarts: u32,
    pace: Pace,
    room: Room,
}

/// What a worker is made of.
#[derive(Debug)]
pub struct Parts {
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
    pub changes: Changes,
    /// Rung after a commit that raised alerts.
    pub raised: Arc<Notify>,
}

impl Worker {
    /// A worker that has not read anything yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { target, client, lease, keys, config, committer, plans, cache_entries, changes, raised } = parts;
        Self {
            seen: SeenBefore::new(keys.clone()),
            audit: Audit::new(keys.clone()),
            closing: Closing::new(Retention::new(keys.clone(), config.late_max)),
            cache: Cache::new(cache_entries, &plans),
            fold: Fold::new(config.late_max),
            report: Report::new(raised),
            committer: Arc::new(committer),
            audited: Instant::now(),
            restarts: 0,
            pace: Pace::new(config.batch_entries),
            room: Room::default(),
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
        let mut retries = Retries::new(Schedule::RECONNECT);
        loop {
            let before = self.report.commits();
            let error = match self.turn(lease.as_deref_mut(), stop).await {
                Ok(Turn::Stopped) => return,
                Ok(Turn::Ours | Turn::Others) => {
                    retries.worked();
                    continue;
                }
                Err(error) => error,
            };
            if self.report.commits() > before {
                retries.worked();
                self.restarts = 0;
            }
            if matches!(error, SessionError::Read(_)) {
                self.pace.failed();
            }
            let delay = match error.fault() {
                None => {
                    self.restarts += 1;
                    tracing::debug!(reason = %error, "reading again");
                    if self.restarts == RESTARTS_AT_ONCE + 1 {
                        self.report.circling(&error);
                    }
                    if self.restarts > RESTARTS_AT_ONCE { retries.failed() } else { Duration::ZERO }
                }
                Some(fault) => {
                    self.report.trouble(fault, &error);
                    retries.failed()
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// Waits until the lease is ours, and works on one connection while it is.
    async fn turn(
        &mut self,
        lease: Option<&mut PartitionLease>,
        stop: &CancellationToken,
    ) -> Result<Turn, SessionError> {
        let Some(lease) = lease else { return self.session(stop).await.map(|()| Turn::Stopped) };
        if lease.wait(&self.client, &mut self.report, stop).await? == Turn::Stopped {
            return Ok(Turn::Stopped);
        }
        let (client, over) = (Arc::clone(&self.client), stop.child_token());
        lease.keep_during(&client, &over, self.session(&over)).await
    }

    /// Works on one connection until it is stopped (`Ok`) or something makes it start over.
    async fn session(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        let mut at = self.checkpoint().await?;
        self.fold.set_headroom(self.room.as_of(at));
        let mut reader = StreamReader::connect(&self.target, self.keys.stream()).await?;
        let mut committing = Committing::default();
        reader.request(&at.to_string(), self.pace.count(), Some(BLOCK)).await?;
        loop {
            let received = match self.receive(&mut reader, &mut committing, stop).await? {
                Some(received) => received,
                None => return self.settle(&mut committing).await,
            };
            let Some(last) = received.last else {
                self.settle(&mut committing).await?;
                self.look_round(at).await?;
                self.report.serving();
                self.closing.look(&self.client, at, UnixMs(received.server_ms)).await;
                reader.request(&at.to_string(), self.pace.count(), Some(BLOCK)).await?;
                continue;
            };
            let to = StreamId { ms: last.ms, seq: last.seq };
            self.pace.came(&received);
            reader.request(&to.to_string(), self.pace.count(), Some(BLOCK)).await?;
            self.add_up(&reader, at, to, &received).await?;
            self.settle(&mut committing).await?;
            let batch = self.finish(at).await?;
            committing = Committing::of(batch, &self.committer, &self.client);
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
        committing: &mut Committing,
        stop: &CancellationToken,
    ) -> Result<Option<Received>, SessionError> {
        let receive = reader.receive();
        tokio::pin!(receive);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                done = committing.finished() => self.judge(done).await?,
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
        received: &Received,
    ) -> Result<(), SessionError> {
        self.cache.shrink();
        self.take_changes();
        self.fold.begin(from, to, received.entries as u64, UnixMs(received.server_ms));
        let mut again: Vec<usize> = Vec::new();
        let mut cold: Vec<u32> = Vec::new();
        for entry in entries_of(reader) {
            let at = entry.at;
            if let Folded::Needs(slot) = self.fold.add(&mut self.cache, entry) {
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
            if wanted.next_if_eq(&entry.at).is_some() && self.fold.add(&mut self.cache, entry) != Folded::Done {
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
                .read(&self.client, &self.plans, &missing)
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
            Change::Any => self.cache.changed_all(),
            Change::Of(subjects) => subjects.iter().for_each(|subject| self.cache.changed(subject)),
        }
        self.report.cached(self.cache.len());
    }

    /// Looks up the ids of events that have one, as of the checkpoint that the batch was read from, and closes the batch.
    async fn finish(&mut self, from: StreamId) -> Result<Batch, SessionError> {
        let identified = self.fold.identified();
        if !identified.is_empty() {
            let questions: Vec<Question<'_>> = identified
                .iter()
                .map(|event| Question { window: event.seen.window, member: &event.seen.member })
                .collect();
            let found = self
                .seen
                .look_up(&self.client, from, &questions)
                .await
                .map_err(|source| SessionError::Redis { operation: "look event ids up", source })?;
            if found.checkpoint != from {
                return Err(SessionError::Again("another worker committed"));
            }
            self.fold.resolve(&found.counted);
        }
        Ok(self.fold.finish(&mut self.cache))
    }

    /// Waits for the commit that is under way, if there is one.
    async fn settle(&mut self, committing: &mut Committing) -> Result<(), SessionError> {
        if committing.is_under_way() {
            let done = committing.finished().await;
            self.judge(done).await?;
        }
        Ok(())
    }

    /// Says what a commit's answer means for the session.
    async fn judge(&mut self, done: Committed) -> Result<(), SessionError> {
        let Committed { batch, answer, took } = done;
        let answer = answer.map_err(|source| SessionError::Redis { operation: "commit a batch", source })?;
        self.report.answered(&batch, &answer, took);
        match answer {
            Answer::Committed(_) => {
                self.restarts = 0;
                self.fold.set_headroom(Headroom::new());
                self.room = Room::default();
                self.closing.committed(&batch);
                self.closing.look(&self.client, batch.to, batch.read_at).await;
                // A stream that is never idle for as long as a blocking read waits has to be audited too.
                if self.audited.elapsed() < BLOCK { Ok(()) } else { self.look_round(batch.to).await }
            }
            Answer::Stale(_) => Err(SessionError::Again("another worker committed, or this commit's reply was lost")),
            Answer::Lost => Err(SessionError::Again("the batch's last entry has gone from the stream")),
            Answer::Recreated => self.look_round(batch.from).await,
            Answer::Old => Err(SessionError::Again("the batch was read too long ago")),
            Answer::Overflow(full) => {
                self.room.learn(&batch, &full);
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
            Finding::Stale(_) => Err(SessionError::Again("another worker committed")),
            Finding::Recreated => Err(SessionError::Again("the stream was made again")),
            Finding::Even | Finding::Unread | Finding::Gap(_) | Finding::Rewound(_) => Ok(()),
        }
    }
}

fn entries_of(reader: &StreamReader) -> impl Iterator<Item = Entry<impl Iterator<Item = (&[u8], &[u8])> + Clone>> {
    reader.entries().enumerate().map(|(at, entry)| Entry {
        at,
        id: StreamId::parse(entry.id).unwrap_or(StreamId::ZERO),
        fields: entry.fields.map(|field| (field.name, field.value)),
    })
}
