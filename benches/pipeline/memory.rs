//! The cost of many subjects: the daemon's peak memory with its default cache and with a small one, and Redis' memory
//! per subject.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use quotabell::types::keys::bucket;
use quotabell::types::{Keys, Metric};
use redis::Connection;

use crate::Size;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::mebibytes;
use crate::load::STREAM;
use crate::redis_server::RedisServer;

/// Entries per pipeline.
const AT_ONCE: usize = 1000;
/// Number of passes through all subjects.
const PASSES: usize = 2;
/// The plan's limits, which no subject reaches.
const DAY: &str = r#"{"requests":5000}"#;
const THREE_WINDOWS: &str = r#"{"requests":["600/hour","5000/day","100000/month"]}"#;
/// The default of `history.days`.
const HISTORY_DAYS: u32 = 90;
/// Maximum time of counting.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The state after a drain.
struct Left {
    peak: f64,
    redis: f64,
    took: Duration,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let subjects = size.pick(1_000_000, 20_000);
    let default = quotabell::config::Config::defaults()?.subjects.cache_entries;
    println!("\n## Memory with {subjects} subjects, {PASSES} events each\n");
    println!("A daemon with nothing to do holds {}.\n", mebibytes(idle()?));
    println!("| subjects.cache_entries | limits | daemon peak (VmHWM) | Redis, bytes a subject | drained in |");
    println!("|---|---|---|---|---|");
    for (cache_entries, limits) in [(default, DAY), (default / 10, DAY), (subjects, DAY), (default, THREE_WINDOWS)] {
        let Left { peak, redis, took } = drain(subjects, cache_entries, limits)?;
        let name = if cache_entries == default { format!("{default} (default)") } else { cache_entries.to_string() };
        let windows = if limits == DAY { "day" } else { "hour, day, month" };
        let a_subject = redis / subjects as f64;
        println!("| {name} | {windows} | {} | {a_subject:.0} | {:.1} s |", mebibytes(peak), took.as_secs_f64());
    }
    println!(
        "\nThe history of {HISTORY_DAYS} days costs Redis {:.0} bytes a subject and metric.",
        history(subjects / 10)?
    );
    Ok(())
}

/// Redis' memory for the history of a subject: hashes as stream maintenance fills them, with up to 65,535 units per
/// day.
fn history(subjects: usize) -> anyhow::Result<f64> {
    let server = RedisServer::start();
    let mut connection = contenders::connect(server.port())?;
    let empty = used_memory(&mut connection)?;
    let (keys, metric) = (Keys::new(STREAM), Metric::default());
    for first in (0..subjects).step_by(AT_ONCE) {
        let mut pipeline = redis::pipe();
        for n in first..(first + AT_ONCE).min(subjects) {
            let subject = format!("user-{n:07}");
            let mut days = Vec::new();
            rmp::encode::write_array_len(&mut days, HISTORY_DAYS + 1)?;
            // The newest day as days since 1970-01-01, then the units of each day.
            rmp::encode::write_uint(&mut days, 20_778)?;
            for day in 0..HISTORY_DAYS {
                let units = (n as u64 * 7_919 + u64::from(day) * 104_729) % 65_536;
                rmp::encode::write_uint(&mut days, units)?;
            }
            pipeline.hset(keys.history(&metric, bucket(&subject)), subject, days).ignore();
        }
        let () = pipeline.query(&mut connection)?;
    }
    Ok((used_memory(&mut connection)? - empty) / subjects as f64)
}

/// The peak memory of an idle daemon.
fn idle() -> anyhow::Result<f64> {
    let server = RedisServer::start();
    Daemon::start(server.port(), &[])?.peak_bytes()
}

fn drain(subjects: usize, cache_entries: usize, limits: &str) -> anyhow::Result<Left> {
    let server = RedisServer::start();
    let mut connection = contenders::connect(server.port())?;
    let empty = used_memory(&mut connection)?;
    for _ in 0..PASSES {
        for first in (0..subjects).step_by(AT_ONCE) {
            let mut pipeline = redis::pipe();
            for n in first..(first + AT_ONCE).min(subjects) {
                pipeline.cmd("XADD").arg(STREAM).arg("*").arg("subject").arg(format!("user-{n:07}")).ignore();
            }
            let () = pipeline.query(&mut connection)?;
        }
    }
    let last: Vec<(String, Vec<String>)> =
        redis::cmd("XREVRANGE").arg(STREAM).arg("+").arg("-").arg("COUNT").arg(1).query(&mut connection)?;
    let (last, _) = last.first().context("the stream is empty")?;
    let began = Instant::now();
    let settings = [
        ("QUOTABELL__SUBJECTS__CACHE_ENTRIES", cache_entries.to_string()),
        ("QUOTABELL__PLANS__FREE__LIMITS", limits.to_owned()),
    ];
    let daemon = Daemon::start(server.port(), &settings)?;
    let checkpoint = Keys::new(STREAM).checkpoint();
    loop {
        let at: Option<String> = redis::cmd("HGET").arg(&checkpoint).arg("id").query(&mut connection)?;
        if at.as_deref() == Some(last) {
            break;
        }
        anyhow::ensure!(began.elapsed() < WAIT_MAX, "not drained after {WAIT_MAX:?}: the checkpoint is {at:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    let counted: usize = redis::cmd("HGET").arg(Keys::new(STREAM).totals()).arg("counted").query(&mut connection)?;
    anyhow::ensure!(counted == PASSES * subjects, "counted {counted} events instead of {}", PASSES * subjects);
    Ok(Left { peak: daemon.peak_bytes()?, redis: used_memory(&mut connection)? - empty, took })
}

fn used_memory(connection: &mut Connection) -> anyhow::Result<f64> {
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query(connection)?;
    info.get("used_memory").context("INFO has no used_memory")
}
