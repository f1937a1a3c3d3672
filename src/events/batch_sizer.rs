//! How large a batch may grow, so that no commit holds the server for long. Pure.

use std::time::Duration;

use super::batch_builder::BatchBounds;

/// The most entries of a batch: where the same subjects come again and again, its cost stays small.
const ENTRIES_MAX: u64 = 20_000;
/// The most that a commit may cost, in counters: 2 ms of the server where 2.5 million entries a second can be read from
/// it.
const COST_MAX: usize = 4_500;
/// Below this cost a batch is not made smaller because of a slow commit alone: then it is not what it writes that is
/// slow.
const COST_MIN: usize = 500;
/// A commit that comes back later cost too much. Its round trip, so what the server did before it, a reading or two, is
/// in it.
const SLOW: Duration = Duration::from_millis(40);

/// Bounds of batches, from commit to commit.
#[derive(Debug)]
pub(super) struct BatchSizer {
    bounds: BatchBounds,
}

impl BatchSizer {
    /// Nothing is known yet.
    pub(super) const fn new() -> Self {
        Self { bounds: BatchBounds { entries: ENTRIES_MAX, cost: COST_MAX } }
    }

    /// The bounds of the next batch.
    pub(super) const fn bounds(&self) -> BatchBounds {
        self.bounds
    }

    /// A batch of this cost was committed.
    pub(super) fn committed(&mut self, cost: usize, took: Duration) {
        let BatchBounds { entries, cost: bound } = &mut self.bounds;
        *entries = (*entries * 2).min(ENTRIES_MAX);
        if took > SLOW && cost > COST_MIN {
            *bound = (*bound / 2).max(COST_MIN);
        } else if took < SLOW / 2 && (cost * 2 > *bound || *bound < COST_MIN) {
            *bound = (*bound + *bound / 8 + 1).min(COST_MAX);
        }
    }

    /// A batch could not be committed in time: half of everything next time.
    pub(super) fn failed(&mut self) {
        let BatchBounds { entries, cost } = &mut self.bounds;
        *entries = ((*entries).min(COST_MIN as u64) / 2).max(1);
        *cost = (*cost / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit that is too slow each time would otherwise be tried again for ever.
    #[test]
    fn failures_make_batches_smaller_until_one_entry_is_left() {
        let mut sizer = BatchSizer::new();
        for _ in 0..20 {
            sizer.failed();
        }
        assert_eq!(sizer.bounds(), BatchBounds { entries: 1, cost: 1 });
        for _ in 0..100 {
            sizer.committed(1, Duration::from_millis(6));
        }
        let BatchBounds { entries, cost } = sizer.bounds();
        assert!(entries == ENTRIES_MAX && cost >= COST_MIN, "and grow again: {cost}");
    }

    /// What commits may cost follows the time that they take, within bounds.
    #[test]
    fn the_cost_follows_the_time_that_commits_take() {
        let mut sizer = BatchSizer::new();
        for _ in 0..100 {
            sizer.committed(sizer.bounds().cost, Duration::from_millis(80));
        }
        assert_eq!(sizer.bounds().cost, COST_MIN);
        sizer.committed(10, Duration::from_millis(1));
        assert_eq!(sizer.bounds().cost, COST_MIN, "a small batch says nothing about large ones");
        for _ in 0..100 {
            sizer.committed(sizer.bounds().cost, Duration::from_millis(10));
        }
        assert_eq!(sizer.bounds().cost, COST_MAX);
    }
}
