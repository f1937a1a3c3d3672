//! Chooses how many entries to request, so that no reply exceeds its bound. Pure.

/// A reply should be below 4 MiB. The aim is half of that, because entries vary in size.
const REPLY_BYTES_AIM: usize = 2 * 1024 * 1024;
/// Size of the first reading, before the size of entries is known.
const FIRST_ENTRIES: u32 = 64;

/// The number of entries to request; adapts after each reading, also across connections.
#[derive(Debug)]
pub(super) struct ReadSizer {
    count: u32,
    most: u32,
    /// Not even one entry was received.
    is_stuck: bool,
}

impl ReadSizer {
    /// Starts without knowledge of the entries. Never requests more than `most`.
    pub(super) fn new(most: u32) -> Self {
        Self { count: FIRST_ENTRIES.min(most), most, is_stuck: false }
    }

    /// The number of entries to request.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether a single entry was not received: it may exceed what the server sends at once.
    pub(super) const fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// After a reply of this size, requests up to twice as many entries next time, if they fit.
    pub(super) fn received(&mut self, entries: usize, bytes: usize) {
        self.is_stuck = false;
        let entry_bytes = (bytes / entries.max(1)).max(1);
        let fit = u32::try_from(REPLY_BYTES_AIM / entry_bytes).unwrap_or(u32::MAX);
        self.count = fit.min(self.count.saturating_mul(2)).clamp(1, self.most);
    }

    /// After a failed reading, requests a quarter of the entries next time, because they may be too large. Earlier
    /// replies say nothing about them.
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
        sizer.received(entries, bytes);
        sizer.count()
    }

    /// Otherwise a reply that takes too long, or that is too long for the server or the daemon, would be requested
    /// again and again.
    #[test]
    fn failures_make_readings_smaller() {
        let mut sizer = ReadSizer { count: 2000, ..ReadSizer::new(2000) };
        let counts = [(); 4].map(|()| {
            sizer.failed();
            (sizer.count(), sizer.is_stuck())
        });
        assert_eq!(counts, [(16, false), (4, false), (1, false), (1, true)]);
        sizer.received(1, 100);
        assert_eq!((sizer.count(), sizer.is_stuck()), (2, false));
        assert_eq!(ReadSizer::new(10).count(), 10);
    }

    /// A reply with 400 entries of 1 MB added 377 MB to the server's memory.
    #[test]
    fn large_entries_make_readings_small() {
        assert_eq!(after(2000, 1, 1_000_000), 2);
        assert_eq!(after(64, 64, 64 * 60), 128);
        assert_eq!(after(2000, 2000, 2000 * 60), 2000);
        assert_eq!(after(2, 1, 10_000_000), 1);
    }
}
