//! Measures the whole path with real parts: `make bench`, or `cargo bench --bench pipeline -- --quick` to check only
//! that everything runs.
//!
//! It starts redis-servers on free ports, without persistence unless stated. [`drains`] works off a backlog in four
//! ways; [`shapes`] varies the load; [`latency`] measures an alert from XADD to the webhook, and [`outbox_latency`] to
//! the outbox; [`deliveries`] measures sending; [`backlog`] has ten million events; [`partitions`] uses one server and
//! a cluster; [`ingestion`] sends events over HTTP, [`beside_ingestion`] checks meanwhile, [`emitted`] runs `emit`, and
//! [`large_bodies`] measures their memory; [`memory`] has a million subjects; [`environments`] puts two of them on one
//! Redis; [`notices`] turns on forecasts and the rest; [`pages`] opens those of the console. It checks the counts and
//! alerts of every drain; a wrong one ends the run with exit code 1.

mod appended;
mod backlog;
mod bench_server;
mod beside_ingestion;
mod contenders;
mod counted;
mod daemon;
mod deliveries;
mod drains;
mod emitted;
mod environments;
#[path = "../../tests/support/eventually.rs"]
mod eventually;
#[allow(dead_code, reason = "the bench of the limiters uses the rest")]
mod figures;
mod http_answer;
mod ingestion;
mod large_bodies;
mod latency;
mod load;
mod machine;
mod memory;
mod notices;
mod outbox_latency;
mod pages;
mod partitions;
mod receiver;
#[path = "../../tests/support/receivers/mod.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod receivers;
#[path = "../../tests/support/redis_cluster.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_cluster;
#[path = "../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_server;
#[path = "../../tests/support/redis_server_client.rs"]
mod redis_server_client;
mod shapes;
mod size;

use anyhow::Context as _;
use size::{Asked, Size};

/// The daemon's allocator, because its worker and its reader are measured in this binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    // The same as in the daemon; child processes inherit it.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == contenders::FLAG) {
        let order = arguments.get(at + 1).context("the order to the contender is missing")?;
        return contenders::execute(order);
    }
    match arguments.as_slice() {
        [flag, order] if flag == deliveries::FLAG => return deliveries::execute(order),
        [flag, protocol] if flag == receiver::FLAG => return receiver::serve(protocol),
        _ => {}
    }
    let asked = Asked::of(arguments);
    let size = asked.size;

    machine::describe("pipeline", size)?;
    if asked.wants("drains") {
        drains::run(size)?;
    }
    if asked.wants("shapes") {
        shapes::run(size)?;
    }
    if asked.wants("latency") {
        latency::run(size)?;
        outbox_latency::run(size)?;
    }
    if asked.wants("deliveries") {
        deliveries::run(size)?;
    }
    if asked.wants("backlog") {
        backlog::run(size)?;
    }
    if asked.wants("partitions") {
        partitions::run(size)?;
    }
    if asked.wants("ingestion") {
        ingestion::run(size)?;
        beside_ingestion::run(size)?;
        emitted::run(size)?;
        large_bodies::run(size)?;
    }
    if asked.wants("memory") {
        memory::run(size)?;
    }
    if asked.wants("environments") {
        environments::run(size)?;
    }
    if asked.wants("notices") {
        notices::run(size)?;
    }
    if asked.wants("pages") {
        pages::run(size)?;
    }
    Ok(())
}
