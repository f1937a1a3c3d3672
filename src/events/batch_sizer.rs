//! How large a batch may grow, so that no commit holds the server for long. Pure.

use std::time::Duration;

use super::batch_builder::BatchBounds;

/// The most entries of a batch: where the same subjects come again and again, its cost stays small.
const ENTRIES_MAX: u64 = 45_000;
/// What a commit may cost at first, in counters, and where the server can't tell how long it was held: 2 ms of a server
/// from which 2.5 million entries a second can be read.
const COST_FIRST: usize = 4_500;
/// The most that a commit may cost, however fast the server is.
const COST_MAX: usize = 20_000;
/// Below this cost a batch is not made smaller because of a slow commit alone: then it is not what it writes that is
/// slow.
const COST_MIN: usize = 500;
/// So long a commit's script may run. Its arguments hold the server for up to a millisecond before, and other rows may
/// cost more than the last ones: 6 ms in all.
const HELD_MAX: Duration = Duration::from_millis(4);
/// Where the server can't tell: a commit that comes back later cost too much. Its round trip, so what the server did
/// before it, a reading or two, is in it.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(40);

/// Bounds of batches, from commit to commit.
#[derive(Debug)]
pub(super) struct BatchSizer {
    bounds: BatchBounds,
}

impl BatchSizer {
    /// Nothing is known yet.
    pub(super) const fn new() -> Self {
        Self { bounds: BatchBounds { entries: ENTRIES_MAX, cost: COST_FIRST } }
    }

    /// The bounds of the next batch.
    pub(super) const fn bounds(&self) -> BatchBounds {
        self.bounds
    }

    /// A batch of this cost was committed, in this round trip, for which it held the server.
    pub(super) fn committed(&mut self, cost: usize, round_trip: Duration, held: Option<Duration>) {
        let BatchBounds { entries, cost: bound } = &mut self.bounds;
        *entries = (*entries * 2).min(ENTRIES_MAX);
        let (took, longest, most) = match held {
            Some(held) => (held, HELD_MAX, COST_MAX),
            None => (round_trip, ROUND_TRIP_MAX, COST_FIRST),
        };
        if took > longest && cost > COST_MIN {
            let less = if took > longest * 2 { *bound / 2 } else { *bound / 8 };
            *bound = (*bound - less).max(COST_MIN);
        } else if took < longest * 7 / 8 && (cost * 2 > *bound || *bound < COST_MIN) {
            *bound = (*bound + *bound / 8 + 1).min(most);
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
            sizer.committed(1, Duration::from_millis(6), None);
        }
        let BatchBounds { entries, cost } = sizer.bounds();
        assert!(entries == ENTRIES_MAX && cost >= COST_MIN, "and grow again: {cost}");
    }

    /// Commits of so many batches that are full, on a server that takes so long for a counter.
    fn commit_full(sizer: &mut BatchSizer, batches: usize, of_a_counter: Duration, tells: bool) -> usize {
        for _ in 0..batches {
            let cost = sizer.bounds().cost;
            let held = of_a_counter * u32::try_from(cost).expect("a number of counters");
            sizer.committed(cost, held * 2, tells.then_some(held));
        }
        sizer.bounds().cost
    }

    /// What commits may cost follows the time for which they hold the server, on a fast one and on a slow one.
    #[test]
    fn the_cost_follows_the_time_that_the_server_was_held() {
        let mut sizer = BatchSizer::new();
        let fast = commit_full(&mut sizer, 100, Duration::from_nanos(500), true);
        assert!((6_800..=9_000).contains(&fast), "8,000 counters hold it for 4 ms: {fast}");
        let slow = commit_full(&mut sizer, 100, Duration::from_micros(2), true);
        assert!((1_700..=2_250).contains(&slow), "2,000 counters hold it for 4 ms: {slow}");
        assert_eq!(commit_full(&mut sizer, 100, Duration::from_millis(1), true), COST_MIN);
        sizer.committed(10, Duration::from_millis(1), Some(Duration::from_millis(1)));
        assert_eq!(sizer.bounds().cost, COST_MIN, "a small batch says nothing about large ones");
        assert_eq!(commit_full(&mut sizer, 100, Duration::from_nanos(1), true), COST_MAX);
    }

    /// A server that can't tell how long it was held gets batches that are smaller than they might be.
    #[test]
    fn the_cost_follows_the_round_trip_where_nothing_else_is_known() {
        let mut sizer = BatchSizer::new();
        assert_eq!(commit_full(&mut sizer, 100, Duration::from_nanos(500), false), COST_FIRST);
        assert_eq!(commit_full(&mut sizer, 100, Duration::from_millis(1), false), COST_MIN);
    }
}
