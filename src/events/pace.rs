//! How many entries to ask for, so that no reply grows beyond its bound. Pure.

use crate::wire::Received;

/// A reply is kept below 4 MiB; half of it is aimed at, since entries vary.
const REPLY_BYTES_AIM: usize = 2 * 1024 * 1024;
/// The first reading, before anything is known about the size of entries.
const FIRST_ENTRIES: u32 = 64;

/// How many entries to ask for at first, at most `most`: a quarter each time that reading failed before anything was committed,
/// because entries may be so large that so many of them don't come through.
pub(super) fn first_count(most: u32, failures: u32) -> u32 {
    (FIRST_ENTRIES >> (2 * failures.min(3))).clamp(1, most)
}

/// How many entries to ask for next, so that a reply stays below 4 MiB.
pub(super) fn next_count(count: u32, received: &Received, most: u32) -> u32 {
    let entry_bytes = (received.bytes / received.entries.max(1)).max(1);
    let fit = u32::try_from(REPLY_BYTES_AIM / entry_bytes).unwrap_or(u32::MAX);
    fit.min(count.saturating_mul(2)).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a reply that takes too long, or is too long for the server or for us, would be asked for again and again.
    #[test]
    fn failures_make_the_first_reading_smaller() {
        assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(|failures| first_count(2000, failures)), [64, 16, 4, 1, 1, 1]);
        assert_eq!(first_count(10, 0), 10);
    }

    /// 400 entries of 1 MB in one reply added 377 MB to the server.
    #[test]
    fn large_entries_make_readings_small() {
        let received = |entries, bytes| Received { entries, bytes, server_ms: 0, last: None };
        assert_eq!(next_count(2000, &received(1, 1_000_000), 2000), 2);
        assert_eq!(next_count(64, &received(64, 64 * 60), 2000), 128);
        assert_eq!(next_count(2000, &received(2000, 2000 * 60), 2000), 2000);
        assert_eq!(next_count(2, &received(1, 10_000_000), 2000), 1);
    }
}
