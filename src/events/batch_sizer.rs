//! Chooses how large a batch may grow, so that no commit blocks the server for long. Pure.

use std::time::Duration;

use super::batch_builder::BatchBounds;

/// Maximum number of entries of a batch. It matters if few subjects occur again and again, because the cost stays
/// small.
const ENTRIES_MAX: u64 = 45_000;
/// Maximum cost of the first commit, in counters, and of each commit if the server can't tell how long its script ran:
/// 2 ms on a server that reads 2.5 million entries a second.
const COST_FIRST: usize = 8_000;
/// Maximum cost of a commit, however fast the server is.
const COST_MAX: usize = 20_000;
/// Slow commits do not reduce the maximum cost below this: such a small batch is slow for another reason than its
/// writes.
const COST_MIN: usize = 500;
/// A script that ran longer than this wrote too much. At this bound, with the server's work before and after the
/// script, one command in a hundred takes more than 6 ms (SLOWLOG), or more than 8 ms with an append-only file.
const RUN_MAX: Duration = Duration::from_millis(3);
/// A commit that takes longer than this cost too much, however short its script ran. The time includes a reading or two
/// that the server made before it.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(40);

/// Adapts the bounds of batches after each commit.
#[derive(Debug)]
pub(super) struct BatchSizer {
    bounds: BatchBounds,
    /// Whether the script of the last commit ran for too long. A single slow run may be chance.
    was_slow: bool,
}

impl BatchSizer {
    /// Starts with the bounds for a server of unknown speed.
    pub(super) const fn new() -> Self {
        Self { bounds: BatchBounds { entries: ENTRIES_MAX, cost: COST_FIRST }, was_slow: false }
    }

    /// The bounds of the next batch.
    pub(super) const fn bounds(&self) -> BatchBounds {
        self.bounds
    }

    /// Adapts the bounds after a commit of this cost. Its script ran for `ran`, if the server can tell.
    pub(super) fn committed(&mut self, cost: usize, round_trip: Duration, ran: Option<Duration>) {
        let BatchBounds { entries, cost: bound } = &mut self.bounds;
        *entries = (*entries * 2).min(ENTRIES_MAX);
        let (took, longest, most) = match ran {
            // `ran` may include the time of other threads of the server.
            Some(ran) => (ran.min(round_trip), RUN_MAX, COST_MAX),
            None => (round_trip, ROUND_TRIP_MAX, COST_FIRST),
        };
        let is_slow = cost > COST_MIN && took > longest;
        let is_far_too_slow = cost > COST_MIN && (took > longest * 2 || round_trip > ROUND_TRIP_MAX);
        let least = COST_MIN.min(*bound);
        if is_far_too_slow {
            *bound = ((*bound).min(cost) / 2).max(least);
        } else if is_slow && self.was_slow {
            *bound = ((*bound).min(cost) * 7 / 8).max(least);
        } else if !is_slow && (cost * 8 > *bound * 7 || *bound < COST_MIN) {
            // Aims at nine tenths of the longest allowed time, and grows by half at most.
            let share = longest.mul_f64(0.9).div_duration_f64(took.max(Duration::from_nanos(1)));
            *bound = (*bound).max((*bound as f64 * share.min(1.5)).ceil() as usize).min(most);
        }
        self.was_slow = is_slow;
    }

    /// Halves all bounds after a batch that could not be committed in time; that of entries falls to 250 at once.
    pub(super) fn failed(&mut self) {
        let BatchBounds { entries, cost } = &mut self.bounds;
        *entries = ((*entries).min(COST_MIN as u64) / 2).max(1);
        *cost = (*cost / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a commit that is too slow would be tried again forever.
    #[test]
    fn failures_make_batches_smaller_until_one_entry_is_left() {
        let mut sizer = BatchSizer::new();
        for _ in 0..20 {
            sizer.failed();
        }
        assert_eq!(sizer.bounds(), BatchBounds { entries: 1, cost: 1 });
        sizer.committed(COST_MIN + 1, ROUND_TRIP_MAX * 2, None);
        assert_eq!(sizer.bounds().cost, 1, "one event that raises much makes it no larger");
        for _ in 0..100 {
            sizer.committed(1, Duration::from_millis(6), None);
        }
        let BatchBounds { entries, cost } = sizer.bounds();
        assert!(entries == ENTRIES_MAX && cost >= COST_MIN, "and grow again: {cost}");
    }

    /// Commits batches that fill `fullness` percent of the bound, on a server that needs `of_a_counter` for each
    /// counter.
    fn commit(sizer: &mut BatchSizer, batches: usize, fullness: usize, of_a_counter: Duration, tells: bool) -> usize {
        for _ in 0..batches {
            let cost = sizer.bounds().cost * fullness / 100;
            let ran = of_a_counter * u32::try_from(cost).expect("a number of counters");
            sizer.committed(cost, ran * 2, tells.then_some(ran));
        }
        sizer.bounds().cost
    }

    /// The allowed cost follows the run time of the scripts, on a fast server and on a slow one.
    #[test]
    fn the_cost_follows_the_time_that_scripts_run() {
        let mut sizer = BatchSizer::new();
        let fast = commit(&mut sizer, 100, 100, Duration::from_nanos(250), true);
        assert!((10_500..=12_000).contains(&fast), "12,000 counters take 3 ms: {fast}");
        let slow = commit(&mut sizer, 100, 100, Duration::from_micros(1), true);
        assert!((2_600..=3_000).contains(&slow), "3,000 counters take 3 ms: {slow}");
        assert_eq!(commit(&mut sizer, 100, 100, Duration::from_millis(1), true), COST_MIN);
        sizer.committed(10, Duration::from_millis(1), Some(Duration::from_millis(1)));
        assert_eq!(sizer.bounds().cost, COST_MIN, "a small batch says nothing about large ones");
        assert_eq!(commit(&mut sizer, 100, 100, Duration::from_nanos(1), true), COST_MAX);
    }

    /// Otherwise the next full batch would cost twice as much as any batch before it.
    #[test]
    fn batches_that_are_not_full_prove_nothing() {
        let mut sizer = BatchSizer::new();
        assert_eq!(commit(&mut sizer, 100, 80, Duration::from_nanos(250), true), COST_FIRST);
    }

    /// Work of another server thread beside the script must not make batches smaller.
    #[test]
    fn one_slow_commit_may_be_chance() {
        let mut sizer = BatchSizer::new();
        let [quick, slow] = [1, 5].map(|ms| Some(Duration::from_millis(ms)));
        for ran in [slow, quick, slow, quick] {
            sizer.committed(COST_FIRST / 2, Duration::from_millis(9), ran);
        }
        assert_eq!(sizer.bounds().cost, COST_FIRST);
        sizer.committed(COST_FIRST, Duration::from_millis(2), Some(Duration::from_millis(9)));
        assert!(sizer.bounds().cost > COST_FIRST, "it did not run longer than its answer took");
    }

    /// The reported run time may be too short: the process had to wait, or the append-only file was written.
    #[test]
    fn a_long_round_trip_halves_the_cost_whatever_the_script_did() {
        let mut sizer = BatchSizer::new();
        sizer.committed(COST_FIRST, ROUND_TRIP_MAX * 2, Some(Duration::from_millis(1)));
        assert_eq!(sizer.bounds().cost, COST_FIRST / 2);
        let mut sizer = BatchSizer::new();
        assert_eq!(commit(&mut sizer, 100, 100, Duration::from_nanos(250), false), COST_FIRST, "nothing more is known");
        assert_eq!(commit(&mut sizer, 100, 100, Duration::from_millis(1), false), COST_MIN);
    }
}
