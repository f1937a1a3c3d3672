//! Schedules the retries of deliveries that a cap refused: one after the other, at about the rate of the cap.
//!
//! Without this, a thousand deliveries to one destination would all retry at the same moment, for one free permit. It
//! keeps one instant per destination, in memory. A restart or a second daemon that does not know it only causes more
//! requests, because the limiter alone decides. Pure: `now` is an argument.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::types::Rate;

/// Number of deliveries that ask for each permit of the cap. With only one, a delivery that asks too early would leave
/// the permit unused until the next one asks.
const REQUESTS_PER_PERMIT: u32 = 4;
/// Minimum wait: the clocks of the server and the daemon may differ by a tick.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Maximum wait of the first delivery in the queue, and the maximum additional wait of the last one. A raised cap
/// therefore takes effect within twice this time, and a longer queue is split into rounds.
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// Maximum number of destinations with their own queue; the others share one.
const DESTINATIONS_MAX: usize = 10_000;
/// Maximum jitter.
const JITTER_MAX: Duration = Duration::from_secs(1);
/// Minimum jitter.
const JITTER_MIN: Duration = Duration::from_millis(10);

/// The time of the next retries, by the key of the cap.
#[derive(Debug, Default)]
pub struct CapRetryPacer {
    /// When the last delivery of each queue asks.
    last: HashMap<String, Instant>,
}

/// A delivery that a cap refused.
#[derive(Debug, Clone, Copy)]
pub struct ThrottledDelivery<'a> {
    /// The key of the cap.
    pub key: &'a str,
    /// The cap.
    pub rate: Rate,
    /// When the limiter would admit it if no other delivery asked.
    pub retry_after: Duration,
    /// The present time.
    pub now: Instant,
}

impl CapRetryPacer {
    /// Appends the delivery to its queue and returns how long it must wait. It never asks before it can be admitted,
    /// unless that is more than five minutes away, and it waits at most ten minutes.
    pub fn wait(&mut self, throttled: ThrottledDelivery<'_>) -> Duration {
        let ThrottledDelivery { key, rate, retry_after, now } = throttled;
        let first = now + retry_after.clamp(WAIT_MIN, WAIT_MAX);
        let behind = self.last.get(key).map_or(first, |last| first.max(*last + step(rate)));
        let next = if behind > first + WAIT_MAX { first } else { behind };
        self.remember(key, next, now);
        next - now
    }

    fn remember(&mut self, key: &str, at: Instant, now: Instant) {
        if let Some(last) = self.last.get_mut(key) {
            *last = at;
            return;
        }
        if self.last.len() >= DESTINATIONS_MAX {
            self.last.retain(|_, last| *last > now);
        }
        if self.last.len() < DESTINATIONS_MAX {
            self.last.insert(key.to_owned(), at);
        }
    }
}

/// The time between two deliveries of a queue.
fn step(rate: Rate) -> Duration {
    let asking = u128::from(rate.limit().get()) * u128::from(REQUESTS_PER_PERMIT);
    Duration::from_nanos(u64::try_from(rate.window().as_nanos() / asking).unwrap_or(u64::MAX))
}

/// Maximum random addition to a wait, so that the queues of two daemons do not ask at the same time.
pub fn jitter_max(rate: Rate) -> Duration {
    step(rate).clamp(JITTER_MIN, JITTER_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().expect("a rate")
    }

    /// A sliding window in memory: the times of admitted calls.
    struct Window {
        rate: Rate,
        admitted: VecDeque<Instant>,
    }

    impl Window {
        /// Asks for a permit: returns the wait, or `None` if it is admitted now.
        fn ask(&mut self, now: Instant) -> Option<Duration> {
            while self.admitted.front().is_some_and(|at| *at + self.rate.window() <= now) {
                self.admitted.pop_front();
            }
            if (self.admitted.len() as u64) < self.rate.limit().get() {
                self.admitted.push_back(now);
                return None;
            }
            self.admitted.front().map(|at| *at + self.rate.window() - now)
        }
    }

    struct Worked {
        asked: usize,
        took: Duration,
    }

    /// Processes a number of deliveries that are due at once, until the last one is admitted.
    fn work_off(rate: Rate, crowd: usize) -> Worked {
        let begin = Instant::now();
        let (mut window, mut pacer) = (Window { rate, admitted: VecDeque::new() }, CapRetryPacer::default());
        let mut due: BTreeMap<(Instant, usize), ()> = (0..crowd).map(|id| ((begin, id), ())).collect();
        let mut worked = Worked { asked: 0, took: Duration::ZERO };
        while let Some(((now, id), ())) = due.pop_first() {
            worked.asked += 1;
            match window.ask(now) {
                None => worked.took = now - begin,
                Some(retry_after) => {
                    let wait = pacer.wait(ThrottledDelivery { key: "a", rate, retry_after, now });
                    // Some ask a little later than scheduled, each by another amount.
                    let late = jitter_max(rate) * (id as u32 * 7 % 11) / 11;
                    due.insert((now + wait + late, id), ());
                }
            }
        }
        worked
    }

    /// A thousand deliveries to one destination must not keep the dispatcher busy with requests, and must not leave
    /// permits unused.
    #[test]
    fn a_crowd_asks_a_few_times_each_and_uses_all_that_the_cap_allows() {
        for (text, crowd) in [("30/1m", 1000), ("2/10s", 100), ("1/1m", 50), ("1000/1s", 5000), ("5/1h", 100)] {
            let rate = rate(text);
            let Worked { asked, took } = work_off(rate, crowd);
            let windows = crowd as f64 / rate.limit().get() as f64 - 1.0;
            let slower = took.as_secs_f64() / (windows * rate.window().as_secs_f64());
            assert!(slower < 1.35, "{text}: {slower} times as long as it must");
            // A queue holds the requests of five minutes; longer ones ask every five minutes.
            let rounds = took.as_secs_f64() / WAIT_MAX.as_secs_f64();
            let asked = asked as f64 / crowd as f64;
            assert!(asked < 8.0 + rounds, "{text}: asked {asked} times each");
        }
    }

    /// Subjects choose destinations, so the memory for their queues must be bounded.
    #[test]
    fn rows_are_bounded_and_those_that_are_past_are_forgotten() {
        let mut pacer = CapRetryPacer::default();
        let begin = Instant::now();
        let mut refuse = |key: &str, now| {
            let retry_after = Duration::from_secs(1);
            pacer.wait(ThrottledDelivery { key, rate: rate("1/1m"), retry_after, now });
            pacer.last.len()
        };
        for n in 0..DESTINATIONS_MAX {
            refuse(&n.to_string(), begin);
        }
        assert_eq!(refuse("one more", begin), DESTINATIONS_MAX);
        assert_eq!(refuse("later", begin + Duration::from_secs(2)), 1);
    }

    proptest! {
        /// For every sequence of calls, no wait is shorter than the limiter demands (up to five minutes) or longer than
        /// ten minutes.
        #[test]
        fn waits_are_bounded(limit in 1_u64..100_000, window_ms in 1_u64..100_000_000, asks in proptest::collection::vec((0_u64..1_000_000, 0_u64..1_000_000), 1..200)) {
            let rate: Rate = format!("{limit}/{window_ms}ms").parse().expect("a rate");
            let (mut pacer, mut now) = (CapRetryPacer::default(), Instant::now());
            for (later, retry_after) in asks {
                now += Duration::from_millis(later);
                let retry_after = Duration::from_millis(retry_after);
                let wait = pacer.wait(ThrottledDelivery { key: "a", rate, retry_after, now });
                prop_assert!(wait >= retry_after.clamp(WAIT_MIN, WAIT_MAX) && wait <= 2 * WAIT_MAX, "{wait:?}");
            }
        }
    }
}
