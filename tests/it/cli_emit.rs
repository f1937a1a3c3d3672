//! `emit` on a real server: the resulting stream.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::binary::{Finished, quotabell};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::recorded_usage::RecordedUsage;
use crate::support::redis_server::RedisServer;
use quotabell::types::{Metric, keys};

fn emit(server: &RedisServer, arguments: &[&str]) -> Finished {
    quotabell(["emit"].iter().chain(arguments).copied()).redis(&server.url()).run()
}

/// The fields of all entries, as stored.
fn entries(server: &RedisServer, stream: &str) -> Vec<(String, Vec<String>)> {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    redis::cmd("XRANGE").arg(stream).arg("-").arg("+").query(&mut connection).expect("a stream")
}

/// An event without further fields must use the documented defaults.
#[test]
fn only_named_fields_are_written() {
    let server = RedisServer::start();
    let last = emit(&server, &["--subject", "a:b {c}"]).expect_done();
    let entries = entries(&server, "usage");
    assert_eq!(entries, [(last.trim().to_owned(), vec!["subject".to_owned(), "a:b {c}".to_owned()])]);
}

/// The daemon would refuse every event with swapped names and values.
#[test]
fn every_field_is_written_as_named() {
    let server = RedisServer::start();
    emit(
        &server,
        &["--subject", "alice", "--units", "3", "--metric", "gpt-4.tokens_in", "--ts", "1763715600000", "--id", "7f3c"],
    )
    .expect_done();
    let fields = entries(&server, "usage").remove(0).1;
    let expected = ["subject", "alice", "units", "3", "metric", "gpt-4.tokens_in", "ts", "1763715600000", "id", "7f3c"];
    assert_eq!(fields, expected);
}

/// A command that tests the door for producers must use it, with a token that may do no more.
#[tokio::test]
async fn events_go_over_http_with_the_token_for_them() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "a-token-for-events-0123456789").expect("written");
    let tokens = |scope: &str| serde_json::json!([{"name": "producer", "file": token, "scopes": [scope]}]).to_string();
    let setup = DaemonSetup::on(&server.url()).env("QUOTABELL__STREAM__TRIM", "never");
    let mut daemon = setup.env("QUOTABELL__HTTP__TOKENS", &tokens("events:write")).start().await;
    daemon.becomes_ready().await;
    let url = format!("http://{}", daemon.http().await);
    let send = |scope: &str, arguments: &[&str]| {
        let command = quotabell(["emit", "--http", &url, "--subject", "alice"].iter().chain(arguments).copied());
        command.env("QUOTABELL__HTTP__TOKENS", tokens(scope)).run()
    };
    let sent = send("events:write", &["--count", "1500", "--id", "a", "--units", "3"]);
    assert_eq!(sent.expect_done(), "1500\n");
    let stream = entries(&server, "usage");
    assert_eq!(
        (stream.len(), &stream[1499].1),
        (1500, &["subject", "alice", "units", "3", "id", "a-1500"].map(str::to_owned).to_vec())
    );
    let without = send("read", &[]);
    assert!(without.code == 1 && without.stderr.contains("events over HTTP need a token"), "{}", without.told());
    let refused = send("events:write", &["--ts", "99999999999999"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("events 1 to 1 of 1 were not confirmed"),
        "{}",
        refused.told()
    );
    assert!(refused.stderr.contains("more than 5 minutes ahead"), "{}", refused.told());
    daemon.drain().await;
    let gone = send("events:write", &[]);
    assert!(gone.code == 1 && gone.stderr.contains("does not answer"), "{}", gone.told());
}

/// A correction must not be counted as usage, nor twice if the command is repeated.
#[tokio::test]
async fn a_credit_gives_units_back_once() {
    let usage = RecordedUsage::start();
    let daemon = DaemonSetup::on(&usage.server.url()).start().await;
    let day = || async { usage.periods("UTC", 1).await[1].period };
    let metric: Metric = "tokens.in".parse().expect("legal");
    let used = || async {
        let key = usage.keys.usage(&metric, day().await, keys::bucket("alice"));
        usage.client.query::<Option<u64>>(redis::cmd("HGET").arg(key).arg("alice")).await.expect("a count")
    };
    let of_alice = ["--subject", "alice", "--metric", "tokens.in"];
    let with = |more: &[&str]| emit(&usage.server, &[&of_alice, more].concat()).expect_done();
    with(&["--units", "500"]);
    let reaches =
        async |units: u64| eventually("it is counted", || async { (used().await? == units).then_some(()) }).await;
    reaches(500).await;
    for _ in 0..2 {
        with(&["--credit", "200", "--id", "refund-81"]);
    }
    // A later event proves that both were counted.
    with(&["--units", "7"]);
    reaches(307).await;
    let fields = ["subject", "alice", "credit", "200", "metric", "tokens.in", "id", "refund-81"];
    daemon.drain().await;
    let stream = entries(&usage.server, "usage");
    // Counted entries are trimmed in whole nodes, so these few still exist.
    assert_eq!(stream[1].1, fields);
    let both = emit(&usage.server, &["--subject", "alice", "--credit", "1", "--units", "1"]);
    assert!(both.code == 2 && both.stderr.contains("cannot be used with"), "{}", both.told());
    for bad in ["0", "-1", "1.5", "9007199254740992"] {
        assert_eq!(emit(&usage.server, &["--subject", "alice", &format!("--credit={bad}")]).code, 2, "{bad}");
    }
    assert_eq!(entries(&usage.server, "usage").len(), stream.len(), "nothing was appended");
}

/// The configuration names the stream.
#[test]
fn the_configured_stream_is_written() {
    let server = RedisServer::start();
    let run =
        quotabell(["emit", "--subject", "alice", "--json"]).redis(&server.url()).env("QUOTABELL__STREAM__KEY", "calls");
    let printed = run.run().expect_json().remove(0);
    assert_eq!((&printed["stream"], &printed["count"]), (&"calls".into(), &1.into()));
    assert_eq!(entries(&server, "calls")[0].0, printed["last_id"]);
}

/// More events than one write contains: none may be missing or doubled between writes.
#[test]
fn many_events_are_all_appended() {
    let server = RedisServer::start();
    let printed = emit(&server, &["--subject", "alice", "--count", "2503", "--json"]).expect_json().remove(0);
    let entries = entries(&server, "usage");
    assert_eq!(entries.len(), 2503);
    assert_eq!(
        (&printed["first_id"], &printed["last_id"]),
        (&entries[0].0.clone().into(), &entries[2502].0.clone().into())
    );
}

/// One id for all would count as a single event.
#[test]
fn with_a_count_each_event_has_an_id_of_its_own() {
    let server = RedisServer::start();
    emit(&server, &["--subject", "alice", "--count", "1200", "--id", "order"]).expect_done();
    let ids: BTreeSet<String> = entries(&server, "usage").into_iter().map(|(_, fields)| fields[3].clone()).collect();
    assert_eq!(ids.len(), 1200);
    assert!(ids.contains("order-1") && ids.contains("order-1200"));
}

/// The suffix counts too: an id that the daemon would refuse must not be sent.
#[test]
fn an_id_that_grows_too_long_is_refused_before_anything_is_sent() {
    let server = RedisServer::start();
    let id = "x".repeat(126);
    let finished = emit(&server, &["--subject", "alice", "--count", "10", "--id", &id]);
    assert!(finished.code == 2 && finished.stderr.contains("129 bytes"), "{}", finished.stderr);
    assert!(entries(&server, "usage").is_empty());
}

/// A wrong rate would falsify load tests. Only the lower bound is certain on a busy machine.
#[test]
fn a_rate_paces_the_events() {
    let server = RedisServer::start();
    let started = Instant::now();
    emit(&server, &["--subject", "alice", "--count", "51", "--rate", "100"]).expect_done();
    assert!(started.elapsed() >= Duration::from_millis(500), "{:?}", started.elapsed());
    assert_eq!(entries(&server, "usage").len(), 51);
}

/// A full server refuses writes: the output must say how many succeeded.
#[test]
fn a_full_server_is_told_with_a_hint() {
    let server = RedisServer::start_with(&["--save", "", "--maxmemory", "1kb", "--maxmemory-policy", "noeviction"]);
    let finished = emit(&server, &["--subject", "alice", "--count", "10"]);
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("append events 1 to 10 of 10 to usage"), "{}", finished.stderr);
    assert!(finished.stderr.contains("hint: Redis is at its maxmemory"), "{}", finished.stderr);
}
