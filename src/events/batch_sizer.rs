//! How large a batch may grow, so that no commit holds the server for long. Pure.

use std::time::Duration;

use super::batch_builder::BatchBounds;

/// What a commit is to take.
const AIM: Duration = Duration::from_millis(3);
/// The most entries of a batch: where the same subjects come again and again, rows stay few.
const ENTRIES_MAX: u64 = 20_000;
/// Rows of the first batch.
const ROWS_FIRST: usize = 1_000;
/// Below this many rows a batch is not made smaller because of a slow commit alone: then it is not the rows that are slow.
const ROWS_MIN: usize = 500;
/// The most rows of a batch.
const ROWS_MAX: usize = 6_000;

/// Bounds of batches, from commit to commit.
#[derive(Debug)]
pub(super) struct BatchSizer {
    rows: usize,
    entries: u64,
}

impl BatchSizer {
    /// Nothing is known yet.
    pub(super) const fn new() -> Self {
        Self { rows: ROWS_FIRST, entries: ENTRIES_MAX }
    }

    /// The bounds of the next batch.
    pub(super) const fn bounds(&self) -> BatchBounds {
        BatchBounds { entries: self.entries, rows: self.rows }
    }

    /// A batch of so many rows, refused events among them, was committed.
    pub(super) fn committed(&mut self, rows: usize, took: Duration) {
        self.entries = (self.entries * 2).min(ENTRIES_MAX);
        if took > AIM * 2 && rows > ROWS_MIN {
            self.rows = (self.rows / 2).max(ROWS_MIN);
        } else if took < AIM && rows * 2 > self.rows {
            self.rows = (self.rows + self.rows / 8 + 1).min(ROWS_MAX);
        }
    }

    /// A batch could not be committed in time: half of everything next time.
    pub(super) fn failed(&mut self) {
        self.entries = (self.entries.min(ROWS_FIRST as u64) / 2).max(1);
        self.rows = (self.rows / 2).max(1);
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
        assert_eq!(sizer.bounds(), BatchBounds { entries: 1, rows: 1 });
        for _ in 0..20 {
            sizer.committed(1, Duration::from_millis(1));
        }
        assert_eq!(sizer.bounds().entries, ENTRIES_MAX);
        assert!(sizer.bounds().rows > 1);
    }

    /// Slow commits get fewer rows, quick ones more, within bounds.
    #[test]
    fn rows_follow_the_time_that_commits_take() {
        let mut sizer = BatchSizer::new();
        for _ in 0..100 {
            sizer.committed(sizer.bounds().rows, Duration::from_millis(1));
        }
        assert_eq!(sizer.bounds().rows, ROWS_MAX);
        for _ in 0..100 {
            sizer.committed(sizer.bounds().rows, Duration::from_millis(50));
        }
        assert_eq!(sizer.bounds().rows, ROWS_MIN);
        sizer.committed(10, Duration::from_millis(1));
        assert_eq!(sizer.bounds().rows, ROWS_MIN, "a small batch says nothing about large ones");
    }
}
