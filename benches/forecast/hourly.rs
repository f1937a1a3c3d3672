//! The cost of the hourly pass over many subjects, and of their profiles in Redis.

use std::time::{Duration, Instant};

use quotabell::evaluation::HourlyPass;
use quotabell::forecast::{DayCount, UsageProfile};
use quotabell::ledger::usage_profiles;
use quotabell::redis_client::Partition;
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Day, Keys, Metric, Subject, UnixMs, keys};

use super::redis_server::RedisServer;
use super::series::{self, Series};

/// Subjects that use something in every hour.
const SUBJECTS: u64 = 1_000_000;
const AT_ONCE: u64 = 1_000;
const HOUR_MS: i64 = 3_600_000;
/// Days of history of a subject with a past.
const PAST_DAYS: usize = 28;

/// Measures and prints.
pub fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(false));
    runtime.block_on(measure(true));
}

async fn measure(has_past: bool) {
    let server = RedisServer::start();
    let partition = Partition { client: server.client().into(), keys: Keys::new("usage") };
    let asks = "limits = { requests = \"5000/day\" }\nforecast = { windows = [\"day\"] }\nspike = 2\nsilence = \"3d\"";
    let asks: PlanConfig = toml::from_str(asks).expect("a plan");
    let plans = Plans::new(&[("free".to_owned(), asks)].into(), "free").expect("there");
    let day = Day::parse("2026-11-23").expect("a date");
    let command = redis::cmd("HSET").arg(partition.keys.checkpoint()).arg("id").arg("1-1").to_owned();
    let () = partition.client.query(&command).await.expect("written");
    let past = if has_past { "with a past" } else { "that are new" };
    println!("\n{SUBJECTS} subjects {past}, without the pauses of the daemon:");
    let customers = series::load("synth");
    let mut profiles = 0.0;
    if has_past {
        let before = memory(&partition).await;
        store_past(&partition, day, &customers).await;
        profiles += memory(&partition).await - before;
        println!("at midnight, profiles take {:.0} MB of Redis", profiles / 1e6);
        store_history(&partition, day).await;
    }
    for hour in 1..24 {
        count(&partition, day, hour, &customers).await;
        let before = memory(&partition).await;
        let took = pass(&partition, &plans, UnixMs(day.since_epoch() * 24 * HOUR_MS).plus(hour * HOUR_MS)).await;
        profiles += memory(&partition).await - before;
        println!("pass at {hour}:00: {:.1} s, profiles take {:.0} MB of Redis", took.as_secs_f64(), profiles / 1e6);
    }
}

/// Profiles of the invented customers.
async fn store_past(partition: &Partition, day: Day, customers: &[Series]) {
    let today = i32::try_from(day.since_epoch()).expect("a day");
    let learned: Vec<UsageProfile> = customers.iter().map(|of| learned(of, today)).collect();
    let mark = usage_profiles::mark(partition).await.expect("read");
    let mut buckets: Vec<Vec<u64>> = vec![Vec::new(); 256];
    (0..SUBJECTS).for_each(|number| buckets[usize::from(keys::bucket(&name(number)))].push(number));
    for (bucket, numbers) in (0..=u8::MAX).zip(buckets) {
        let subjects: Vec<Subject> = numbers.iter().map(|number| name(*number).parse().expect("legal")).collect();
        let of = |number: &u64| &learned[usize::try_from(*number).expect("small") % learned.len()];
        let profiles: Vec<(&Subject, &UsageProfile)> = subjects.iter().zip(numbers.iter().map(of)).collect();
        let _ = usage_profiles::write(partition, mark, &Metric::default(), bucket, &profiles).await.expect("written");
    }
}

/// What passes have learned until today from the last days of a series.
fn learned(series: &Series, today: i32) -> UsageProfile {
    let days = &series.days[series.days.len().saturating_sub(PAST_DAYS)..];
    let first = today - i32::try_from(days.len()).expect("few days");
    let mut profile = UsageProfile::beginning(first - 1);
    for (day, of) in (first..today).zip(days) {
        for (hour, units) in (0_u8..).zip(of.cumulated()).skip(1) {
            profile.observe(DayCount { day, since: f64::from(hour - 1), hour: f64::from(hour), units });
        }
    }
    profile
}

/// Days as the archive stores them.
async fn store_history(partition: &Partition, day: Day) {
    let metric = Metric::default();
    let () = partition
        .client
        .query(redis::cmd("ZADD").arg(partition.keys.history_metrics()).arg(0).arg(metric.as_str()))
        .await
        .expect("written");
    let mut days = Vec::new();
    rmp::encode::write_array_len(&mut days, PAST_DAYS as u32 + 1).expect("memory");
    rmp::encode::write_uint(&mut days, day.since_epoch().cast_unsigned() - 1).expect("memory");
    (0..PAST_DAYS as u64).for_each(|units| {
        rmp::encode::write_uint(&mut days, 2_000 + 100 * units).expect("memory");
    });
    for first in (0..SUBJECTS).step_by(AT_ONCE as usize) {
        let mut pipeline = redis::pipe();
        for subject in (first..first + AT_ONCE).map(name) {
            let key = partition.keys.history(&metric, keys::bucket(&subject));
            pipeline.hset(key, subject, &days[..]).ignore();
        }
        let () = partition.client.pipe(&pipeline).await.expect("written");
    }
}

/// 16 bytes.
fn name(number: u64) -> String {
    format!("customer-{number:07}")
}

/// Counters as commits write them until this hour of a day of the invented customers, on which each used something.
async fn count(partition: &Partition, day: Day, hour: i64, customers: &[Series]) {
    let hour = usize::try_from(hour).expect("small");
    let used: Vec<u64> =
        customers.iter().map(|of| hour as u64 + of.days[of.days.len() / 2].cumulated()[hour]).collect();
    let metric = Metric::default();
    for first in (0..SUBJECTS).step_by(AT_ONCE as usize) {
        let mut pipeline = redis::pipe();
        pipeline.sadd(partition.keys.metrics(day), metric.as_str()).ignore();
        for number in first..first + AT_ONCE {
            let (subject, units) = (name(number), used[number as usize % used.len()]);
            pipeline.hset(partition.keys.usage(&metric, day, keys::bucket(&subject)), subject, units).ignore();
        }
        let () = partition.client.pipe(&pipeline).await.expect("written");
    }
}

async fn pass(partition: &Partition, plans: &Plans, now: UnixMs) -> Duration {
    let begun = Instant::now();
    let mark = usage_profiles::mark(partition).await.expect("read");
    let mut pass = HourlyPass::begin(partition, plans, now, mark).await.expect("begun");
    while pass.next().await.expect("redis answers").is_some() {}
    pass.end(mark.erasure_epoch).await.expect("ended");
    begun.elapsed()
}

async fn memory(partition: &Partition) -> f64 {
    let info: String = partition.client.query(redis::cmd("INFO").arg("memory")).await.expect("redis answers");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a number");
    used.parse().expect("a number")
}
