//! A storm of alerts must not slow down the counting, nor the alerts that are raised behind it.

use crate::support::outbox::{Outbox, email, until};
use crate::support::outbox_loops::{FakeAttempt, FakeNotifier, Loops, Setting, raised, until_ended};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use quotabell::types::meters;

/// How often the loops have waited for the counting.
fn waits(metrics: &PrometheusHandle) -> u64 {
    let shown = metrics.render();
    let of = |line: &str| line.strip_prefix(meters::WAITED_FOR_COUNTING)?.trim().parse().ok();
    shown.lines().find_map(of).unwrap_or(0)
}

/// Raises an alert and runs the loops until its delivery is in this state; how often they waited for the counting.
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

/// Fan-out and sending wait for the counting where an entry has waited for it for long, and only there; and however
/// far behind it is, they go on.
#[tokio::test]
async fn fan_out_and_sending_wait_for_counting_that_is_behind() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let outbox = Outbox::start();
    let append = async |id: &str| {
        let _: String = outbox.run("XADD", &[outbox.keys.stream(), id, "subject", "alice"]).await;
    };
    append("1-1").await;
    let () = outbox.run("HSET", &[outbox.keys.checkpoint().as_str(), "id", "1-1"]).await;
    assert_eq!(waits_of_loops(&outbox, "counted", true, &metrics).await, 0, "all entries are committed");

    append("1-2").await;
    let () = outbox.run("HSET", &[outbox.keys.paused().as_str(), "since_ms", "1", "reason", ""]).await;
    assert!(waits_of_loops(&outbox, "fanned-out", false, &metrics).await > 0, "the fan-out waits");
    let () = outbox.run("DEL", &[outbox.keys.paused()]).await;
    let before = waits(&metrics);
    let loops = Loops::start(&outbox, &FakeNotifier::new(|_| FakeAttempt::Deliver), Setting::default());
    until_ended(&outbox, 2).await;
    loops.drain().await;
    assert!(waits(&metrics) > before, "the dispatcher waits");

    let () = outbox.run("DEL", &[outbox.keys.stream()]).await;
    append("9999999999999-1").await;
    assert_eq!(waits_of_loops(&outbox, "later", true, &metrics).await, 0, "an entry that has not waited");
}
