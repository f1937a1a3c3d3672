//! How many entries to ask for, so that no reply grows beyond its bound. Pure.

/// A reply is kept below 4 MiB; half of it is aimed at, since entries vary.
const REPLY_BYTES_AIM: usize = 2 * 1024 * 1024;
/// The first reading, before anything is known about the size of entries.
const FIRST_ENTRIES: u32 = 64;

/// How many entries to ask for, from reading to reading, also across connections.
#[derive(Debug)]
pub(super) struct ReadSizer {
    count: u32,
    most: u32,
    /// Not even one entry came through.
    is_stuck: bool,
}

impl ReadSizer {
    /// Nothing is known yet; never more than `most`.
    pub(super) fn new(most: u32) -> Self {
        Self { count: FIRST_ENTRIES.min(most), most, is_stuck: false }
    }

    /// How many entries to ask for.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether a single entry did not come through: it may be beyond what the server sends at once.
    pub(super) const fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// A reply of so many entries and bytes came: up to twice as many next time, as long as they fit.
    pub(super) fn came(&mut self, entries: usize, bytes: usize) {
        self.is_stuck = false;
        let entry_bytes = (bytes / entries.max(1)).max(1);
        let fit = u32::try_from(REPLY_BYTES_AIM / entry_bytes).unwrap_or(u32::MAX);
        self.count = fit.min(self.count.saturating_mul(2)).clamp(1, self.most);
    }

    /// No reply came: a quarter next time, because entries may be so large that so many of them don't come through.
    /// What came through before tells nothing about those.
    pub(super) fn failed(&mut self) {
        self.is_stuck = self.count == 1;
        self.count = (self.count.min(FIRST_ENTRIES) / 4).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(count: u32, entries: usize, bytes: usize) -> u32 {
        let mut sizer = ReadSizer { count, ..ReadSizer::new(2000) };
        sizer.came(entries, bytes);
        sizer.count()
    }

    /// Otherwise a reply that takes too long, or is too long for the server or for us, would be asked for again and
    /// again.
    #[test]
    fn failures_make_readings_smaller() {
        let mut sizer = ReadSizer { count: 2000, ..ReadSizer::new(2000) };
        let counts = [(); 4].map(|()| {
            sizer.failed();
            (sizer.count(), sizer.is_stuck())
        });
        assert_eq!(counts, [(16, false), (4, false), (1, false), (1, true)]);
        sizer.came(1, 100);
        assert_eq!((sizer.count(), sizer.is_stuck()), (2, false));
        assert_eq!(ReadSizer::new(10).count(), 10);
    }

    /// 400 entries of 1 MB in one reply added 377 MB to the server.
    #[test]
    fn large_entries_make_readings_small() {
        assert_eq!(after(2000, 1, 1_000_000), 2);
        assert_eq!(after(64, 64, 64 * 60), 128);
        assert_eq!(after(2000, 2000, 2000 * 60), 2000);
        assert_eq!(after(2, 1, 10_000_000), 1);
    }
}
