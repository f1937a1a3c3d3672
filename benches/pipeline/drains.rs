//! The speed of working off a backlog: four contenders in turn, several rounds, on separate cores and on a shared one.

use crate::Size;
use crate::bench_server::{BenchServer, Measured};
use crate::contenders::Contender;
use crate::figures::{micros, millis, thousands};
use crate::load::Shape;
use crate::machine::{self, Placement};

/// The letters of the contenders to measure, for experiments.
const WAYS: &str = "QUOTABELL_BENCH_WAYS";

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let rounds = size.pick(7, 2);
    let shape = Shape::of_subjects(size.pick(10_000, 1_000));
    let mut bench_server = BenchServer::open(size, shape, &[])?;
    let placements = machine::placements()?;
    let ways = std::env::var(WAYS).unwrap_or_else(|_| "abcd".to_owned());
    let mut measured = vec![[(); 4].map(|()| Measured::default()); placements.len()];
    for _ in 0..rounds {
        for (placement, figures) in placements.iter().zip(&mut measured) {
            for (contender, figures) in Contender::ALL.into_iter().zip(figures.iter_mut()) {
                if ways.contains(contender.letter()) {
                    bench_server.round(*placement, contender, figures)?;
                }
            }
        }
    }
    println!(
        "## Working off a backlog: {} entries over {} subjects (Zipf), medians of {rounds} interleaved rounds\n",
        bench_server.load.len(),
        bench_server.load.subjects.len()
    );
    println!(
        "a is measured on {} of the entries a round and b on {}, since they are slow; every drain's counts and alerts were compared.",
        bench_server.entries_of(Contender::ConsumerGroup),
        bench_server.entries_of(Contender::Pipelined)
    );
    for (placement, figures) in placements.iter().zip(&measured) {
        print(*placement, figures);
    }
    Ok(())
}

fn print(placement: Placement, figures: &[Measured; 4]) {
    println!("\n### Server and worker: {}\n", placement.name());
    println!("| way | events/s | spread | Redis CPU us/event | worker CPU us/event |");
    println!("|---|---|---|---|---|");
    for (contender, Measured { events_s, server_us, worker_us, .. }) in Contender::ALL.into_iter().zip(figures) {
        if events_s.is_empty() {
            continue;
        }
        println!(
            "| {} | {} | {} | {} | {} |",
            contender.name(),
            thousands(events_s.median()),
            events_s.spread(thousands),
            micros(server_us.median()),
            micros(worker_us.median())
        );
    }
    let [group, pipelined, own, ceiling] = figures;
    let own_events = own.events_s.median();
    println!(
        "\nc/a {:.0}, c/b {:.1}, c/d {:.2}; one commit holds the server {} (median), {} (p99), {} (longest), one reading {} (median), {} (longest)",
        own_events / group.events_s.median(),
        own_events / pipelined.events_s.median(),
        own_events / ceiling.events_s.median(),
        millis(own.commit_ms.median()),
        millis(own.commit_ms.quantile(0.99)),
        millis(own.commit_ms.quantile(1.0)),
        millis(own.read_ms.median()),
        millis(own.read_ms.quantile(1.0)),
    );
}
