//! What forecasts, ends, names and digests cost the counting, and what the hourly pass over a million subjects costs
//! the checks beside it.

use std::time::{Duration, Instant};

use quotabell::types::Keys;
use redis::Connection;

use crate::Size;
use crate::appended::{append, remove_lease, wait_for, wait_until_counted};
use crate::beside_ingestion::all_nodes;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, millis, thousands};
use crate::ingestion::TOKEN;
use crate::load::STREAM;
use crate::redis_server::RedisServer;

/// Field of the checkpoint that tells when the last pass began.
const PASSED: &str = "profiled_ms";
const ROUNDS: usize = 5;

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    drains(size)?;
    checks(size)
}

/// Settings with everything that alerts and notices can have, and without any of it.
fn settings(everything: bool) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("QUOTABELL__HTTP__TOKEN", TOKEN.to_owned()),
        (
            "QUOTABELL__PLANS__FREE__LIMITS",
            r#"{"requests": ["1000000/hour", "9000000/day", "99000000/month"]}"#.to_owned(),
        ),
    ];
    if everything {
        let contact = serde_json::json!([{
            "channel": "email", "address": "a@example.com", "digest": "1h", "quiet": "22:00-07:00", "resolved": true
        }]);
        settings.extend([
            ("QUOTABELL__PLANS__FREE__FORECAST", r#"{"windows": ["day", "month"], "probability": 0.9}"#.to_owned()),
            ("QUOTABELL__PLANS__FREE__SPIKE", "2".to_owned()),
            ("QUOTABELL__PLANS__FREE__SILENCE", "1d".to_owned()),
            ("QUOTABELL__PLANS__FREE__UPGRADE_URL", "https://example.com/?subject={{ subject }}".to_owned()),
            ("QUOTABELL__METRICS__REQUESTS", r#"{"name": "API calls", "unit": "calls"}"#.to_owned()),
            ("QUOTABELL__FALLBACK__CONTACTS", contact.to_string()),
        ]);
    }
    settings
}

/// Counting with everything and without, in turns; a pass is due in each.
fn drains(size: Size) -> anyhow::Result<()> {
    let (entries, subjects) = (size.pick(2_000_000, 20_000), size.pick(10_000, 1_000));
    let server = RedisServer::start();
    let mut connection = contenders::connect(server.port())?;
    let [mut without, mut with] = [Series::default(), Series::default()];
    for round in 0..2 * ROUNDS {
        let everything = round % 2 == 1;
        append(&mut connection, (0..entries).map(|n| (format!("busy-{:05}", n % subjects), 1)))?;
        forget_pass(&mut connection)?;
        remove_lease(&mut connection)?;
        let _daemon = Daemon::start(server.port(), &settings(everything))?;
        let began = Instant::now();
        wait_until_counted(&mut connection)?;
        let rate = entries as f64 / began.elapsed().as_secs_f64();
        if everything { with.push(rate) } else { without.push(rate) }
    }
    println!(
        "\n## Counting with forecasts, spikes, silence, names, links, ends, digests and quiet times\n\n{} events, {} subjects, \
         {ROUNDS} rounds in turns, with all of it beside without: {} (aim 0.97)",
        thousands(entries as f64),
        thousands(subjects as f64),
        with.compared_with(&without)
    );
    Ok(())
}

/// Checks without a pass and beside one.
fn checks(size: Size) -> anyhow::Result<()> {
    let subjects = size.pick(1_000_000, 20_000);
    let server = RedisServer::start();
    let mut connection = contenders::connect(server.port())?;
    append(&mut connection, (0..subjects).map(|n| (format!("user-{n:07}"), 30)))?;
    let mut daemon = Daemon::start(server.port(), &settings(true))?;
    wait_until_counted(&mut connection)?;
    wait_for(&mut connection, |connection| Ok(passed(connection)?.is_some()))?;
    let before = memory(&mut connection)?;
    let steady = Duration::from_secs(size.pick(15, 1));
    let alone = all_nodes(daemon.address, "POST /v1/check", steady)?;
    drop(daemon);
    forget_pass(&mut connection)?;
    remove_lease(&mut connection)?;
    // It passes at once.
    daemon = Daemon::start(server.port(), &settings(true))?;
    let began = Instant::now();
    let beside = all_nodes(daemon.address, "POST /v1/check", steady)?;
    anyhow::ensure!(size == Size::Quick || passed(&mut connection)?.is_none(), "the pass ended too early");
    wait_for(&mut connection, |connection| Ok(passed(connection)?.is_some()))?;
    let [alone, beside] = [alone, beside].map(|took| [0.5, 0.99].map(|share| millis(took.quantile(share))));
    println!(
        "\nChecks, 1,000 a second: p50 {} and p99 {} alone, p50 {} and p99 {} beside a pass over {} subjects \
         that ended after {:.0} s (aim: p99 below 20 ms). Redis has {:.0} MB in all.",
        alone[0],
        alone[1],
        beside[0],
        beside[1],
        thousands(subjects as f64),
        began.elapsed().as_secs_f64(),
        before / 1e6
    );
    Ok(())
}

fn forget_pass(connection: &mut Connection) -> anyhow::Result<()> {
    Ok(redis::cmd("HDEL").arg(Keys::new(STREAM).checkpoint()).arg(PASSED).query(connection)?)
}

fn passed(connection: &mut Connection) -> anyhow::Result<Option<i64>> {
    Ok(redis::cmd("HGET").arg(Keys::new(STREAM).checkpoint()).arg(PASSED).query(connection)?)
}

fn memory(connection: &mut Connection) -> anyhow::Result<f64> {
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query(connection)?;
    info.get("used_memory").ok_or_else(|| anyhow::anyhow!("no used_memory"))
}
