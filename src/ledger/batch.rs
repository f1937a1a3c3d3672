//! A batch: the content of one commit. `events/` fills it, [`super::commit`] writes it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::types::{DeploymentId, Metric, Period, RaisedRecord, RefusalReason, StreamId, Subject, UnixMs};

use super::event_ids::NewEventIds;

/// The content of one commit.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The deployment that commits.
    pub instance: DeploymentId,
    /// Number of removals of counters (erasure epoch) when the session began. If the stored epoch is higher, cached
    /// counters may be gone.
    pub erasure_epoch: u64,
    /// The run id of the server process that sent the entries, because another process may have other entries under the
    /// same ids. `None` if it is unknown; then it is not compared.
    pub server: Option<Arc<str>>,
    /// The checkpoint before the batch.
    pub from: StreamId,
    /// Its first entry.
    pub first_entry: StreamId,
    /// Its last entry: the next checkpoint.
    pub to: StreamId,
    /// Number of entries read.
    pub entries: u64,
    /// When its last event arrived.
    pub arrived: UnixMs,
    /// Server time of its oldest read.
    pub read_at: UnixMs,
    /// How long every read had been full at the last read: more entries waited than one read returns.
    pub behind_for: Duration,
    /// The counters to write, grouped by hash.
    pub groups: Vec<CounterGroup>,
    /// The alerts to raise.
    pub alerts: Vec<NewAlert>,
    /// Metrics that may be new in a period.
    pub metrics: Vec<MetricPeriod>,
    /// Subjects that may be new among the children of the level above them: that level, and the child.
    pub children: Vec<(Subject, Subject)>,
    /// Refused events.
    pub refused: Vec<RefusedEvent>,
    /// Ids of counted events.
    pub event_ids: NewEventIds,
    /// Number of events with units in the counters.
    pub counted: u64,
    /// Number of events that were counted earlier.
    pub duplicates: u64,
}

/// A metric in a period.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricPeriod {
    /// The metric.
    pub metric: Metric,
    /// The period.
    pub period: Period,
}

/// Counters in one hash.
#[derive(Debug, Clone)]
pub struct CounterGroup {
    /// Metric and period.
    pub of: MetricPeriod,
    /// CRC-16 of the subjects modulo 256.
    pub bucket: u8,
    /// New TTL of the hash, seconds; `None` if it was set within the last minute.
    pub ttl_s: Option<u64>,
    /// The counters, at most [`GROUP_ROWS_MAX`].
    pub rows: Vec<Row>,
}

/// Maximum number of counters in one group, because Lua's unpack fails above 7,999 values.
pub const GROUP_ROWS_MAX: usize = 3_900;

/// One counter, in absolute values.
#[derive(Debug, Clone)]
pub struct Row {
    /// The subject.
    pub subject: Subject,
    /// Units before the batch: the stored value.
    pub before: u64,
    /// Units after the batch.
    pub total: u64,
}

/// An alert that a batch raises.
#[derive(Debug, Clone)]
pub struct NewAlert {
    /// Index of the group of its counter.
    pub group: usize,
    /// Index of the counter in the group.
    pub row: usize,
    /// The content of the outbox entry: the alert, and earlier alerts of the same threshold.
    pub record: RaisedRecord,
}

/// A refused event in its stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEvent {
    /// The entry's id.
    pub entry: StreamId,
    /// The reason.
    pub reason: RefusalReason,
    /// The reason in words.
    pub detail: String,
    /// The original fields and values in turn, cut to [`REFUSED_FIELDS_MAX`] fields of [`REFUSED_BYTES_MAX`].
    pub fields: Vec<Vec<u8>>,
}

/// Maximum number of fields stored of a refused event.
pub const REFUSED_FIELDS_MAX: usize = 16;
/// Maximum number of bytes stored of a field's name or value.
pub const REFUSED_BYTES_MAX: usize = 1024;

impl RefusedEvent {
    /// The part of the fields that is stored.
    pub fn kept<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Vec<u8>> {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(REFUSED_BYTES_MAX)].to_vec();
        fields.take(REFUSED_FIELDS_MAX).flat_map(|(name, value)| [cut(name), cut(value)]).collect()
    }
}

impl Batch {
    /// An empty batch after the checkpoint `from`.
    pub const fn new(instance: DeploymentId, from: StreamId) -> Self {
        Self {
            instance,
            erasure_epoch: 0,
            server: None,
            from,
            first_entry: from,
            to: from,
            entries: 0,
            arrived: UnixMs(0),
            read_at: UnixMs(0),
            behind_for: Duration::ZERO,
            groups: Vec::new(),
            alerts: Vec::new(),
            metrics: Vec::new(),
            children: Vec::new(),
            refused: Vec::new(),
            event_ids: NewEventIds::new(),
            counted: 0,
            duplicates: 0,
        }
    }

    /// The periods of the counters that it writes.
    pub fn periods(&self) -> BTreeSet<Period> {
        self.groups.iter().map(|group| group.of.period).collect()
    }
}
