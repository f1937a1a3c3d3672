//! Runs random schedules against one server.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use quotabell::redis_client::RedisClient;

use crate::support::clocked_server::ClockedServer;

/// What a schedule runs on: a server that all schedules share, and a key prefix of its own.
pub struct Stage<'a> {
    pub clocked_server: &'a ClockedServer,
    pub client: &'a RedisClient,
    /// Keys that begin with it belong to this schedule alone.
    pub prefix: String,
}

/// Runs so many schedules, one after the other, and fails with the shortest that does.
pub fn run<S: Strategy>(cases: u32, schedules: S, run: impl AsyncFn(Stage<'_>, S::Value) -> Result<(), TestCaseError>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clocked_server = ClockedServer::start();
    let client = clocked_server.client();
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
