//! How long the books are kept: once no event can belong to a day any more, its counters and records live 48 hours.
//!
//! Every counter expires by itself 14 days after its last write, which covers an outage; this only shortens that. EXPIRE ... LT
//! makes each step safe to repeat, so no script is needed.

use std::time::Duration;

use redis::RedisResult;

use crate::types::keys::BUCKETS;
use crate::types::{Day, Keys, Metric, StreamId, UnixMs};
use crate::wire::Link;

use super::commit::COUNTER_TTL_S;

/// How long a closed day's counters and records are kept.
const CLOSED_TTL_S: u64 = 48 * 3_600;
/// Buckets expire this long after one another, so that the server frees them one by one.
const SPREAD_S: u64 = 10;
/// No older day can still have counters.
const DAYS_BACK: u64 = COUNTER_TTL_S / 86_400 + 3;

/// Shortens the life of days that are over.
#[derive(Debug)]
pub struct Retention {
    keys: Keys,
    late_max: Duration,
    closed: Option<Day>,
}

impl Retention {
    /// Retention for the partition with these keys, whose events may arrive `late_max` after their day's end.
    #[must_use]
    pub const fn new(keys: Keys, late_max: Duration) -> Self {
        Self { keys, late_max, closed: None }
    }

    /// Closes every day that can receive no event any more, given that all entries up to `checkpoint` are counted and that it is
    /// `now` on the server. Says which days it closed. Repeatable.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; the day is tried again at the next call.
    pub async fn close_days(&mut self, link: &Link, checkpoint: StreamId, now: UnixMs) -> RedisResult<Vec<Day>> {
        // An explicit entry id may lie in the future; the server's clock bounds what "the checkpoint's time" can mean.
        let reached = UnixMs(i64::try_from(checkpoint.ms).unwrap_or(i64::MAX).min(now.0));
        let mut closed = Vec::new();
        for day in closable_days(self.closed, reached, self.late_max) {
            self.close(link, day).await?;
            self.closed = Some(day);
            closed.push(day);
        }
        Ok(closed)
    }

    async fn close(&self, link: &Link, day: Day) -> RedisResult<()> {
        let metrics: Vec<String> = link.query(redis::cmd("SMEMBERS").arg(self.keys.metrics(day))).await?;
        for metric in metrics.iter().filter_map(|metric| Metric::parse(metric.as_bytes()).ok()) {
            let mut pipeline = redis::pipe();
            for bucket in 0..=u8::MAX {
                let ttl_s = CLOSED_TTL_S + SPREAD_S * u64::from(bucket);
                for key in [self.keys.usage(&metric, day, bucket), self.keys.raised(&metric, day, bucket)] {
                    pipeline.cmd("EXPIRE").arg(key).arg(ttl_s).arg("LT").ignore();
                }
            }
            let () = link.pipe(&pipeline).await?;
        }
        let ttl_s = CLOSED_TTL_S + SPREAD_S * u64::from(BUCKETS);
        link.query(redis::cmd("EXPIRE").arg(self.keys.metrics(day)).arg(ttl_s).arg("LT")).await
    }
}

/// The days after `closed` that were over everywhere, lateness included, when it was `reached`. Ascending.
fn closable_days(closed: Option<Day>, reached: UnixMs, late_max: Duration) -> Vec<Day> {
    let late_ms = i64::try_from(late_max.as_millis()).unwrap_or(i64::MAX);
    let Some(today) = Day::in_utc(reached) else { return Vec::new() };
    let mut days: Vec<Day> = (0..=DAYS_BACK)
        .filter_map(|back| today.before(back))
        .filter(|day| closed.is_none_or(|closed| *day > closed))
        .filter(|day| day.ends_everywhere().plus(late_ms) <= reached)
        .collect();
    days.reverse();
    days
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closing a day too early would let a late event's counter expire before the outage it waits out.
    #[test]
    fn a_day_is_closable_only_when_it_is_over_everywhere() {
        let day = |text: &str| Day::parse(text).expect("a date");
        let ms = |text: &str| UnixMs(chrono::DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis());
        let late = Duration::from_secs(5 * 3600);
        let newest = |at: &str| closable_days(None, ms(at), late).last().copied();
        // 2026-11-20 ends at 12:00 UTC of the 21st in UTC-12, and late events may come until 17:00.
        assert_eq!(newest("2026-11-21T16:59:59Z"), Some(day("2026-11-19")));
        assert_eq!(newest("2026-11-21T17:00:00Z"), Some(day("2026-11-20")));
        assert_eq!(closable_days(Some(day("2026-11-20")), ms("2026-11-21T17:00:00Z"), late), []);
    }
}
