//! How many events are counted in a second, from the totals that overviews of this daemon have read within a minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::types::UnixMs;

/// The time over which the rate is known at most.
const LASTS: Duration = Duration::from_secs(60);
/// The time between two totals that are kept: a minute has few of them, whatever the number of viewers.
const EVERY: Duration = Duration::from_secs(1);

/// Totals, the oldest first, each with when it was read.
#[derive(Debug, Default)]
pub struct CountingRate(Mutex<VecDeque<(UnixMs, u64)>>);

impl CountingRate {
    /// Adds a total. Returns the events per second since the oldest one; `None` before there is another one.
    pub(super) fn add(&self, read_at: UnixMs, counted: u64) -> Option<u64> {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back makes them useless, too.
        totals.retain(|(before, _)| *before <= read_at && read_at.since(*before) <= LASTS);
        let first = totals.front().copied();
        if totals.back().is_none_or(|(last, _)| read_at.since(*last) >= EVERY) {
            totals.push_back((read_at, counted));
        }
        let (began, before) = first.filter(|(began, _)| read_at.since(*began) >= EVERY)?;
        let (events, ms) = (u128::from(counted.saturating_sub(before)), read_at.since(began).as_millis());
        u64::try_from(events * 1000 / ms).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate from before a pause, or of a moment, would alarm or calm for nothing.
    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let rate = CountingRate::default();
        let totals = [
            (0, 100, None),
            (500, 600, None),
            (3_000, 3_100, Some(1_000)),
            (60_000, 3_100, Some(50)),
            (63_001, 3_160, Some(19)),
            (200_000, 9_000, None),
            (199_000, 9_000, None),
            (200_000, 9_500, Some(500)),
        ];
        for (at, counted, expected) in totals {
            assert_eq!(rate.add(UnixMs(at), counted), expected, "{at}");
        }
    }
}
