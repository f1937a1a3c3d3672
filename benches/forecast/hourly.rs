//! The cost of the hourly pass over many subjects, and of their profiles in Redis.

use std::time::{Duration, Instant};

use quotabell::evaluation::HourlyPass;
use quotabell::ledger::usage_profiles;
use quotabell::redis_client::Partition;
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Day, Keys, Metric, UnixMs, keys};

use super::redis_server::RedisServer;

/// Subjects that use something in every hour.
const SUBJECTS: u64 = 1_000_000;
const AT_ONCE: u64 = 1_000;
const HOUR_MS: i64 = 3_600_000;

/// Measures and prints.
pub fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let server = RedisServer::start();
    let partition = Partition { client: server.client().into(), keys: Keys::new("usage") };
    let asks = "limits = { requests = \"5000/day\" }\nforecast = { windows = [\"day\"] }\nspike = 2";
    let asks: PlanConfig = toml::from_str(asks).expect("a plan");
    let plans = Plans::new(&[("free".to_owned(), asks)].into(), "free").expect("there");
    let day = Day::parse("2026-11-23").expect("a date");
    let command = redis::cmd("HSET").arg(partition.keys.checkpoint()).arg("id").arg("1-1").to_owned();
    let () = partition.client.query(&command).await.expect("written");
    println!("\n{SUBJECTS} subjects, without the pauses of the daemon:");
    for hour in [9, 10, 11] {
        count(&partition, day, 100 * hour).await;
        let before = memory(&partition).await;
        let took = pass(&partition, &plans, UnixMs(day.since_epoch() * 24 * HOUR_MS).plus(hour * HOUR_MS)).await;
        let a_subject = (memory(&partition).await - before) / SUBJECTS as f64;
        println!("pass at {hour}:00: {:.1} s, {a_subject:.0} more bytes a subject in Redis", took.as_secs_f64());
    }
}

/// Counters as commits write them.
async fn count(partition: &Partition, day: Day, units: i64) {
    let metric = Metric::default();
    for first in (0..SUBJECTS).step_by(AT_ONCE as usize) {
        let mut pipeline = redis::pipe();
        pipeline.sadd(partition.keys.metrics(day), metric.as_str()).ignore();
        for number in first..first + AT_ONCE {
            let subject = format!("user-{number:07}");
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
