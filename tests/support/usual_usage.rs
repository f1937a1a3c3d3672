//! What is usual for a subject, as hourly passes would have learned it, and a zone in which no day begins meanwhile.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use quotabell::forecast::{DayCount, UsageProfile};
use quotabell::ledger::history::{HistoryArchiver, HistoryConfig};
use quotabell::redis_client::Partition;
use quotabell::types::{Day, Metric, Subject, UnixMs, keys};
use quotabell::zones::Zone;

const HOUR_MS: i64 = 3_600_000;
/// Units of each hour of a usual day.
const PER_HOUR: u64 = 100;
/// Number of days that are learned.
const DAYS: i32 = 8;

/// A zone in which it is between 12:00 and 13:00: no day begins during the test.
pub fn zone_at_noon(now: UnixMs) -> Zone {
    let hour = now.0.div_euclid(HOUR_MS).rem_euclid(24);
    format!("Etc/GMT{:+}", hour - 12).parse().expect("a zone")
}

/// The profile of a subject that used 100 units in each hour until the end of this day.
pub fn usual_until(last: Day) -> UsageProfile {
    let last = i32::try_from(last.since_epoch()).expect("a day of our time");
    let mut profile = UsageProfile::beginning(last - DAYS);
    for day in last - DAYS + 1..=last {
        for hour in 1..=24_u8 {
            let (since, hour) = (f64::from(hour - 1), f64::from(hour));
            profile.observe(DayCount { day, since, hour, units: PER_HOUR * hour as u64 });
        }
    }
    profile
}

/// Stores usual usage of these subjects and days in the history, as if its counters had expired.
pub async fn store_past(Partition { client, keys }: &Partition, subjects: &[Subject], days: &[Day], now: UnixMs) {
    let (metric, mut pipeline) = (Metric::default(), redis::pipe());
    let mut archiver = HistoryArchiver::new(keys.clone(), HistoryConfig { days: 35, alerts_days: 400 });
    for day in days {
        pipeline.cmd("SADD").arg(keys.metrics(*day)).arg(metric.as_str()).ignore();
        for subject in subjects {
            let counter = keys.usage(&metric, *day, keys::bucket(subject.as_str()));
            pipeline.cmd("HSET").arg(counter).arg(subject.as_str()).arg(24 * PER_HOUR).ignore();
        }
        archiver.assume_counters(*day);
    }
    let () = client.pipe(&pipeline).await.expect("written");
    while archiver.next().is_some() {
        archiver.archive(client, now).await.expect("redis answers");
    }
    let mut pipeline = redis::pipe();
    for day in days {
        pipeline.cmd("SREM").arg(keys.metrics(*day)).arg(metric.as_str()).ignore();
        for subject in subjects {
            let counter = keys.usage(&metric, *day, keys::bucket(subject.as_str()));
            pipeline.cmd("HDEL").arg(counter).arg(subject.as_str()).ignore();
        }
    }
    let () = client.pipe(&pipeline).await.expect("removed");
}
