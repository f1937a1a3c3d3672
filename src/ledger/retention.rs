//! How long the books are kept: once no event can belong to a day any more, its counters and records live 48 hours.
//!
//! Every counter expires by itself 14 days after its last write, which covers an outage; this only shortens that. EXPIRE ... LT
//! makes each step safe to repeat, so no script is needed.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::RedisResult;

use crate::types::keys::BUCKETS;
use crate::types::{Day, Keys, Metric, StreamId, UnixMs};
use crate::wire::RedisClient;

use super::commit_settings::COUNTER_TTL_S;

/// How long a closed day's counters and records are kept.
const CLOSED_TTL_S: u64 = 48 * 3_600;
/// Buckets expire this long after one another, so that the server frees them one by one.
const SPREAD_S: u64 = 10;
/// No older day can still have counters, unless this process wrote them: an old stream is read faster than a day a second.
pub const KEPT_DAYS_MAX: u64 = COUNTER_TTL_S / 86_400 + 3;
/// So many days are closed at once, since counting waits for it.
const AT_ONCE: usize = 4;

/// Until when the counters and records of `day` are certainly kept. Afterwards a counter that is absent may have expired, and no
/// longer means that nothing was used.
#[must_use]
pub fn kept_until(day: Day, late_max: Duration) -> UnixMs {
    // A day lasts 50 h from its first beginning to its last end, and what was written when it began expires 14 days later.
    let unclosed = Duration::from_secs(COUNTER_TTL_S - 50 * 3_600);
    let after = late_max.saturating_add(Duration::from_secs(CLOSED_TTL_S)).min(unclosed);
    day.ends_everywhere().plus(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
}

/// Shortens the life of days that are over.
#[derive(Debug)]
pub struct Retention {
    keys: Keys,
    late_max: Duration,
    /// Days that may have counters and were not closed yet.
    open: BTreeSet<Day>,
    /// Whether the days of an earlier process are among them.
    looked_back: bool,
}

impl Retention {
    /// Retention for the partition with these keys, whose events may arrive `late_max` after their day's end.
    #[must_use]
    pub const fn new(keys: Keys, late_max: Duration) -> Self {
        Self { keys, late_max, open: BTreeSet::new(), looked_back: false }
    }

    /// Counters of these days were written.
    pub fn written(&mut self, days: impl Iterator<Item = Day>) {
        self.open.extend(days);
    }

    /// Closes days that can receive no event any more, given that all entries up to `checkpoint` are counted and that it is `now` on
    /// the server: the oldest first, a few at a time. Says which days it closed; after none there is none left. Repeatable.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; the day is tried again at the next call.
    pub async fn close_days(
        &mut self,
        client: &RedisClient,
        checkpoint: StreamId,
        now: UnixMs,
    ) -> RedisResult<Vec<Day>> {
        // An explicit entry id may lie in the future; the server's clock bounds what "the checkpoint's time" can mean.
        let reached = UnixMs(i64::try_from(checkpoint.ms).unwrap_or(i64::MAX).min(now.0));
        if !self.looked_back {
            self.open.extend(recent_days(reached));
            self.looked_back = true;
        }
        let closable = closable(&self.open, reached, self.late_max);
        for day in &closable {
            self.close(client, *day).await?;
            self.open.remove(day);
        }
        Ok(closable)
    }

    async fn close(&self, client: &RedisClient, day: Day) -> RedisResult<()> {
        let metrics: Vec<String> = client.query(redis::cmd("SMEMBERS").arg(self.keys.metrics(day))).await?;
        for metric in metrics.iter().filter_map(|metric| Metric::parse(metric.as_bytes()).ok()) {
            let mut pipeline = redis::pipe();
            for bucket in 0..=u8::MAX {
                let ttl_s = CLOSED_TTL_S + SPREAD_S * u64::from(bucket);
                for key in [self.keys.usage(&metric, day, bucket), self.keys.raised(&metric, day, bucket)] {
                    pipeline.cmd("EXPIRE").arg(key).arg(ttl_s).arg("LT").ignore();
                }
            }
            let () = client.pipe(&pipeline).await?;
        }
        let ttl_s = CLOSED_TTL_S + SPREAD_S * u64::from(BUCKETS);
        client.query(redis::cmd("EXPIRE").arg(self.keys.metrics(day)).arg(ttl_s).arg("LT")).await
    }
}

/// The days up to now that a process before this one may have written to.
fn recent_days(reached: UnixMs) -> BTreeSet<Day> {
    let today = Day::in_utc(reached);
    (0..=KEPT_DAYS_MAX).filter_map(|back| today?.before(back)).collect()
}

/// The first of the open days that were over everywhere, lateness included, when it was `reached`. Ascending.
fn closable(open: &BTreeSet<Day>, reached: UnixMs, late_max: Duration) -> Vec<Day> {
    let late_ms = i64::try_from(late_max.as_millis()).unwrap_or(i64::MAX);
    open.iter().copied().take_while(|day| day.ends_everywhere().plus(late_ms) <= reached).take(AT_ONCE).collect()
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
        let open = BTreeSet::from(["2026-11-19", "2026-11-20", "2026-11-21"].map(day));
        // 2026-11-20 ends at 12:00 UTC of the 21st in UTC-12, and late events may come until 17:00.
        assert_eq!(closable(&open, ms("2026-11-21T16:59:59Z"), late), [day("2026-11-19")]);
        assert_eq!(closable(&open, ms("2026-11-21T17:00:00Z"), late), [day("2026-11-19"), day("2026-11-20")]);
    }

    /// A hundred days of an old stream closed in one go would let a batch that waits meanwhile grow too old.
    #[test]
    fn days_are_closed_a_few_at_a_time_and_the_oldest_first() {
        let today = Day::parse("2026-11-21").expect("a date");
        let open: BTreeSet<Day> = (10..100).filter_map(|back| today.before(back)).collect();
        let now = today.ends_everywhere();
        let first: Vec<Day> = (96..100).rev().filter_map(|back| today.before(back)).collect();
        assert_eq!(closable(&open, now, Duration::ZERO), first);
    }
}
