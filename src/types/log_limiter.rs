//! Repeated log lines: each message once per interval, or a number of times.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval of a state that lasts: whoever looks at the log meanwhile is to find it there.
pub const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How many lines of one message an interval has that tell of one thing each: enough for every day, and a storm fills
/// no disk.
pub const LOG_LINES: u32 = 1000;

/// Of more keys than this the one that was logged first is forgotten.
const KEYS_MAX: usize = 32;

/// Decides whether a message that repeats is logged now. `K` tells messages apart that are limited independently.
#[derive(Debug)]
pub struct LogLimiter<K = ()> {
    interval: Duration,
    lines: u32,
    logged: Mutex<Vec<LastLogged<K>>>,
}

#[derive(Debug)]
struct LastLogged<K> {
    key: K,
    at: Instant,
    lines: u32,
    suppressed: u64,
}

impl<K: PartialEq> LogLimiter<K> {
    /// A limiter that lets each message through once per interval, and the first one at once.
    pub const fn new(interval: Duration) -> Self {
        Self::of_lines(interval, 1)
    }

    /// A limiter that lets each message through so many times per interval, which begins with the first.
    pub const fn of_lines(interval: Duration, lines: u32) -> Self {
        Self { interval, lines, logged: Mutex::new(Vec::new()) }
    }

    /// Whether to log the message now: `Some` with the number of times it was suppressed since it was logged last.
    pub fn admit(&self, key: K, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = logged.iter_mut().find(|last| last.key == key) else {
            if logged.len() == KEYS_MAX {
                logged.remove(0);
            }
            logged.push(LastLogged { key, at: now, lines: 1, suppressed: 0 });
            return Some(0);
        };
        if now.duration_since(last.at) >= self.interval {
            (last.at, last.lines) = (now, 0);
        }
        if last.lines == self.lines {
            last.suppressed += 1;
            return None;
        }
        last.lines += 1;
        Some(std::mem::take(&mut last.suppressed))
    }

    /// How often the message was suppressed in an interval that is over, and not told since: to be logged now.
    pub fn overdue(&self, key: &K, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let last = logged.iter_mut().find(|last| last.key == *key)?;
        if last.suppressed == 0 || now.duration_since(last.at) < self.interval {
            return None;
        }
        (last.at, last.lines) = (now, 1);
        Some(std::mem::take(&mut last.suppressed))
    }

    /// How often the message was suppressed and not told since: to be logged now, because the process ends.
    pub fn rest(&self, key: &K) -> u64 {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.iter_mut().find(|last| last.key == *key).map_or(0, |last| std::mem::take(&mut last.suppressed))
    }

    /// Forgets what was logged, because it is over: each message is let through again at once.
    pub fn clear(&self) {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of failures a second for one reason must not hide every other line, nor be lost without a word.
    #[test]
    fn each_message_is_logged_once_per_interval_and_the_rest_is_counted() {
        let (limiter, now) = (LogLimiter::new(Duration::from_secs(60)), Instant::now());
        assert_eq!((limiter.admit("a", now), limiter.admit("b", now)), (Some(0), Some(0)));
        assert_eq!(["a", "a", "b"].map(|key| limiter.admit(key, now + Duration::from_secs(59))), [None; 3]);
        let later = now + Duration::from_secs(60);
        assert_eq!((limiter.admit("a", later), limiter.admit("b", later)), (Some(2), Some(1)));
        assert_eq!(limiter.admit("a", later), None);
        assert_eq!((limiter.overdue(&"a", later), limiter.overdue(&"c", later)), (None, None));
        let end = later + Duration::from_secs(60);
        assert_eq!((limiter.overdue(&"a", end), limiter.overdue(&"a", end)), (Some(1), None), "a burst is told once");
        limiter.clear();
        assert_eq!(limiter.admit("a", later), Some(0), "an outage that is over must not hide the next one");
    }

    /// A storm of alerts wrote 200 bytes for each.
    #[test]
    fn so_many_lines_are_logged_per_interval_and_the_rest_is_counted() {
        let (limiter, now) = (LogLimiter::of_lines(LOG_INTERVAL, 2), Instant::now());
        assert_eq!([0; 4].map(|_| limiter.admit((), now)), [Some(0), Some(0), None, None]);
        assert_eq!(limiter.overdue(&(), now), None);
        let later = now + LOG_INTERVAL;
        assert_eq!([0; 3].map(|_| limiter.admit((), later)), [Some(2), Some(0), None]);
        assert_eq!(limiter.overdue(&(), later + LOG_INTERVAL), Some(1));
    }

    /// Keys that are texts of errors could fill the memory.
    #[test]
    fn few_messages_are_remembered() {
        let (limiter, now) = (LogLimiter::new(LOG_INTERVAL), Instant::now());
        assert!((0..=KEYS_MAX).all(|key| limiter.admit(key, now) == Some(0)));
        assert_eq!([0, KEYS_MAX].map(|key| limiter.admit(key, now)), [Some(0), None]);
    }
}
