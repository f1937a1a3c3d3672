//! Measures the whole path on real parts: `make bench`, or `cargo bench --bench pipeline -- --quick` for a look that only shows
//! that everything runs.
//!
//! Three parts, all against redis-servers that it starts itself on free ports, without persistence: [`drains`], how fast a backlog
//! is worked off, four ways in turn; [`latency`], how long an alert takes from XADD to the webhook; [`memory`], what a million
//! subjects cost. Every drain's counts and alerts are compared with what they must be; a wrong one ends the run with exit code 1.

mod contenders;
mod counted;
mod daemon;
mod drains;
#[allow(dead_code, reason = "the bench of the limiters uses the rest")]
mod figures;
mod latency;
mod load;
mod machine;
mod memory;
#[path = "../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_server;

use anyhow::Context as _;

/// Set to anything but 0 for a quick run, as `--quick`.
const QUICK: &str = "QUOTABELL_BENCH_QUICK";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// The documented figures.
    Full,
    /// Only shows that everything runs; the figures mean nothing.
    Quick,
}

impl Size {
    fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == contenders::FLAG) {
        let order = arguments.get(at + 1).context("the order to the contender is missing")?;
        return contenders::obey(order);
    }
    let quick = std::env::var_os(QUICK).is_some_and(|value| value != "0" && !value.is_empty());
    let quick = quick || arguments.iter().any(|argument| argument == "--quick");
    let size = if quick { Size::Quick } else { Size::Full };
    // For a look at one part while working on it; without names all run.
    let parts: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|named| *named == part);

    machine::describe("pipeline", size)?;
    if wanted("drains") {
        drains::run(size)?;
    }
    if wanted("latency") {
        latency::run(size)?;
    }
    if wanted("memory") {
        memory::run(size)?;
    }
    Ok(())
}
