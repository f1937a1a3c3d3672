//! A batch: what one commit applies. Filled by `events/`, judged and written by [`super::commit`].

use crate::types::{Day, Metric, RefusalReason, StreamId, Subject, UnixMs};

use super::thresholds::Thresholds;

/// Everything that one reading of the stream amounts to.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The checkpoint that it was read from.
    pub from: StreamId,
    /// Its last entry: the next checkpoint.
    pub to: StreamId,
    /// How many entries were read.
    pub entries: u64,
    /// Server time when they were read.
    pub read_at: UnixMs,
    /// Metric and day of the rows; rows name them by position.
    pub metric_days: Vec<MetricDay>,
    /// Sums, at most one per subject, metric and day.
    pub rows: Vec<Row>,
    /// The limits; rows name them by position.
    pub limits: Vec<AppliedLimit>,
    /// Events that can't be counted.
    pub refused: Vec<RefusedEvent>,
    /// Ids of counted events.
    pub seen: Vec<SeenId>,
    /// Events whose units are in the rows.
    pub counted: u64,
    /// Events that were counted before.
    pub duplicates: u64,
}

/// A metric on a day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetricDay {
    /// The metric.
    pub metric: Metric,
    /// The day.
    pub day: Day,
}

/// The sum of one subject's events of one metric and day.
#[derive(Debug, Clone)]
pub struct Row {
    /// The subject.
    pub subject: Subject,
    /// CRC-16 of the subject modulo 256.
    pub bucket: u8,
    /// Position of metric and day in [`Batch::metric_days`].
    pub metric_day: u32,
    /// Position in [`Batch::limits`], where the subject has a limit.
    pub limit: Option<u32>,
    /// Expected count before the batch: what this reader has counted itself. Only a guess, to name alerts in the first call.
    pub expected_before: u64,
    /// Units. Above 2^53 - 1 means that the batch alone overflows; the script answers so.
    pub sum: u64,
}

/// A limit that applies on a day, with what its alerts say about it.
#[derive(Debug, Clone)]
pub struct AppliedLimit {
    /// The thresholds.
    pub thresholds: Thresholds,
    /// The limit, units a day.
    pub limit: u64,
    /// The plan's name.
    pub plan: std::sync::Arc<str>,
    /// The subject's zone, an IANA name.
    pub timezone: &'static str,
}

/// An event that can't be counted, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEvent {
    /// The entry's id.
    pub entry: StreamId,
    /// Why.
    pub reason: RefusalReason,
    /// The same in words.
    pub detail: String,
    /// The original fields and values in turn, cut to [`REFUSED_FIELDS_MAX`] fields of [`REFUSED_BYTES_MAX`].
    pub fields: Vec<Vec<u8>>,
}

/// How many of a refused event's fields are kept.
pub const REFUSED_FIELDS_MAX: usize = 16;
/// How many bytes of a refused event's field name or value are kept.
pub const REFUSED_BYTES_MAX: usize = 1024;

/// The id of a counted event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeenId {
    /// Ten-minute window of the entry that was counted.
    pub window: u64,
    /// Subject, metric and event id, separated by NUL.
    pub member: Vec<u8>,
}

/// The length of a window of event ids, in stream time.
pub const WINDOW_MS: u64 = 600_000;

/// The window of an entry.
#[must_use]
pub const fn window_of(entry: StreamId) -> u64 {
    entry.ms / WINDOW_MS
}

impl SeenId {
    /// The member under which an event's id is remembered. Subject and metric hold no NUL, so no two events share it by accident.
    #[must_use]
    pub fn member(subject: &Subject, metric: &Metric, id: &[u8]) -> Vec<u8> {
        [subject.as_str().as_bytes(), b"\0", metric.as_str().as_bytes(), b"\0", id].concat()
    }
}

impl Batch {
    /// Whether there is nothing to commit, not even a checkpoint.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Puts the rows in the order in which the script wants them: by metric and day, then by bucket.
    pub fn arrange(&mut self) {
        self.rows.retain(|row| row.sum > 0);
        self.rows.sort_unstable_by_key(|row| (row.metric_day, row.bucket));
    }

    /// The position of a metric and day, which are added if they are new.
    pub fn metric_day(&mut self, metric: &Metric, day: Day) -> u32 {
        let known =
            self.metric_days.iter().position(|metric_day| metric_day.day == day && metric_day.metric == *metric);
        let at = known.unwrap_or_else(|| {
            self.metric_days.push(MetricDay { metric: metric.clone(), day });
            self.metric_days.len() - 1
        });
        u32::try_from(at).expect("a batch has fewer entries than u32 counts")
    }
}
