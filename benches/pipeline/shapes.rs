//! The effect of the load's shape: more subjects, more windows, event ids, an append-only file, trees of subjects. The
//! worker and the ceiling take turns on the same load.

use anyhow::Context as _;
use redis::Connection;

use crate::Size;
use crate::bench_server::{BenchServer, Measured};
use crate::contenders::Contender;
use crate::figures::{Series, micros, thousands};
use crate::load::Shape;
use crate::machine;

/// A part of the names of the loads to measure, for experiments.
const SHAPES: &str = "QUOTABELL_BENCH_SHAPES";
const APPEND_ONLY: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

/// One load and its measurements.
struct Shaped {
    name: &'static str,
    bench_server: BenchServer,
    own: Measured,
    ceiling: Measured,
    /// Growth of the append-only file, bytes per event.
    file: Series,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let rounds = size.pick(5, 1);
    let few = Shape::of_subjects(size.pick(10_000, 1_000));
    let many = Shape::of_subjects(size.pick(1_000_000, 20_000));
    let all = [
        ("limits a day", few, &[][..]),
        ("limits an hour, a day and a month", Shape { three_windows: true, ..few }, &[]),
        ("events with ids", Shape { ids: true, ..few }, &[]),
        ("append-only file, everysec", few, &APPEND_ONLY),
        ("many subjects", many, &[]),
        ("paths as flat subjects", Shape { paths: true, ..few }, &[]),
        ("paths of three levels", Shape { paths: true, separator: "/".parse()?, ..few }, &[]),
    ];
    let wanted = std::env::var(SHAPES).unwrap_or_default();
    let mut shaped = Vec::new();
    for (name, shape, options) in all.into_iter().filter(|(name, ..)| name.contains(&wanted)) {
        shaped.push(Shaped::open(name, size, shape, options)?);
    }
    let placement = *machine::placements()?.first().context("no core is allowed")?;
    for _ in 0..rounds {
        for Shaped { bench_server, own, ceiling, file, .. } in &mut shaped {
            let before = file_bytes(&mut bench_server.connection)?;
            bench_server.round(placement, Contender::Quotabell, own)?;
            file.push((file_bytes(&mut bench_server.connection)? - before) / bench_server.load.len() as f64);
            bench_server.round(placement, Contender::Ceiling, ceiling)?;
        }
    }
    println!(
        "\n## The shape of the load: {} entries, {}, medians of {rounds} interleaved rounds\n",
        shaped[0].bench_server.load.len(),
        placement.name()
    );
    println!(
        "| load | subjects | c events/s | d events/s | c/d | Redis CPU us/event: c, d, XADD | worker CPU us/event | a commit holds, ms: median, p99 | file, bytes/event |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for Shaped { name, bench_server, own, ceiling, file } in &shaped {
        let (c, d) = (own.events_s.median(), ceiling.events_s.median());
        println!(
            "| {name} | {} | {} | {} | {:.2} | {}, {}, {} | {} | {:.1}, {:.1} | {:.1} |",
            bench_server.load.subjects.len(),
            thousands(c),
            thousands(d),
            c / d,
            micros(own.server_us.median()),
            micros(ceiling.server_us.median()),
            micros(bench_server.append_us),
            micros(own.worker_us.median()),
            own.commit_ms.median(),
            own.commit_ms.quantile(0.99),
            file.median(),
        );
    }
    Ok(())
}

impl Shaped {
    fn open(name: &'static str, size: Size, shape: Shape, options: &[&str]) -> anyhow::Result<Self> {
        let bench_server = BenchServer::open(size, shape, options)?;
        Ok(Self { name, bench_server, own: Measured::default(), ceiling: Measured::default(), file: Series::default() })
    }
}

/// Size of the append-only file; 0 if there is none.
fn file_bytes(connection: &mut Connection) -> anyhow::Result<f64> {
    let info: redis::InfoDict = redis::cmd("INFO").arg("persistence").query(connection)?;
    Ok(info.get("aof_current_size").unwrap_or(0.0))
}
