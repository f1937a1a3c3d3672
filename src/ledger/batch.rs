//! A batch: what one commit applies. Filled by `events/`, written by [`super::commit`].

use std::sync::Arc;
use std::time::Duration;

use crate::types::{
    Alert, DeploymentId, Metric, Percent, Period, RaisedRecord, RefusalReason, StreamId, Subject, UnixMs,
};

use super::event_ids::NewEventIds;

/// Everything that one commit amounts to.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Which deployment commits.
    pub instance: DeploymentId,
    /// How often counters had been removed when the session began: those that are held are gone where it has grown
    /// since.
    pub erasure_epoch: u64,
    /// The run id of the server process that its entries were read from: another one may have others under the same
    /// ids. `None` where that is not known, and not compared.
    pub server: Option<Arc<str>>,
    /// The checkpoint that it was read from.
    pub from: StreamId,
    /// Its last entry: the next checkpoint.
    pub to: StreamId,
    /// How many entries were read.
    pub entries: u64,
    /// Server time of its oldest reading.
    pub read_at: UnixMs,
    /// For how long each reading had been full when it was closed: more entries were there than one reading takes.
    pub behind_for: Duration,
    /// The counters it writes, by the hash in which they lie.
    pub groups: Vec<CounterGroup>,
    /// The alerts it raises.
    pub alerts: Vec<NewAlert>,
    /// Metrics that may be new to a period.
    pub metrics: Vec<MetricPeriod>,
    /// Events that can't be counted.
    pub refused: Vec<RefusedEvent>,
    /// Ids of counted events.
    pub event_ids: Vec<NewEventIds>,
    /// Events whose units are in the counters.
    pub counted: u64,
    /// Events that were counted before.
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

/// Counters that lie in one hash.
#[derive(Debug, Clone)]
pub struct CounterGroup {
    /// Metric and period.
    pub of: MetricPeriod,
    /// CRC-16 of the subjects modulo 256.
    pub bucket: u8,
    /// Seconds that the hash lives from now on; `None` where that was set within the last minute.
    pub ttl_s: Option<u64>,
    /// The counters, at most [`GROUP_ROWS_MAX`].
    pub rows: Vec<Row>,
}

/// The most counters of one group, because Lua's unpack fails above 7,999 values.
pub const GROUP_ROWS_MAX: usize = 3_900;

/// One counter, in absolute values.
#[derive(Debug, Clone)]
pub struct Row {
    /// The subject.
    pub subject: Subject,
    /// Units before the batch: what is stored.
    pub before: u64,
    /// Units after it.
    pub total: u64,
}

/// An alert that a batch raises.
#[derive(Debug, Clone)]
pub struct NewAlert {
    /// Position of the group in which its counter lies.
    pub group: usize,
    /// Position of the counter in the group.
    pub row: usize,
    /// What the outbox gets, in the record of its percentage.
    pub record: RaisedRecord,
}

impl NewAlert {
    /// The alert.
    pub const fn alert(&self) -> &Alert {
        &self.record.alert
    }

    /// Its percentage.
    pub const fn percent(&self) -> Percent {
        self.record.alert.threshold_percent
    }
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

impl RefusedEvent {
    /// What is kept of the fields of an event.
    pub fn kept<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<Vec<u8>> {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(REFUSED_BYTES_MAX)].to_vec();
        fields.take(REFUSED_FIELDS_MAX).flat_map(|(name, value)| [cut(name), cut(value)]).collect()
    }
}

impl Batch {
    /// Nothing read yet after `from`.
    pub const fn new(instance: DeploymentId, from: StreamId) -> Self {
        Self {
            instance,
            erasure_epoch: 0,
            server: None,
            from,
            to: from,
            entries: 0,
            read_at: UnixMs(0),
            behind_for: Duration::ZERO,
            groups: Vec::new(),
            alerts: Vec::new(),
            metrics: Vec::new(),
            refused: Vec::new(),
            event_ids: Vec::new(),
            counted: 0,
            duplicates: 0,
        }
    }

    /// Whether there is nothing to commit, not even a checkpoint.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }
}
