//! Measures the limiters on a real server: `make bench-limiters`, or `cargo bench --bench limiters -- --quick` for a
//! short run that only shows that everything works.
//!
//! Starts a redis-server on a free port, without persistence, and measures three parts: [`decisions`], their number per
//! second and their time, compared with plain commands and with limiters of other projects; [`http`], the same for
//! checks that API nodes send to a daemon; [`memory`], the size of a key. Compares the number of admitted calls of each
//! contender with the expected number; a difference ends the run with exit code 1.

mod contenders;
#[path = "../pipeline/daemon.rs"]
#[allow(dead_code, reason = "the bench of the pipeline uses all of it")]
mod daemon;
mod decisions;
#[path = "../pipeline/figures.rs"]
#[allow(dead_code, reason = "the bench of the pipeline uses all of it")]
mod figures;
mod http;
#[path = "../pipeline/http_answer.rs"]
mod http_answer;
mod load;
#[path = "../pipeline/machine.rs"]
#[allow(dead_code, reason = "the bench of the pipeline uses all of it")]
mod machine;
mod memory;
mod peers;
#[path = "../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_server;
#[path = "../pipeline/size.rs"]
mod size;

use redis_server::RedisServer;
use size::{Asked, Size};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = Asked::of(arguments);
    let size = asked.size;

    machine::describe("limiters", size)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = RedisServer::start();
    if asked.wants("decisions") {
        runtime.block_on(decisions::run(size, &server))?;
    }
    if asked.wants("http") {
        http::run(size, &server)?;
    }
    if asked.wants("memory") {
        runtime.block_on(memory::run(size, &server))?;
    }
    Ok(())
}
