//! When deliveries that a cap refused ask again: one after the other, at about the rate of the cap.
//!
//! Without this a thousand deliveries to one destination would all ask again at the same moment, for one free permit.
//! Holds one instant a destination, in memory: what is forgotten at a restart, or not known to a second daemon, costs
//! requests and no promise, since only the limiter decides. Pure: `now` is an argument.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::types::Rate;

/// How many deliveries ask for each permit of the cap. With one alone, a delivery that asks an instant too early would
/// leave the permit unused until the next one asks.
const REQUESTS_PER_PERMIT: u32 = 4;
/// The shortest wait: a server's clock and ours may differ by a tick.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// The longest wait of the first in the queue, and how much longer the last one waits. So a cap that was raised takes
/// effect within twice this, and a queue that is longer asks in several rounds at once.
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// The most destinations with a queue of their own; those beyond it ask together.
const DESTINATIONS_MAX: usize = 10_000;
/// The longest jitter.
const JITTER_MAX: Duration = Duration::from_secs(1);
/// The shortest jitter.
const JITTER_MIN: Duration = Duration::from_millis(10);

/// When throttled deliveries ask again, by the key of their cap.
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
    /// When the limiter would admit it if nobody else asked.
    pub retry_after: Duration,
    /// The time.
    pub now: Instant,
}

impl CapRetryPacer {
    /// Puts the delivery at the end of its queue: how long until it asks again. Never before it can be admitted, unless
    /// that is more than five minutes away; never after more than ten.
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

/// From one delivery of a queue to the next.
fn step(rate: Rate) -> Duration {
    let asking = u128::from(rate.limit().get()) * u128::from(REQUESTS_PER_PERMIT);
    Duration::from_nanos(u64::try_from(rate.window().as_nanos() / asking).unwrap_or(u64::MAX))
}

/// The most that is added to a wait by chance, so that the queues of two daemons do not ask in step.
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

    /// A sliding window in memory: calls that were admitted.
    struct Window {
        rate: Rate,
        admitted: VecDeque<Instant>,
    }

    impl Window {
        /// When it would admit one more, or `None` where it does now.
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

    /// A crowd that is due at once, until the last one has gone.
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
                    // Some come a little later than they were to, each by another bit.
                    let late = jitter_max(rate) * (id as u32 * 7 % 11) / 11;
                    due.insert((now + wait + late, id), ());
                }
            }
        }
        worked
    }

    /// A thousand deliveries at one destination must neither keep the dispatcher busy with asking nor leave places
    /// unused.
    #[test]
    fn a_crowd_asks_a_few_times_each_and_uses_all_that_the_cap_allows() {
        for (text, crowd) in [("30/1m", 1000), ("2/10s", 100), ("1/1m", 50), ("1000/1s", 5000), ("5/1h", 100)] {
            let rate = rate(text);
            let Worked { asked, took } = work_off(rate, crowd);
            let windows = crowd as f64 / rate.limit().get() as f64 - 1.0;
            let slower = took.as_secs_f64() / (windows * rate.window().as_secs_f64());
            assert!(slower < 1.35, "{text}: {slower} times as long as it must");
            // Five minutes of a row hold what asks in them; a longer one comes back every five minutes.
            let rounds = took.as_secs_f64() / WAIT_MAX.as_secs_f64();
            let asked = asked as f64 / crowd as f64;
            assert!(asked < 8.0 + rounds, "{text}: asked {asked} times each");
        }
    }

    /// Subjects choose destinations: the memory for their rows is bounded.
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
        /// Whatever is asked when, no wait is shorter than the limiter's word (up to five minutes) nor longer than ten
        /// minutes.
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
