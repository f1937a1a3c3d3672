//! How the daemon ends: drained by a signal, at once by a second one, and what becomes of its own Redis.

mod support;

use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quotabell::cli::catcher::{Answer, HttpCatcher};
use quotabell::types::Keys;
use quotabell::wire::Link;
use support::daemon::{Daemon, DaemonSetup, READY, page};
use support::eventually::{PATIENCE, eventually};
use support::outbox::Outbox;
use support::redis_server::{RedisServer, free_port};
use support::webhook_receiver::{secret, verify};
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio_util::sync::CancellationToken;

/// A daemon in the middle of a send: the receiver has the request and holds its answer until `gate` opens.
struct Sending {
    outbox: Outbox,
    catcher: HttpCatcher,
    gate: CancellationToken,
    daemon: Daemon,
    setup: DaemonSetup,
}

impl Sending {
    async fn begin() -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let gate = CancellationToken::new();
        let catcher = HttpCatcher::start([Answer::status(204).held_by(&gate)]).await.expect("a receiver");
        let contacts =
            serde_json::json!([{"id": "c", "channel": "webhook", "url": catcher.url("/"), "secret": secret(1)}]);
        outbox.set_contacts(&support::outbox::subject("alice"), &contacts.to_string()).await;
        let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__WEBHOOK__TIMEOUT", "10s");
        let daemon = setup.start().await;
        let _: String = outbox.run("XADD", &["usage", "*", "subject", "alice", "units", "4000"]).await;
        let mut sending = Self { outbox, catcher, gate, daemon, setup };
        let request = tokio::time::timeout(PATIENCE, sending.catcher.next()).await.expect("the send begins");
        verify(&request, &secret(1));
        sending
    }
}

async fn a_signal_drains(signal: Signal) {
    let Sending { outbox, mut catcher, gate, mut daemon, .. } = Sending::begin().await;
    let address = daemon.http().await;
    daemon.signal(signal);
    daemon.says("draining").await;
    let ready = page(address, "/readyz").await.expect("it still answers");
    assert_eq!((ready.status, ready.body.as_str()), (503, "not ready: draining\n"));
    let () = outbox.run("XADD", &["usage", "*", "subject", "bob"]).await;
    gate.cancel();
    let ended = daemon.ended().await;
    ended.expect_code(0, &["delivered", "drained"]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.delivered, totals.pending), (1, 0), "the running send was finished and settled");
    assert_eq!(totals.counted, 1, "nothing new was begun");
    assert!(catcher.try_next().is_none());
}

/// A deployment sends SIGTERM: what is being sent must be settled, or the customer hears it twice.
#[tokio::test]
async fn sigterm_finishes_the_running_send_and_settles_it() {
    a_signal_drains(Signal::SIGTERM).await;
}

/// Ctrl-C in a terminal is the same.
#[tokio::test]
async fn sigint_drains_in_the_same_way() {
    a_signal_drains(Signal::SIGINT).await;
}

/// Somebody who asks twice does not want to wait for a receiver that hangs.
#[tokio::test]
async fn a_second_signal_ends_at_once_and_the_send_is_taken_up_at_the_next_start() {
    for second in [Signal::SIGTERM, Signal::SIGINT] {
        let Sending { outbox, mut daemon, gate, .. } = Sending::begin().await;
        daemon.signal(Signal::SIGTERM);
        daemon.says("draining").await;
        daemon.signal(second);
        let error = "error: ended by a second signal before the drain was over";
        let hint = "hint: what was not settled is sent again by the next daemon, under the same id";
        daemon.ended().await.expect_code(1, &[error, hint]);
        let totals = outbox.assert_balanced().await;
        assert_eq!((totals.delivered, totals.pending), (0, 1), "the delivery is still due");
        gate.cancel();
    }
}

/// A receiver that hangs must not hold a deployment up for longer than configured.
#[tokio::test]
async fn the_drain_ends_at_its_deadline_and_the_send_is_repeated_later() {
    let Sending { outbox, mut catcher, gate, daemon, setup } = Sending::begin().await;
    // A second daemon with a short deadline takes the delivery over once the first one's lease has run out.
    daemon.kill().await;
    let id = support::outbox::subject("alice");
    let due: Vec<String> = outbox.run("ZRANGE", &[outbox.keys.due().as_str(), "0", "-1"]).await;
    let _: u64 = outbox.run("ZADD", &[outbox.keys.due().as_str(), "XX", "0", &due[0]]).await;
    catcher.then(Answer::status(204).held_by(&gate));
    let daemon = setup.env("QUOTABELL__SHUTDOWN__DRAIN", "300ms").start().await;
    tokio::time::timeout(PATIENCE, catcher.next()).await.expect("the second send begins");
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["the drain's deadline passed"]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.delivered, totals.pending), (0, 1), "the delivery of {id} is still due");
}

/// systemd with Type=notify kills a service that never says READY.
#[tokio::test]
async fn the_supervisor_hears_ready_and_stopping() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let server = RedisServer::start();
    let setup = DaemonSetup::on(&server.url()).env("NOTIFY_SOCKET", path.to_str().expect("UTF-8"));
    let mut daemon = setup.spawn();
    assert_eq!(heard(&socket).await, "READY=1");
    daemon.says(READY).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(heard(&socket).await, "STOPPING=1");
    daemon.ended().await.expect_code(0, &["drained"]);
}

/// Before Redis was reached there is nothing to drain and nothing to be ready for.
#[tokio::test]
async fn a_signal_while_redis_is_waited_for_ends_the_daemon() {
    let daemon = {
        let mut daemon = DaemonSetup::on(&format!("redis://127.0.0.1:{}", free_port())).spawn();
        daemon.says("waiting for Redis").await;
        daemon
    };
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["stopped before Redis was ready"]);
}

async fn heard(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await.expect("in time").expect("a message");
    String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
}

/// A folder and a port for an embedded server, which is killed when dropped, whoever left it behind.
struct Place {
    folder: TempDir,
    port: u16,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), port: free_port() }
    }

    fn setup(&self) -> DaemonSetup {
        DaemonSetup::on("embedded")
            .env("QUOTABELL__REDIS__EMBEDDED_PORT", &self.port.to_string())
            .env("QUOTABELL__REDIS__DATA_DIR", self.folder.path().to_str().expect("UTF-8"))
    }

    fn link(&self) -> Link {
        Link::new(redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a URL"))
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("embedded.json")
    }

    /// The process of the server, as the folder's record names it.
    fn pid(&self) -> Option<Pid> {
        let record: serde_json::Value = serde_json::from_slice(&std::fs::read(self.record()).ok()?).ok()?;
        // 0 would be our own process group.
        record["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 1).map(Pid::from_raw)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

async fn counted(link: &Link) -> u64 {
    let counted: Option<u64> =
        link.query(redis::cmd("HGET").arg(Keys::new("usage").totals()).arg("counted")).await.expect("it answers");
    counted.unwrap_or(0)
}

async fn add(link: &Link, events: u64) {
    for _ in 0..events {
        let _: String =
            link.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice")).await.expect("added");
    }
}

async fn all_counted(link: &Link, events: u64) {
    eventually("everything is counted", || async { (counted(link).await == events).then_some(()) }).await;
}

/// Producers go on writing to the embedded server while the daemon is dead; it must outlive a kill and end with a drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_redis_outlives_a_kill_and_ends_with_a_drain() {
    let place = Place::new();
    let mut daemon = place.setup().start().await;
    daemon.says("embedded redis started").await;
    let link = place.link();
    add(&link, 20).await;
    all_counted(&link, 20).await;
    let pid = place.pid().expect("the record names it");
    daemon.kill().await;

    add(&link, 7).await;
    let mut daemon = place.setup().start().await;
    daemon.says("embedded redis adopted").await;
    assert_eq!(place.pid(), Some(pid));
    all_counted(&link, 27).await;
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["the embedded redis has stopped", "drained"]);
    // The kernel keeps the entry of an adopted process until its new parent has waited for it.
    let gone = || async { (state_of(pid).is_none_or(|state| state == 'Z')).then_some(()) };
    tokio::time::timeout(Duration::from_secs(10), eventually("its process is gone", gone)).await.expect("in time");
    assert!(!place.record().exists());

    let mut daemon = place.setup().start().await;
    daemon.says("embedded redis started").await;
    let link = place.link();
    assert_eq!(counted(&link).await, 27, "its data was kept");
    add(&link, 1).await;
    all_counted(&link, 28).await;
    let child = place.pid().expect("the record names it");
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["the embedded redis has stopped"]);
    assert_eq!(kill(child, None), Err(Errno::ESRCH), "the daemon waited for its child");
}

/// The state letter of a process, `None` when there is none.
fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, the state follows the last one.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Ctrl-C reaches the whole group of the terminal: the embedded server must not die before the daemon has drained.
#[tokio::test]
async fn the_embedded_redis_has_a_process_group_of_its_own() {
    let place = Place::new();
    let daemon = place.setup().start().await;
    let pid = place.pid().expect("the record names it");
    assert_eq!(nix::unistd::getpgid(Some(pid)), Ok(pid));
    daemon.drain().await;
}
