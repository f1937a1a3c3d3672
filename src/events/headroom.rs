//! How much still fits into counters that are nearly full, after a commit answered `overflow`.

use crate::ledger::Batch;
use crate::ledger::commit::FullCounter;
use crate::types::StreamId;
use crate::types::units::UNITS_MAX;

use super::batch_builder::CounterHeadroom;

/// The room in full counters as of one checkpoint, nothing taken from it yet: what a batch took that was not committed is still
/// free.
#[derive(Debug, Default)]
pub(super) struct Headroom {
    at: StreamId,
    left: CounterHeadroom,
}

impl Headroom {
    /// The room for a batch that is read from this checkpoint. What was learnt at another one says nothing about it.
    pub(super) fn as_of(&self, checkpoint: StreamId) -> CounterHeadroom {
        if self.at == checkpoint { self.left.clone() } else { CounterHeadroom::new() }
    }

    /// Takes in what the script told of counters that a batch would have made overflow.
    ///
    /// Added to what is known at that checkpoint: the batch may have been built within it, so the script does not tell it again,
    /// and two full counters that take turns in being forgotten would stop the stream.
    pub(super) fn learn(&mut self, batch: &Batch, full: &[FullCounter]) {
        if self.at != batch.from {
            *self = Self { at: batch.from, left: CounterHeadroom::new() };
        }
        let fits = |full: &FullCounter| {
            let row = batch.rows.get(full.row)?;
            let metric_day = &batch.metric_days[row.metric_day as usize];
            let left = UNITS_MAX.saturating_sub(full.count);
            Some(((row.subject.clone(), metric_day.metric.clone(), metric_day.day), left))
        };
        self.left.extend(full.iter().filter_map(fits));
    }
}
