//! When the time to live (TTL) of counters is refreshed. Pure.
//!
//! A counter lives 14 days from its last write, to the minute. EXPIRE takes the server as long as counting, and a batch touches up to
//! 256 hashes of counters and as many of records again and again. So each worker remembers which keys it refreshed within the last
//! minute. `commit.lua` itself notices a key that was created anew meanwhile.

use std::collections::HashMap;

use crate::types::UnixMs;
use crate::types::keys::BUCKETS;

use super::batch::MetricDay;

/// A TTL is refreshed again after this long.
const REFRESH_EVERY_MS: u64 = 60_000;
/// Beyond so many pairs of metric and day all are forgotten. Then TTLs are refreshed more often than needed.
const METRIC_DAYS_MAX: usize = 64;

/// Whether a commit refreshes the TTL of a group's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtlRefresh {
    /// It does.
    Due,
    /// It does not: that was done within the last minute.
    Recent,
}

/// When each TTL was refreshed, by server time.
#[derive(Debug, Default)]
pub struct TtlRefreshes(HashMap<MetricDay, Box<[i64; BUCKETS as usize]>>);

impl TtlRefreshes {
    /// Whether the TTL of this bucket's keys is to be refreshed at `now`.
    #[must_use]
    pub fn due(&self, metric_day: &MetricDay, bucket: u8, now: UnixMs) -> TtlRefresh {
        let last = self.0.get(metric_day).map(|buckets| buckets[usize::from(bucket)]);
        // Either way: after a failover the server's clock may be behind.
        if last.is_some_and(|last| last.abs_diff(now.0) < REFRESH_EVERY_MS) {
            TtlRefresh::Recent
        } else {
            TtlRefresh::Due
        }
    }

    /// A commit that was read at `now` has refreshed this bucket's keys.
    pub fn refreshed(&mut self, metric_day: &MetricDay, bucket: u8, now: UnixMs) {
        if self.0.len() >= METRIC_DAYS_MAX && !self.0.contains_key(metric_day) {
            self.0.clear();
        }
        let buckets = self.0.entry(metric_day.clone()).or_insert_with(|| Box::new([i64::MIN; BUCKETS as usize]));
        buckets[usize::from(bucket)] = now.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Day, Metric};

    fn metric_day(day: &str) -> MetricDay {
        MetricDay { metric: Metric::default(), day: Day::parse(day).expect("a date") }
    }

    /// A TTL that is never refreshed again would end in the middle of a day that is still being counted.
    #[test]
    fn a_ttl_is_refreshed_at_first_and_then_every_minute() {
        let (today, mut refreshes) = (metric_day("2026-11-21"), TtlRefreshes::default());
        let at = UnixMs(1_795_250_000_000);
        assert_eq!(refreshes.due(&today, 7, at), TtlRefresh::Due);
        refreshes.refreshed(&today, 7, at);
        assert_eq!(refreshes.due(&today, 7, at.plus(59_999)), TtlRefresh::Recent);
        assert_eq!(refreshes.due(&today, 7, at.plus(60_000)), TtlRefresh::Due);
        assert_eq!(refreshes.due(&today, 8, at), TtlRefresh::Due, "another bucket");
        assert_eq!(refreshes.due(&metric_day("2026-11-22"), 7, at), TtlRefresh::Due, "another day");
    }

    /// A clock that jumped back by a day would otherwise stop refreshes for a day.
    #[test]
    fn a_server_whose_clock_is_behind_gets_its_ttls_refreshed() {
        let (today, mut refreshes) = (metric_day("2026-11-21"), TtlRefreshes::default());
        refreshes.refreshed(&today, 7, UnixMs(1_795_250_000_000));
        assert_eq!(refreshes.due(&today, 7, UnixMs(1_795_163_600_000)), TtlRefresh::Due);
    }

    /// Old days must not add up in memory for as long as the daemon runs.
    #[test]
    fn pages_are_bounded() {
        let mut refreshes = TtlRefreshes::default();
        for day in 0..500 {
            let day = metric_day("2026-11-21").day.before(day).expect("a date");
            refreshes.refreshed(&MetricDay { metric: Metric::default(), day }, 0, UnixMs(0));
            assert!(refreshes.0.len() <= METRIC_DAYS_MAX);
        }
    }
}
