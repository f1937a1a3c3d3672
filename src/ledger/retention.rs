//! Lifetime of counters: when no event can belong to a period any more, its counters and records live another 48 hours.
//!
//! If history is kept, a day is archived first. Every counter expires by itself ([`super::totals::ttl_s`]), late enough
//! to cover an outage; this file only shortens that time. EXPIRE ... LT makes each step repeatable, so no script is
//! necessary.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::RedisClient;
use crate::types::keys::BUCKETS;
use crate::types::{Day, Keys, Metric, Period, StreamId, UnixMs, Window, meters};

use super::history::{HistoryArchiver, HistoryConfig};
use super::query::metrics_of;
use super::totals::{CLOSED_TTL_S, COUNTER_TTL_S, SPREAD_S};

/// Number of days before today that may have counters of an earlier process. Older days have counters only if this
/// process wrote them while it read an old stream.
pub const KEPT_DAYS_MAX: u64 = COUNTER_TTL_S / 86_400 + 3;
/// Maximum number of periods closed per call, because counting waits for it.
const CLOSED_AT_ONCE: usize = 4;
/// Maximum number of periods examined per call. After a start there are several hundred hours, most without counters.
const LOOKED_AT_ONCE: usize = 128;

/// Time until which the counters and records of a period certainly exist. Afterwards a missing counter may have expired
/// and no longer means that nothing was used.
pub fn kept_until(period: Period, late_max: Duration) -> UnixMs {
    // From its first start to its last end in any zone, a period lasts 26 h longer than its window. A counter expires
    // 14 days after its last write or 48 h after the end of the period, whichever is later.
    let unclosed_s =
        COUNTER_TTL_S.saturating_sub(period.window().longest_s().unwrap_or(0) + 26 * 3_600).max(CLOSED_TTL_S);
    let closed = last_day_end(period).after(late_max).after(Duration::from_secs(CLOSED_TTL_S));
    closed.min(period.ends_everywhere().after(Duration::from_secs(unclosed_s)))
}

/// Shortens the TTL of past periods.
#[derive(Debug)]
pub struct PeriodArchiver {
    keys: Keys,
    late_max: Duration,
    /// Periods that may have counters and are not closed yet.
    open: BTreeSet<Period>,
    /// Whether the periods of an earlier process are included.
    looked_back: bool,
    /// Archives the days.
    pub archiver: HistoryArchiver,
}

impl PeriodArchiver {
    /// An archiver for the partition with these keys. Its events may arrive `late_max` after the end of their day.
    pub fn new(keys: Keys, late_max: Duration, history: HistoryConfig) -> Self {
        let archiver = HistoryArchiver::new(keys.clone(), history);
        Self { keys, late_max, open: BTreeSet::new(), looked_back: false, archiver }
    }

    /// Call it before counters of these periods are written; `now` is server time. Past days may already be archived.
    ///
    /// # Errors
    ///
    /// As [`HistoryArchiver::before_commit`].
    pub async fn before_commit(
        &mut self,
        client: &RedisClient,
        periods: BTreeSet<Period>,
        now: UnixMs,
    ) -> RedisResult<()> {
        for period in periods {
            if let Some(day) = period.day().filter(|_| is_over(period, now, self.late_max)) {
                self.archiver.before_commit(client, day).await?;
            }
        }
        Ok(())
    }

    /// Records that counters of these periods were written.
    pub fn after_commit(&mut self, periods: BTreeSet<Period>) {
        periods.iter().filter_map(|period| period.day()).for_each(|day| self.archiver.after_commit(day));
        self.open.extend(periods.into_iter().filter(|period| period.has_end()));
    }

    /// Closes periods that can't receive events any more, if all entries up to `checkpoint` are counted and the server
    /// time is `now`. Closes a few per call and returns them; an empty result means that none is left. Repeatable.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection; the next call tries the period again.
    pub async fn close_periods(
        &mut self,
        client: &RedisClient,
        checkpoint: StreamId,
        now: UnixMs,
    ) -> RedisResult<Vec<Period>> {
        // An explicit entry id may be in the future, so the server's clock bounds the time of the checkpoint.
        let reached = UnixMs(i64::try_from(checkpoint.ms).unwrap_or(i64::MAX).min(now.0));
        if !self.looked_back {
            let recent = recent_periods(reached);
            recent.iter().filter_map(|period| period.day()).for_each(|day| self.archiver.assume_counters(day));
            self.open.extend(recent.into_iter().filter(|period| period.has_end()));
            self.looked_back = true;
        }
        let is_archived = |period: &Period| !period.day().is_some_and(|day| self.archiver.is_pending(day));
        let closable = closable(self.open.iter().copied().filter(is_archived), reached, self.late_max);
        let counted = metrics_of(client, &self.keys, &closable).await?;
        let (mut closed, mut with_counters) = (Vec::new(), 0);
        for period in closable {
            let metrics: Vec<&Metric> = counted.iter().filter(|of| of.period == period).map(|of| &of.metric).collect();
            if !metrics.is_empty() {
                if with_counters == CLOSED_AT_ONCE {
                    break;
                }
                with_counters += 1;
                self.close(client, period, &metrics).await?;
            }
            self.open.remove(&period);
            closed.push(period);
        }
        Ok(closed)
    }

    /// Whether a day remains to be archived, if everything that arrived until `reached` is counted.
    pub fn has_to_archive(&self, reached: UnixMs) -> bool {
        self.archiver.next().is_some_and(|day| is_over(day.into(), reached, self.late_max))
    }

    /// Updates the metrics of the remaining work, if everything that arrived until `reached` is counted.
    pub fn show_backlog(&self, reached: UnixMs) {
        let days = self.archiver.days_left().take_while(|day| is_over((*day).into(), reached, self.late_max)).count();
        let metrics = if days > 0 { self.archiver.metrics_left() } else { 0 };
        for (name, left) in [(meters::HISTORY_DAYS_LEFT, days), (meters::HISTORY_METRICS_LEFT, metrics)] {
            meters::of_partition(name, self.keys.partition()).set(u32::try_from(left).unwrap_or(u32::MAX));
        }
    }

    async fn close(&self, client: &RedisClient, period: Period, metrics: &[&Metric]) -> RedisResult<()> {
        for metric in metrics {
            let mut pipeline = redis::pipe();
            for bucket in 0..=u8::MAX {
                let ttl_s = CLOSED_TTL_S + SPREAD_S * u64::from(bucket);
                for key in [self.keys.usage(metric, period, bucket), self.keys.raised(metric, period, bucket)] {
                    pipeline.cmd("EXPIRE").arg(key).arg(ttl_s).arg("LT").ignore();
                }
            }
            let () = client.pipe(&pipeline).await?;
        }
        let ttl_s = CLOSED_TTL_S + SPREAD_S * u64::from(BUCKETS);
        client.query(redis::cmd("EXPIRE").arg(self.keys.metrics(period)).arg(ttl_s).arg("LT")).await
    }
}

/// The periods up to now that an earlier process may have written to.
fn recent_periods(reached: UnixMs) -> Vec<Period> {
    let Some(today) = Day::in_utc(reached) else { return Vec::new() };
    today.before(KEPT_DAYS_MAX).map_or_else(Vec::new, |first| Period::touching(first, today))
}

/// The open periods that were over in every zone at `reached`, lateness included; the earliest first.
fn closable(open: impl Iterator<Item = Period>, reached: UnixMs, late_max: Duration) -> Vec<Period> {
    let mut over: Vec<Period> = open.filter(|period| is_over(*period, reached, late_max)).collect();
    over.sort_by_key(|period| (period.ends_everywhere(), *period));
    over.truncate(LOOKED_AT_ONCE);
    over
}

/// Whether events that arrive from now on can't belong to the period.
fn is_over(period: Period, reached: UnixMs, late_max: Duration) -> bool {
    last_day_end(period).after(late_max) <= reached
}

/// The time after which no event's day is in the period. Lateness is not included: it counts from the end of the
/// event's day.
fn last_day_end(period: Period) -> UnixMs {
    match period.window() {
        // In every zone the day of an hour ends at most 26 hours after the hour.
        Window::Hour => period.ends_everywhere().plus(26 * 3_600_000),
        _ => period.ends_everywhere(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::totals::ttl_s;
    use crate::types::DaySpan;

    /// An expired counter must not read as zero usage, and an existing one not as unknown.
    #[test]
    fn a_period_is_kept_for_two_days_after_it_was_closed_or_until_its_counters_expire() {
        let hours = |text: &str, late_h: u64| {
            let period = Period::parse(text).expect("legal");
            let kept = kept_until(period, Duration::from_secs(late_h * 3600));
            kept.since(period.ends_everywhere()).as_secs() / 3600
        };
        // An hour is closed after its day is over in every zone.
        assert_eq!((hours("2026-11-21T14Z", 5), hours("2026-11-21", 5)), (26 + 5 + 48, 5 + 48));
        assert_eq!((hours("2026-W47", 5), hours("2026-11", 5)), (5 + 48, 48));
        assert_eq!(hours("2026-11-21", 1000), 14 * 24 - 50);
        assert_eq!(hours("2026-W47", 1000), 7 * 24 - 26);
    }

    /// If a day is closed too early, a late event's counter would expire during an outage.
    #[test]
    fn a_day_is_closable_only_when_it_is_over_everywhere() {
        let day = |text: &str| Period::parse(text).expect("a date");
        let ms = |text: &str| UnixMs(chrono::DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis());
        let late = Duration::from_secs(5 * 3600);
        let open = BTreeSet::from(["2026-11-19", "2026-11-20", "2026-11-21"].map(day));
        // 2026-11-20 ends at 12:00 UTC of the 21st in UTC-12, and late events may arrive until 17:00.
        assert_eq!(closable(open.iter().copied(), ms("2026-11-21T16:59:59Z"), late), [day("2026-11-19")]);
        assert_eq!(
            closable(open.iter().copied(), ms("2026-11-21T17:00:00Z"), late),
            [day("2026-11-19"), day("2026-11-20")]
        );
    }

    /// docs/guarantees.md tells operators how long an outage may last: a shorter TTL would break that promise.
    #[test]
    fn counters_survive_an_outage_of_as_long_as_is_promised() {
        let hours = |from: UnixMs, to: UnixMs| to.since(from).as_secs() / 3600;
        let (late, of_default) = (Duration::from_secs(5 * 3600), |hours: u64| hours - 5);
        let day = Day::parse("2026-11-21").expect("a date");
        // No subject of the bucket has used anything since the day began in the easternmost zone.
        let first = DaySpan::for_day("Pacific/Kiritimati".parse().expect("a zone"), day).expect("a day").start;
        let archived_from = day.ends_everywhere().after(late);
        assert!(is_over(day.into(), archived_from, late) && !is_over(day.into(), archived_from.plus(-1), late));
        let expires = |period: Period, written: UnixMs| {
            written.after(Duration::from_secs(ttl_s(period, written).expect("it has an end")))
        };
        assert_eq!(hours(archived_from, expires(day.into(), first)), of_default(12 * 24 - 2), "a day's history");
        // The newest possible event of a period that began in the westernmost zone, and the periods in which it counts.
        for (period, longest_h, promised_h) in
            [("2026-11-21", 26, 13 * 24 - 2), ("2026-W47", 7 * 24 + 2, 7 * 24 - 2), ("2026-11", 31 * 24 + 2, 48)]
        {
            let period = Period::parse(period).expect("legal");
            let begins = period.ends_everywhere().plus(-longest_h * 3_600_000);
            let newest = period.ends_everywhere().after(late);
            assert!(hours(newest, expires(period, begins)) >= of_default(promised_h), "{period}");
        }
    }

    /// If a thousand days of an old stream were examined at once, the waiting batch would become too old.
    #[test]
    fn some_days_are_looked_at_at_once_and_the_oldest_first() {
        let today = Day::parse("2026-11-21").expect("a date");
        let open: BTreeSet<Period> = (10..1000).filter_map(|back| today.before(back)).map(Period::from).collect();
        let now = today.ends_everywhere();
        let first: Vec<Period> = (872..1000).rev().filter_map(|back| today.before(back)).map(Period::from).collect();
        assert_eq!(closable(open.iter().copied(), now, Duration::ZERO), first);
    }
}
