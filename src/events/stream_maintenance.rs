//! Work between commits, now and then: it moves the consumer group that shows the position to others, trims the
//! stream, archives days and shortens the TTLs of periods that are over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::RedisResult;

use crate::ledger::Batch;
use crate::ledger::commit_settings::TrimPolicy;
use crate::ledger::event_ids::{WINDOWS_HELD, window_of};
use crate::ledger::retention::PeriodArchiver;
use crate::ledger::trim::{TrimWarning, tidy};
use crate::redis_client::{ErrorKind, RedisClient, error_kind};
use crate::types::{Keys, StreamId, UnixMs};

/// How often the stream is tidied at most, unless a lot is committed.
const TIDY_EVERY: Duration = Duration::from_millis(100);
/// After so many entries it is tidied at any rate.
const TIDY_ENTRIES: u64 = 100_000;
/// So many lists of event ids are removed at once.
const WINDOWS_AT_ONCE: usize = 100;
/// So many windows back a worker that was killed may have left lists of event ids.
const WINDOWS_LEFT: u64 = 6;
/// How often slices of days that are over are archived, ...
const ARCHIVE_EVERY: Duration = Duration::from_millis(100);
/// ... and for about how many counters each time: a slice of a metric with few of them costs less than one with many.
const ARCHIVED_AT_ONCE: u32 = 100;
/// The most slices each time.
const SLICES_MAX: u32 = 20;
/// When it is tried again after an error.
const ARCHIVE_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// How often periods that are over are looked for.
const CLOSE_EVERY: Duration = Duration::from_secs(60);

/// What is done beside the commits, each at its time.
#[derive(Debug)]
pub(super) struct StreamMaintenance {
    keys: Keys,
    trim: TrimPolicy,
    retention: PeriodArchiver,
    tidied: Instant,
    /// Entries committed since.
    untidied: u64,
    /// The last commit: up to which entry, and when it was on the server.
    committed: StreamId,
    now: UnixMs,
    close_due: Instant,
    /// All that arrived until then is counted, server time.
    reached: UnixMs,
    archive_due: Instant,
    /// Windows of event ids whose lists may be there.
    windows: BTreeSet<u64>,
}

impl StreamMaintenance {
    /// The first look at periods is due at once.
    pub(super) fn new(keys: Keys, trim: TrimPolicy, retention: PeriodArchiver) -> Self {
        let now = Instant::now();
        Self {
            keys,
            trim,
            retention,
            tidied: now,
            untidied: 0,
            committed: StreamId::ZERO,
            now: UnixMs(0),
            close_due: now,
            reached: UnixMs(0),
            archive_due: now,
            windows: BTreeSet::new(),
        }
    }

    /// A session begins with this window of event ids: lists of those before it may have been left by a worker that was
    /// killed.
    pub(super) fn begin_session(&mut self, newest: u64) {
        self.windows.extend((0..WINDOWS_LEFT).filter_map(|back| newest.checked_sub(back)));
        self.retention.begin_session();
        self.retention.show_backlog(self.reached);
    }

    /// A batch is about to be committed.
    pub(super) async fn will_commit(&mut self, client: &RedisClient, batch: &Batch) -> RedisResult<()> {
        self.retention.before_commit(client, batch.periods(), batch.read_at).await
    }

    /// A batch was committed.
    pub(super) fn committed(&mut self, batch: &Batch) {
        self.untidied += batch.entries;
        self.windows.extend(batch.event_ids.iter().map(|ids| ids.window));
        (self.committed, self.now) = (batch.to, batch.read_at);
        self.retention.after_commit(batch.periods());
        self.counted_until(super::parse::arrival_of(batch.to, batch.read_at));
    }

    /// All that arrived until this time, by the server's clock, is counted.
    pub(super) fn counted_until(&mut self, arrival: UnixMs) {
        self.reached = self.reached.max(arrival);
    }

    /// When something is due to be done; `None` while there is nothing to do.
    pub(super) fn tidy_due(&self) -> Option<Instant> {
        let archive = self.retention.has_to_archive(self.reached).then_some(self.archive_due);
        self.stream_due().into_iter().chain(archive).min()
    }

    /// When the stream is due to be tidied.
    fn stream_due(&self) -> Option<Instant> {
        match self.untidied {
            0 => None,
            entries if entries >= TIDY_ENTRIES => Some(Instant::now()),
            _ => Some(self.tidied + TIDY_EVERY),
        }
    }

    /// Tidies the stream, and archives a slice of a day. What fails is tried again, and never keeps events from being
    /// counted. `None` where the stream was not tidied: then what was told of it before is still so.
    pub(super) async fn tidy(&mut self, client: &RedisClient) -> Option<Vec<TrimWarning>> {
        if self.retention.has_to_archive(self.reached) && self.archive_due <= Instant::now() {
            self.archive(client).await;
        }
        if self.untidied == 0 {
            return None;
        }
        self.tidied = Instant::now();
        let past = self.past_windows();
        match tidy(client, &self.keys, self.trim, &past).await {
            Ok(warnings) => {
                self.untidied = 0;
                past.iter().for_each(|window| {
                    self.windows.remove(window);
                });
                Some(warnings)
            }
            Err(error) => {
                tracing::debug!(%error, "the stream could not be tidied yet");
                None
            }
        }
    }

    /// Slices of days that are over, as long as they cost little.
    async fn archive(&mut self, client: &RedisClient) {
        let archived = self.archive_slices(client).await;
        self.retention.show_backlog(self.reached);
        let pause = match archived {
            Ok(()) => {
                if !self.retention.has_to_archive(self.reached) {
                    // Days that are archived may be closed.
                    self.close_due = Instant::now();
                }
                ARCHIVE_EVERY
            }
            Err(error) => {
                match error_kind(&error) {
                    ErrorKind::WrongType | ErrorKind::Denied => {
                        tracing::warn!(%error, "a day that is over can't be archived; its counters are kept for 14 days");
                    }
                    _ => tracing::debug!(%error, "a day that is over could not be archived yet"),
                }
                ARCHIVE_AGAIN_AFTER
            }
        };
        self.archive_due = Instant::now() + pause;
    }

    async fn archive_slices(&mut self, client: &RedisClient) -> RedisResult<()> {
        let mut cost = 0;
        for _ in 0..SLICES_MAX {
            if cost >= ARCHIVED_AT_ONCE || !self.retention.has_to_archive(self.reached) {
                break;
            }
            cost += self.retention.archive(client, self.reached).await?;
        }
        Ok(())
    }

    /// The windows of event ids that are past, some at a time.
    fn past_windows(&self) -> Vec<u64> {
        let newest = window_of(super::parse::arrival_of(self.committed, self.now));
        let held_from = (newest + 1).saturating_sub(WINDOWS_HELD);
        self.windows.range(..held_from).copied().take(WINDOWS_AT_ONCE).collect()
    }

    /// Shortens the life of periods that are over, if it is time to. Counters expire by themselves anyway.
    pub(super) async fn close_periods(&mut self, client: &RedisClient, at: StreamId, now: UnixMs) {
        if Instant::now() < self.close_due {
            return;
        }
        self.close_due = Instant::now() + CLOSE_EVERY;
        match self.retention.close_periods(client, at, now).await {
            Ok(periods) => {
                if !periods.is_empty() {
                    // There may be more of them.
                    self.close_due = Instant::now();
                }
                for period in periods {
                    tracing::debug!(%period, "the period is over everywhere: its counters live 48 h");
                }
            }
            Err(error) => tracing::debug!(%error, "periods that are over could not be closed yet"),
        }
    }
}
