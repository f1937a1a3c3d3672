//! A backlog of ten million events: the speed and the memory of a daemon that works it off.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use quotabell::types::Keys;

use crate::Size;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, mebibytes, thousands};
use crate::load::{self, Load, STREAM, Shape};
use crate::redis_server::RedisServer;

/// Interval between two reads of the daemon's memory.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum time to work it off.
const WAIT_MAX: Duration = Duration::from_secs(900);

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut connection = contenders::connect(server.port())?;
    let load = Load::new(size.pick(10_000_000, 30_000), Shape::of_subjects(size.pick(10_000, 1_000)))?;
    load.write_limits(&mut connection)?;
    load.append(&mut connection)?;
    load::reset(&mut connection)?;
    println!("\n## A backlog of {} entries over {} subjects\n", load.len(), load.subjects.len());
    let checkpoint = Keys::new(STREAM).checkpoint();
    let mut read = || -> anyhow::Result<usize> {
        let read: Option<usize> = redis::cmd("HGET").arg(&checkpoint).arg("entries_read").query(&mut connection)?;
        Ok(read.unwrap_or(0))
    };
    let daemon = Daemon::start(server.port(), &[])?;
    // It began to read before it was ready.
    let (read_before, began) = (read()?, Instant::now());
    // The memory in each tenth of the backlog.
    let mut held = vec![Series::default(); 10];
    loop {
        let read = read()?;
        held[(read * 10 / load.len()).min(9)].push(daemon.resident_bytes()?);
        if read == load.len() {
            break;
        }
        anyhow::ensure!(began.elapsed() < WAIT_MAX, "{read} of {} entries after {WAIT_MAX:?}", load.len());
        std::thread::sleep(LOOK_EVERY);
    }
    let took = began.elapsed().as_secs_f64();
    let tenths: Vec<String> =
        held.iter().filter(|tenth| !tenth.is_empty()).map(|tenth| mebibytes(tenth.median())).collect();
    println!(
        "worked off in {took:.1} s, {} events/s, by a daemon with its defaults",
        thousands((load.len() - read_before) as f64 / took)
    );
    println!(
        "resident memory in each tenth of the way (median): {}; peak {}",
        tenths.join(", "),
        mebibytes(daemon.peak_bytes()?)
    );
    load::audit_all(&mut connection, &load).context("compare what was counted")
}
