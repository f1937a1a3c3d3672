//! A batch: what one commit applies. Filled by `events/`, judged and written by [`super::commit`].

use crate::types::{Day, Metric, Reason, StreamId, Subject, UnixMs};

use super::thresholds::Ladder;

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
    pub pages: Vec<Page>,
    /// The sums, at most one a subject and page.
    pub rows: Vec<Row>,
    /// The ladders; rows name them by position.
    pub ladders: Vec<LadderOf>,
    /// Events that can't be counted.
    pub refused: Vec<Refused>,
    /// Ids of counted events.
    pub seen: Vec<SeenId>,
    /// Events whose units are in the rows.
    pub counted: u64,
    /// Events that were counted before.
    pub duplicates: u64,
}

/// A metric on a day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Page {
    /// The metric.
    pub metric: Metric,
    /// The day.
    pub day: Day,
}

/// The sum of one subject's events of one metric and day.
#[derive(Debug, Clone)]
pub struct Row {
    /// Whose.
    pub subject: Subject,
    /// CRC-16 of the subject modulo 256.
    pub bucket: u8,
    /// Position of metric and day in [`Batch::pages`].
    pub page: u32,
    /// Position in [`Batch::ladders`], where the subject has a limit.
    pub ladder: Option<u32>,
    /// Where the counter stood before, as far as the reader has counted itself; only a guess, to name alerts in good time.
    pub believed: u64,
    /// Units. Above 2^53 - 1 means that the batch alone overflows; the script answers so.
    pub sum: u64,
}

/// A ladder with what an alert says about where it came from.
#[derive(Debug, Clone)]
pub struct LadderOf {
    /// The thresholds.
    pub ladder: Ladder,
    /// The limit, units a day.
    pub limit: u64,
    /// The plan's name.
    pub plan: std::sync::Arc<str>,
    /// The subject's zone, an IANA name.
    pub timezone: &'static str,
}

/// An event that can't be counted, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The entry's id.
    pub entry: StreamId,
    /// Why.
    pub reason: Reason,
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

    /// Puts the rows in the order in which the script wants them: by page, then by bucket.
    pub fn arrange(&mut self) {
        self.rows.retain(|row| row.sum > 0);
        self.rows.sort_unstable_by_key(|row| (row.page, row.bucket));
    }

    /// The position of a page, added if it is new.
    pub fn page(&mut self, metric: &Metric, day: Day) -> u32 {
        let known = self.pages.iter().position(|page| page.day == day && page.metric == *metric);
        let at = known.unwrap_or_else(|| {
            self.pages.push(Page { metric: metric.clone(), day });
            self.pages.len() - 1
        });
        u32::try_from(at).expect("a batch has fewer entries than u32 counts")
    }
}
