//! Two real daemons on one Redis: one reads, the other stands by and takes over. Only the test about the end of a lease
//! waits for one.
//!
//! `events_worker.rs` shows without the lease that counts are right even if both read.

use crate::support;
use crate::support::daemon::{Daemon, DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use crate::support::redis_server::RedisServer;
use nix::sys::signal::Signal;

/// The log line of the daemon that does not read.
const STANDS_BY: &str = "standing by: another daemon reads";
/// The log line of a daemon that takes over.
const TAKES_OVER: &str = "taking over: this daemon reads from now on";
/// Longer than any test waits, ms: a daemon that has to wait for the end of such a lease is never seen to read.
const FOREVER_MS: &str = "3600000";

/// One Redis for the daemons of a test.
struct SharedRedis {
    outbox: Outbox,
    setup: DaemonSetup,
}

impl SharedRedis {
    fn start() -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let setup = DaemonSetup::on(&outbox.server.url());
        Self { outbox, setup }
    }

    async fn add(&self, events: u64) {
        for _ in 0..events {
            let _: String = self.outbox.run("XADD", &["usage", "*", "subject", "alice"]).await;
        }
    }

    async fn counted(&self, events: u64) {
        eventually("everything is counted", || async { (self.outbox.totals().await.counted == events).then_some(()) })
            .await;
    }

    async fn holder(&self) -> Option<String> {
        self.outbox.run("GET", &[self.outbox.keys.lease()]).await
    }

    /// The reader, and a daemon that has found it reading.
    async fn reader_and_standby(&self) -> (Daemon, Daemon) {
        let mut reader = self.setup.start().await;
        reads(&mut reader).await;
        let mut standby = self.setup.start().await;
        standby.says(STANDS_BY).await;
        (reader, standby)
    }

    /// Waits until daemons that do not read have asked this many more times for the lease: only they ask for the TTL of
    /// a key.
    async fn asked_in_vain(&self, times: u64) {
        let asked = || async {
            let stats: String = self.outbox.run("INFO", "commandstats").await;
            let calls = stats.split("cmdstat_pttl:calls=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
            calls.unwrap_or(0)
        };
        let before: u64 = asked().await;
        eventually("the lease is asked for", || async { (asked().await >= before + times).then_some(()) }).await;
    }
}

async fn metric_is(daemon: &mut Daemon, metric: &str) {
    let address = daemon.http().await;
    eventually(metric, || async {
        let page = support::daemon::http_get(address, "/metrics").await?;
        page.body.lines().any(|line| line == metric).then_some(())
    })
    .await;
}

async fn reads(daemon: &mut Daemon) {
    metric_is(daemon, "quotabell_reading 1").await;
}

/// A second reader doubles the load for nothing; a daemon that does not take over is useless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_daemon_reads_and_the_other_takes_over_when_it_is_killed() {
    let shared = SharedRedis::start();
    let (mut reader, mut standby) = shared.reader_and_standby().await;
    let name = shared.holder().await.expect("somebody holds it");
    assert!(standby.says(STANDS_BY).await.contains(&name), "the log names the one that reads");
    assert_eq!(standby.get("/readyz").await.status, 200, "a standby is ready");
    shared.add(20).await;
    shared.counted(20).await;
    reads(&mut reader).await;
    let page = standby.get("/metrics").await.body;
    let commits = page.lines().filter(|line| line.starts_with("quotabell_commits_total{"));
    assert!(page.contains("quotabell_reading 0") && commits.clone().all(|line| line.ends_with(" 0")), "{page}");

    reader.kill().await;
    shared.add(20).await;
    shared.counted(40).await;
    standby.says(TAKES_OVER).await;
    reads(&mut standby).await;
    let said = standby.lines_after(0).iter().filter(|line| line.contains(STANDS_BY)).count();
    assert_eq!(said, 1, "it is said once, not at every question");
    standby.drain().await;
    assert_eq!(shared.holder().await, None, "whoever comes next need not wait");
}

/// When a deployment stops the old daemon, counting must not wait for its lease to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_drains_hands_over_at_once() {
    let shared = SharedRedis::start();
    let (reader, mut standby) = shared.reader_and_standby().await;
    let before = shared.holder().await;
    shared.add(20).await;
    reader.drain().await;
    assert_ne!(shared.holder().await, before, "it has let the lease go");
    standby.says(TAKES_OVER).await;
    shared.add(20).await;
    shared.counted(40).await;
    standby.drain().await;
}

/// After a supervisor's restart within a second, a daemon must not wait for its predecessor's lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_after_a_kill_does_not_wait_for_the_lease() {
    let shared = SharedRedis::start();
    let at_one_address = shared.setup.clone().at(own_address());
    let mut first = at_one_address.start().await;
    reads(&mut first).await;
    let before = shared.holder().await.expect("it reads");
    first.kill().await;
    let _: u64 = shared.outbox.run("PEXPIRE", &[shared.outbox.keys.lease().as_str(), FOREVER_MS]).await;

    // At another address on the same machine nobody can know that the first daemon is dead.
    let mut elsewhere = shared.setup.start().await;
    elsewhere.says(STANDS_BY).await;
    let mut second = at_one_address.start().await;
    reads(&mut second).await;
    assert!(!second.has_said(STANDS_BY));
    let after = shared.holder().await.expect("it reads");
    let place = before.rsplit_once('/').expect("a name of three parts").0;
    assert!(after != before && after.starts_with(&format!("{place}/")), "{after} follows {before}");
    shared.add(5).await;
    shared.counted(5).await;
    elsewhere.drain().await;
    second.drain().await;
}

/// Two daemons that repeatedly take the lease from each other would read everything twice and commit half of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_lost_its_lease_stands_by_and_does_not_take_it_back() {
    let shared = SharedRedis::start();
    let mut daemon = shared.setup.start().await;
    reads(&mut daemon).await;
    let _: String = shared.outbox.run("SET", &[shared.outbox.keys.lease().as_str(), "another", "PX", FOREVER_MS]).await;
    let line = daemon.says(STANDS_BY).await;
    assert!(line.contains("another"), "{line}");
    metric_is(&mut daemon, "quotabell_reading 0").await;
    shared.add(3).await;
    shared.asked_in_vain(3).await;
    assert_eq!(shared.holder().await.as_deref(), Some("another"));
    assert_eq!(shared.outbox.totals().await.counted, 0);

    let _: u64 = shared.outbox.run("DEL", &[shared.outbox.keys.lease()]).await;
    daemon.says(TAKES_OVER).await;
    shared.counted(3).await;
    daemon.drain().await;
}

/// A daemon that was paused beyond its lease assumes that it still reads: the checkpoint must prevent its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_was_paused_beyond_its_lease_counts_nothing_twice() {
    let shared = SharedRedis::start();
    let (mut paused, mut standby) = shared.reader_and_standby().await;
    shared.add(20).await;
    shared.counted(20).await;
    paused.signal(Signal::SIGSTOP);
    // As if its lease had ended.
    let _: u64 = shared.outbox.run("DEL", &[shared.outbox.keys.lease()]).await;
    shared.add(500).await;
    shared.counted(520).await;
    standby.says(TAKES_OVER).await;
    paused.signal(Signal::SIGCONT);
    paused.says(STANDS_BY).await;
    shared.add(20).await;
    shared.counted(540).await;
    assert_eq!(shared.outbox.totals().await.refused, 0);
    reads(&mut standby).await;
    standby.drain().await;
    shared.add(20).await;
    shared.counted(560).await;
    paused.drain().await;
}

/// A foreign value in the lease key is reported until it is fixed: guessing who reads would damage both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_another_type_stops_the_counting_until_it_is_mended() {
    let shared = SharedRedis::start();
    let (mut reader, mut standby) = shared.reader_and_standby().await;
    let key = shared.outbox.keys.lease();
    let mut spoil = redis::pipe();
    spoil.atomic().cmd("DEL").arg(&key).ignore().cmd("RPUSH").arg(&key).arg("mine").ignore();
    let () = shared.outbox.client.pipe(&spoil).await.expect("done");
    for daemon in [&mut reader, &mut standby] {
        let line = daemon.says("counting has stopped until this is mended").await;
        assert!(line.contains(&key), "{line}");
        metric_is(daemon, "quotabell_counting_stopped 1").await;
    }
    let _: u64 = shared.outbox.run("DEL", &[&key]).await;
    shared.add(3).await;
    shared.counted(3).await;
    for daemon in [&mut reader, &mut standby] {
        metric_is(daemon, "quotabell_counting_stopped 0").await;
    }
    reader.drain().await;
    standby.drain().await;

    let () = shared.outbox.client.pipe(&spoil).await.expect("done");
    let told = format!("error: {key} is a list, not a string");
    shared.setup.run_to_its_end().await.expect_code(1, &[&told, "hint: "]);
}

/// A false alarm about a lost deployment after a repair would discredit the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_is_deleted_and_set_by_hand_is_no_lost_deployment_for_a_standby() {
    let shared = SharedRedis::start();
    let (mut reader, mut standby) = shared.reader_and_standby().await;
    shared.add(3).await;
    shared.counted(3).await;
    shared.asked_in_vain(2).await;
    let checkpoint = shared.outbox.keys.checkpoint();
    let last: String = shared.outbox.run("HGET", &[checkpoint.as_str(), "id"]).await;
    // Deleted and set in one step, and with time in between.
    let mut set_again = redis::pipe();
    set_again.atomic().cmd("DEL").arg(&checkpoint).ignore().cmd("HSET").arg(&checkpoint).arg("id").arg(&last).ignore();
    let () = shared.outbox.client.pipe(&set_again).await.expect("done");
    shared.add(1).await;
    shared.counted(4).await;
    shared.asked_in_vain(2).await;
    let last: String = shared.outbox.run("HGET", &[checkpoint.as_str(), "id"]).await;
    let _: u64 = shared.outbox.run("DEL", &[&checkpoint]).await;
    shared.add(1).await;
    reader.says("counting has stopped until this is mended").await;
    shared.asked_in_vain(2).await;
    let _: u64 = shared.outbox.run("HSET", &[checkpoint.as_str(), "id", &last]).await;
    shared.counted(5).await;
    shared.asked_in_vain(2).await;
    for daemon in [&mut reader, &mut standby] {
        metric_is(daemon, "quotabell_deployments_lost_total 0").await;
        assert!(!daemon.has_said("everything that quotabell had stored is gone"));
    }
    reader.drain().await;
    standby.drain().await;
}

/// A standby that claims that its plans apply would mislead the operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_with_other_plans_says_that_they_differ_and_not_that_they_apply() {
    let server = RedisServer::start();
    let mut reader = DaemonSetup::on(&server.url()).start().await;
    let client = server.client();
    let _: String =
        client.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("a")).await.expect("added");
    eventually("its plans are stored", || async {
        let stored: Option<String> =
            client.query(redis::cmd("HGET").arg("quota_checkpoint:{usage}").arg("fingerprint")).await.ok()?;
        stored
    })
    .await;
    let mut standby =
        DaemonSetup::on(&server.url()).env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":77}"#).start().await;
    let said = standby.says("the plans of this daemon differ from those of the last commit").await;
    assert!(said.contains("they apply to the partitions that this daemon reads"), "{said}");
    assert!(!standby.has_said("from now on these apply"));
    for daemon in [&mut reader, &mut standby] {
        daemon.says("another daemon has other plans").await;
    }
    standby.drain().await;
    reader.drain().await;
}
