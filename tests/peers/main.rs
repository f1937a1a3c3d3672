//! Runs the same calls at the same times through our limiters and the Python package `limits`: the decisions are the
//! same, or a test explains why not. [`messages`] verifies our messages with the libraries of receivers,
//! [`mail_servers`] with their mail servers, and [`zones`] compares our zones with Python's. `make test-peers` fetches
//! the packages and runs this.
//!
//! Both limiters use one server whose clock the test controls. The schedules avoid exact boundaries and compare fixed
//! windows only up to the first refusal: beyond that the two differ on purpose, and separate tests show how, so that a
//! change of either is noticed.

#[path = "../../crates/throttle/tests/limiters/clocked_server.rs"]
#[allow(dead_code, reason = "the tests of the limiters use all of it")]
mod clocked_server;
mod mail_servers;
mod messages;
#[path = "../support/mod.rs"]
mod support;
mod zones;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use clocked_server::{CLOCK_START_US, ClockedServer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quotabell_throttle::{FixedWindow, Rate, SlidingWindow};
use redis::aio::MultiplexedConnection;
use serde_json::json;
use support::redis_server;

/// The folder of packages that tools/peers.sh fetches.
const PEERS: &str = "QUOTABELL_PEERS";
const CASES: u32 = 500;
const SECOND_US: u64 = 1_000_000;

/// The common kinds of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Fixed,
    /// Called sliding here, and moving there.
    Sliding,
}

/// Limits that both support: `limits` uses whole seconds.
#[derive(Debug, Clone, Copy)]
struct Limit {
    units: u64,
    window_s: u64,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    at_us: u64,
    units: u64,
}

/// Both decisions on one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    ours: bool,
    theirs: bool,
}

const fn both(said: bool) -> Said {
    Said { ours: said, theirs: said }
}

/// Both limiters on one server.
struct Both {
    clocked_server: ClockedServer,
    client: MultiplexedConnection,
    runtime: tokio::runtime::Runtime,
    peer: RefCell<Peer>,
}

/// The process that calls the package.
struct Peer {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Both {
    fn start() -> Self {
        let peers = std::env::var(PEERS).unwrap_or_else(|_| panic!("{PEERS} is not set: run this by make test-peers"));
        let clocked_server = ClockedServer::start();
        let mut child = Command::new("python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/limits_decisions.py"))
            .arg(clocked_server.port().to_string())
            .env("PYTHONPATH", format!("{peers}/python"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let questions = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let redis_client = clocked_server.client();
        let connecting = redis_client.get_multiplexed_async_connection();
        let client = runtime.block_on(connecting).expect("a connection");
        Self { clocked_server, client, runtime, peer: RefCell::new(Peer { child, questions, answers }) }
    }

    fn call(&self, rule: Rule, limit: Limit, key: &str, call: Call) -> Said {
        self.clocked_server.set_clock(call.at_us);
        let rate = Rate::new(limit.units, Duration::from_secs(limit.window_s)).expect("legal");
        let (mut client, units) = (self.client.clone(), call.units);
        let ours = self.runtime.block_on(async {
            match rule {
                Rule::Fixed => FixedWindow::new(rate).take(&mut client, key, units).await,
                Rule::Sliding => SlidingWindow::new(rate).expect("few").take(&mut client, key, units).await,
            }
        });
        let strategy = if rule == Rule::Fixed { "fixed" } else { "moving" };
        let question = json!({
            "strategy": strategy, "key": key, "limit": limit.units, "window_s": limit.window_s,
            "units": call.units, "at_us": call.at_us,
        });
        let mut peer = self.peer.borrow_mut();
        writeln!(peer.questions, "{question}").expect("the peer lives");
        let mut answer = String::new();
        peer.answers.read_line(&mut answer).expect("the peer lives");
        assert!(matches!(answer.trim(), "admitted" | "rejected"), "the peer said {answer:?}");
        Said { ours: ours.expect("an answer").is_admitted(), theirs: answer.trim() == "admitted" }
    }

    /// Runs `compare` with random schedules, each with its own key.
    fn compare(&self, most_units: u64, compare: impl Fn(Limit, &str, &[Call]) -> Result<(), TestCaseError>) {
        let number = std::cell::Cell::new(0_u64);
        let limit = (1..=12_u64, 1..=20_u64).prop_map(|(units, window_s)| Limit { units, window_s });
        // Seconds since the previous call, and the share of the limit.
        let call = (prop_oneof![3 => Just(0_u64), 2 => 0..4_u64, 1 => 0..30_u64], 1..=most_units);
        let schedule = (limit, prop::collection::vec(call, 1..40));
        let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
        let ran = runner.run(&schedule, |(limit, steps)| {
            number.set(number.get() + 1);
            let (mut seconds, mut calls) = (0, Vec::new());
            for (index, (later, units)) in (1..).zip(steps) {
                seconds += later;
                // Each call at another millisecond of its second, so that none is exactly a window after another.
                let at_us = CLOCK_START_US + seconds * SECOND_US + index * 1000;
                calls.push(Call { at_us, units: units.min(limit.units + 1) });
            }
            compare(limit, &format!("k{}", number.get()), &calls)
        });
        if let Err(error) = ran {
            panic!("{error}");
        }
    }
}

/// Users who come from a widespread implementation expect its decisions; for calls of any number of units, including
/// more than the limit.
#[test]
fn sliding_windows_decide_as_limits_does() {
    let peers = Both::start();
    peers.compare(14, |limit, key, calls| {
        for call in calls {
            let said = peers.call(Rule::Sliding, limit, key, *call);
            prop_assert_eq!(said.ours, said.theirs, "{:?}, {:?} at {}", said, call, call.at_us - CLOCK_START_US);
        }
        Ok(())
    });
}

/// The same for fixed windows, with calls of one unit.
#[test]
fn fixed_windows_decide_single_units_as_limits_does() {
    let peers = Both::start();
    peers.compare(1, |limit, key, calls| {
        for call in calls {
            let said = peers.call(Rule::Fixed, limit, key, *call);
            prop_assert_eq!(said.ours, said.theirs, "{:?}, {:?} at {}", said, call, call.at_us - CLOCK_START_US);
        }
        Ok(())
    });
}

/// `limits` counts refused calls, so one refused call of several units closes the window for all later ones. Ours takes
/// nothing, so the rest can still be used. Up to that refusal the decisions are the same, and ours never refuses what
/// `limits` admits.
#[test]
fn fixed_windows_differ_only_after_a_refusal_that_limits_counts() {
    let peers = Both::start();
    peers.compare(12, |limit, key, calls| {
        let (mut ends_us, mut refused) = (0, false);
        for call in calls {
            let units = call.units.min(limit.units);
            if call.at_us >= ends_us {
                (ends_us, refused) = (call.at_us + limit.window_s * SECOND_US, false);
            }
            let said = peers.call(Rule::Fixed, limit, key, Call { units, ..*call });
            prop_assert!(said.ours || !said.theirs, "{said:?}, {call:?}");
            prop_assert!(refused || said.ours == said.theirs, "{said:?}, {call:?}");
            prop_assert!(!(refused && said.theirs), "{said:?}, {call:?}");
            refused |= !said.theirs;
        }
        Ok(())
    });
    let limit = Limit { units: 10, window_s: 60 };
    let say = |key: &str, units| peers.call(Rule::Fixed, limit, key, Call { at_us: CLOCK_START_US, units });
    assert_eq!(say("some", 8), both(true));
    assert_eq!(say("some", 3), both(false));
    assert_eq!(say("some", 2), Said { ours: true, theirs: false });
    // A call above the limit is always refused; in `limits` it also opens a window and fills it.
    assert_eq!(say("more", 11), both(false));
    assert_eq!(say("more", 1), Said { ours: true, theirs: false });
}

/// Exactly at the boundary: `limits` still counts a call that is exactly a window old (for fixed windows, in the last
/// millisecond of the Redis key); ours does not, so that a wait of `retry_after` is long enough.
#[test]
fn at_the_very_boundary_limits_waits_an_instant_longer() {
    let peers = Both::start();
    let limit = Limit { units: 1, window_s: 60 };
    for rule in [Rule::Fixed, Rule::Sliding] {
        let instant_us = if rule == Rule::Fixed { 1000 } else { 1 };
        let say = |key: &str, after_us| {
            peers.call(rule, limit, &format!("{rule:?}{key}"), Call { at_us: CLOCK_START_US + after_us, units: 1 })
        };
        for key in ["before", "at", "after"] {
            assert_eq!(say(key, 0), both(true));
        }
        assert_eq!(say("before", 60 * SECOND_US - instant_us), both(false), "{rule:?}");
        assert_eq!(say("at", 60 * SECOND_US), Said { ours: true, theirs: false }, "{rule:?}");
        assert_eq!(say("after", 60 * SECOND_US + instant_us), both(true), "{rule:?}");
    }
}
