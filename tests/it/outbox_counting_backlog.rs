//! A storm of alerts must delay neither counting nor later alerts.

use crate::support::daemon::DaemonSetup;
use crate::support::outbox::{Outbox, email, until};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, raised, until_ended};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use quotabell::types::meters;

/// A time that is never in the past for long.
const NOW: &str = "9999999999999";

/// Number of waits of the loops for counting.
fn waits(metrics: &PrometheusHandle) -> u64 {
    let shown = metrics.render();
    let of = |line: &str| line.strip_prefix(meters::WAITED_FOR_COUNTING)?.trim().parse().ok();
    shown.lines().find_map(of).unwrap_or(0)
}

/// Raises an alert and runs the loops until its delivery has this state; returns the number of waits for counting.
async fn waits_of_loops(outbox: &Outbox, name: &str, is_sent: bool, metrics: &PrometheusHandle) -> u64 {
    let before = waits(metrics);
    raised(outbox, name, &[email(name)]).await;
    let made = outbox.totals().await.made + 1;
    let loops = Loops::start(outbox, &FakeNotifier::new(|_| FakeAttempt::Deliver), Setting::default());
    if is_sent {
        until_ended(outbox, made).await;
    } else {
        until("it is fanned out", || async { outbox.totals().await.made == made }).await;
    }
    loops.drain().await;
    waits(metrics) - before
}

/// Fan-out and sending wait for counting only if reads have been full for long; and they continue even if it is far
/// behind.
#[tokio::test]
async fn fan_out_and_sending_wait_for_counting_that_is_behind() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let outbox = Outbox::start();
    let committed = async |at_ms: &str, behind_ms: &str| {
        let checkpoint = outbox.keys.checkpoint();
        let fields = [checkpoint.as_str(), "committed_at_ms", at_ms, "behind_ms", behind_ms];
        let () = outbox.run("HSET", &fields).await;
    };
    assert_eq!(waits_of_loops(&outbox, "new", true, &metrics).await, 0, "nothing was counted yet");
    committed(NOW, "250").await;
    assert_eq!(waits_of_loops(&outbox, "counted", true, &metrics).await, 0, "readings are rarely full");
    committed("1", "251").await;
    assert_eq!(waits_of_loops(&outbox, "still", true, &metrics).await, 0, "nothing is counted: waiting helps nobody");

    committed(NOW, "251").await;
    let () = outbox.run("HSET", &[outbox.keys.paused().as_str(), "since_ms", "1", "reason", ""]).await;
    assert!(waits_of_loops(&outbox, "fanned-out", false, &metrics).await > 0, "the fan-out waits");
    let () = outbox.run("DEL", &[outbox.keys.paused()]).await;
    let before = waits(&metrics);
    let loops = Loops::start(&outbox, &FakeNotifier::new(|_| FakeAttempt::Deliver), Setting::default());
    until_ended(&outbox, 4).await;
    loops.drain().await;
    assert!(waits(&metrics) > before, "the dispatcher waits");
}

/// The test must detect both that counting is behind and that it no longer is.
#[tokio::test]
async fn each_commit_says_for_how_long_readings_have_been_full() {
    let outbox = Outbox::start();
    let mut backlog = redis::pipe();
    for _ in 0..20_000 {
        backlog.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").ignore();
    }
    let () = outbox.client.pipe(&backlog).await.expect("Redis answers");
    let daemon = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__STREAM__BATCH_ENTRIES", "1").start().await;
    let field = async |name: &str| {
        let stored: Option<u64> = outbox.run("HGET", &[outbox.keys.checkpoint().as_str(), name]).await;
        stored.unwrap_or_default()
    };
    until("the counting is behind", || async { field("behind_ms").await > 250 }).await;
    until("all is counted", || async { field("entries_read").await == 20_000 }).await;
    let _: String = outbox.run("XADD", &["usage", "*", "subject", "alice"]).await;
    until("it is not behind", || async { field("behind_ms").await == 0 }).await;
    daemon.drain().await;
}
