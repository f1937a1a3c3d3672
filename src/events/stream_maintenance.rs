//! Work between commits: moves the consumer group that shows the position to others, trims the stream, archives days
//! and shortens the TTLs of past periods.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::RedisResult;

use crate::ledger::Batch;
use crate::ledger::commit_settings::TrimPolicy;
use crate::ledger::event_ids::{RememberedWindows, window_of};
use crate::ledger::retention::PeriodArchiver;
use crate::ledger::trim::{TrimWarning, tidy};
use crate::redis_client::{ErrorKind, RedisClient, error_kind};
use crate::types::{Keys, StreamId, UnixMs};

/// Minimum interval between two tidyings of the stream, unless many entries are committed.
const TIDY_EVERY: Duration = Duration::from_millis(100);
/// Number of committed entries after which the stream is tidied earlier.
const TIDY_ENTRIES: u64 = 100_000;
/// Number of lists of event ids that are removed at once.
const WINDOWS_AT_ONCE: usize = 200;
/// Number of past windows in which a killed worker, or one that remembered ids for a day, may have left lists of event
/// ids.
const WINDOWS_LEFT: u64 = 150;
// The first tidying of a session removes all of them.
const _: () = assert!(WINDOWS_LEFT < WINDOWS_AT_ONCE as u64);
/// Interval between two rounds of archiving slices of past days.
const ARCHIVE_EVERY: Duration = Duration::from_millis(100);
/// Approximate number of counters that are archived per round. A slice of a metric with few counters costs less than
/// one with many.
const ARCHIVED_AT_ONCE: u32 = 100;
/// Maximum number of slices per round.
const SLICES_MAX: u32 = 20;
/// Delay before archiving is tried again after an error.
const ARCHIVE_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Interval between two searches for past periods.
const CLOSE_EVERY: Duration = Duration::from_secs(60);

/// Schedules the work beside the commits.
#[derive(Debug)]
pub(super) struct StreamMaintenance {
    keys: Keys,
    trim: TrimPolicy,
    remembered: RememberedWindows,
    retention: PeriodArchiver,
    tidied: Instant,
    /// Entries committed since the stream was last tidied.
    untidied: u64,
    /// The last committed entry, and the server time of its commit.
    committed: StreamId,
    now: UnixMs,
    close_due: Instant,
    /// All entries that arrived until this server time are counted.
    reached: UnixMs,
    archive_due: Instant,
    /// Windows of event ids that may have lists.
    windows: BTreeSet<u64>,
}

impl StreamMaintenance {
    /// Creates the schedule. The first look at periods is due at once.
    pub(super) fn new(keys: Keys, trim: TrimPolicy, remembered: RememberedWindows, retention: PeriodArchiver) -> Self {
        let now = Instant::now();
        Self {
            keys,
            trim,
            remembered,
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

    /// Begins a session; `newest` is its newest window of event ids. A killed worker may have left lists of earlier
    /// windows.
    pub(super) fn begin_session(&mut self, newest: u64) {
        self.windows.extend((0..WINDOWS_LEFT).filter_map(|back| newest.checked_sub(back)));
        self.retention.archiver.begin_session();
        self.retention.show_backlog(self.reached);
    }

    /// Prepares for the commit of a batch.
    pub(super) async fn will_commit(&mut self, client: &RedisClient, batch: &Batch) -> RedisResult<()> {
        self.retention.before_commit(client, batch.periods(), batch.read_at).await
    }

    /// Notes a committed batch.
    pub(super) fn committed(&mut self, batch: &Batch) {
        self.untidied += batch.entries;
        self.windows.extend(batch.event_ids.keys());
        (self.committed, self.now) = (batch.to, batch.read_at);
        self.retention.after_commit(batch.periods());
        self.counted_until(super::parse::arrival_of(batch.to, batch.read_at));
    }

    /// Notes that all entries that arrived until this server time are counted.
    pub(super) fn counted_until(&mut self, arrival: UnixMs) {
        self.reached = self.reached.max(arrival);
    }

    /// When work is due; `None` while there is none.
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

    /// Tidies the stream, and archives a slice of a day. Failures are tried again and never stop the counting. Returns
    /// `None` if the stream was not tidied: earlier warnings are still valid.
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

    /// Archives slices of past days, as long as they cost little.
    async fn archive(&mut self, client: &RedisClient) {
        let archived = self.archive_slices(client).await;
        self.retention.show_backlog(self.reached);
        let pause = match archived {
            Ok(()) => {
                if !self.retention.has_to_archive(self.reached) {
                    // Archived days may be closed.
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
            cost += self.retention.archiver.archive(client, self.reached).await?;
        }
        Ok(())
    }

    /// Some of the past windows of event ids.
    fn past_windows(&self) -> Vec<u64> {
        let newest = window_of(super::parse::arrival_of(self.committed, self.now));
        self.windows.range(..self.remembered.oldest(newest)).copied().take(WINDOWS_AT_ONCE).collect()
    }

    /// Shortens the TTLs of past periods if it is time to. Counters expire without it too.
    pub(super) async fn close_periods(&mut self, client: &RedisClient, at: StreamId, now: UnixMs) {
        if Instant::now() < self.close_due {
            return;
        }
        self.close_due = Instant::now() + CLOSE_EVERY;
        match self.retention.close_periods(client, at, now).await {
            Ok(periods) => {
                if !periods.is_empty() {
                    // There may be more past periods.
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
