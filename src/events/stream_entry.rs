//! The entries of a reading, and their subjects in the cache.

use crate::types::StreamId;

use super::parse::RawEvent;
use super::worker_cache::WorkerCache;

/// Number of entries that are looked up together, so that their memory accesses overlap. If the cache holds many
/// subjects, these accesses are most of the cost of an event.
pub(super) const LOOKED_UP_AT_ONCE: usize = 32;

/// One entry of a reading.
#[derive(Debug, Clone)]
pub struct StreamEntry<F> {
    /// Its id.
    pub id: StreamId,
    /// Its fields and values.
    pub fields: F,
}

/// An entry with its fields by name, and the position of its subject in the cache.
pub(super) struct LookedUpEntry<'a, F> {
    pub(super) entry: StreamEntry<F>,
    pub(super) raw: RawEvent<'a>,
    /// `None` if the cache does not hold the subject, or the entry has none.
    pub(super) subject_index: Option<u32>,
}

/// Finds the subjects of entries, and brings the rows of their last events into the processor's cache.
pub(super) fn look_up<F>(held: &WorkerCache, some: &mut [LookedUpEntry<'_, F>]) {
    for found in some.iter_mut() {
        found.subject_index = found.raw.subject.and_then(|bytes| held.cache.find(bytes));
    }
    let rows = some.iter().filter_map(|found| held.cache.subject(found.subject_index?).extra.rows().first());
    // The sum is not used. Computing it loads each row into the processor's cache.
    std::hint::black_box(rows.fold(0, |sum: u64, row| sum.wrapping_add(held.totals.row(*row).total)));
}
