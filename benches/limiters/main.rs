//! Measures the limiters on a real server: `make bench-limiters`, or `cargo bench --bench limiters -- --quick` for a look that only
//! shows that everything runs.
//!
//! Three parts, on a redis-server that it starts itself on a free port, without persistence: [`decisions`], how many a second and how
//! long each takes, beside plain commands and the limiters of others; [`http`], the same question asked of a daemon by API nodes;
//! [`memory`], what a key costs. Every contender's admitted calls are compared with what they must be; a wrong count ends the run
//! with exit code 1.

mod contenders;
#[path = "../pipeline/daemon.rs"]
#[allow(dead_code, reason = "the bench of the pipeline uses all of it")]
mod daemon;
mod decisions;
#[path = "../pipeline/figures.rs"]
#[allow(dead_code, reason = "the bench of the pipeline uses all of it")]
mod figures;
mod http;
mod load;
#[path = "../pipeline/machine.rs"]
#[allow(dead_code, reason = "the bench of the pipeline uses all of it")]
mod machine;
mod memory;
mod peers;
#[path = "../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_server;

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
    let quick = std::env::var_os(QUICK).is_some_and(|value| value != "0" && !value.is_empty());
    let quick = quick || arguments.iter().any(|argument| argument == "--quick");
    let size = if quick { Size::Quick } else { Size::Full };
    // For a look at one part while working on it; without names all run.
    let parts: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|named| *named == part);

    machine::describe("limiters", size)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if wanted("decisions") {
        runtime.block_on(decisions::run(size))?;
    }
    if wanted("http") {
        http::run(size)?;
    }
    if wanted("memory") {
        runtime.block_on(memory::run(size))?;
    }
    Ok(())
}
