//! Runs random schedules on one server.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::aio::MultiplexedConnection;

use crate::clocked_server::ClockedServer;
use crate::connect;

/// The environment of a schedule: a server that all schedules share, and its own key prefix.
pub struct Stage<'a> {
    pub clocked_server: &'a ClockedServer,
    pub client: &'a MultiplexedConnection,
    /// Keys with this prefix belong to this schedule only.
    pub prefix: String,
}

/// Runs `cases` schedules one after another, and fails with the shortest failing one.
pub fn run<S: Strategy>(cases: u32, schedules: S, run: impl AsyncFn(Stage<'_>, S::Value) -> Result<(), TestCaseError>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clocked_server = ClockedServer::start();
    let client = runtime.block_on(connect(&clocked_server.client()));
    let number = std::cell::Cell::new(0_u64);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&schedules, |schedule| {
        number.set(number.get() + 1);
        let stage = Stage { clocked_server: &clocked_server, client: &client, prefix: format!("{{{}}}", number.get()) };
        runtime.block_on(run(stage, schedule))
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}
