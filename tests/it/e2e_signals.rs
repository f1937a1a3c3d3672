//! How the daemon ends: drained by a signal, at once by a second one.

use crate::support;
use crate::support::daemon::{Daemon, DaemonSetup, READY, http_get};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::Outbox;
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::webhook_receiver::{secret, verify};
use nix::sys::signal::Signal;
use quotabell::types::DeliveryId;
use tokio::net::UnixDatagram;
use tokio_util::sync::CancellationToken;

/// A daemon in the middle of a send: the receiver has the request and responds only after `gate` opens.
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
        let request = tokio::time::timeout(WAIT_MAX, sending.catcher.next()).await.expect("the send begins");
        verify(&request, &secret(1));
        sending
    }
}

async fn a_signal_drains(signal: Signal) {
    let Sending { outbox, mut catcher, gate, mut daemon, .. } = Sending::begin().await;
    let address = daemon.http().await;
    daemon.signal(signal);
    daemon.says("draining").await;
    let ready = http_get(address, "/readyz").await.expect("it still answers");
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

/// SIGTERM in a deployment: a running send must be settled, or the customer gets it twice.
#[tokio::test]
async fn sigterm_finishes_the_running_send_and_settles_it() {
    a_signal_drains(Signal::SIGTERM).await;
}

/// Ctrl-C in a terminal has the same effect.
#[tokio::test]
async fn sigint_drains_in_the_same_way() {
    a_signal_drains(Signal::SIGINT).await;
}

/// After a second signal nobody wants to wait for a hanging receiver.
#[tokio::test]
async fn a_second_signal_ends_at_once_and_the_send_is_taken_up_at_the_next_start() {
    for second in [Signal::SIGTERM, Signal::SIGINT] {
        let Sending { outbox, mut daemon, gate, .. } = Sending::begin().await;
        daemon.signal(Signal::SIGTERM);
        daemon.says("draining").await;
        let error = "error: ended by a second signal before the drain was over";
        let hint = "hint: the next daemon sends unsettled deliveries again under the same ids";
        daemon.ended_by(second).await.expect_code(1, &[error, hint]);
        let totals = outbox.assert_balanced().await;
        assert_eq!((totals.delivered, totals.pending), (0, 1), "the delivery is still due");
        gate.cancel();
    }
}

/// `timeout` signals its child and then its group: that is one request, and the send must not be repeated.
#[tokio::test]
async fn signals_that_come_together_are_one() {
    let Sending { outbox, mut daemon, gate, .. } = Sending::begin().await;
    daemon.signal(Signal::SIGTERM);
    daemon.signal(Signal::SIGINT);
    daemon.says("was ignored").await;
    gate.cancel();
    daemon.ended().await.expect_code(0, &["delivered", "drained"]);
    assert_eq!(outbox.assert_balanced().await.delivered, 1);
}

/// A hanging receiver must not delay a deployment beyond the configured time.
#[tokio::test]
async fn the_drain_ends_at_its_deadline_and_the_send_is_repeated_later() {
    let Sending { outbox, mut catcher, gate, daemon, setup } = Sending::begin().await;
    // A second daemon with a short deadline takes over the delivery after the first one's lease has ended.
    daemon.kill().await;
    let id = support::outbox::subject("alice");
    let queued = outbox.queued().await;
    outbox.let_time_pass(&DeliveryId::from_stored(queued.first().expect("one is leased"))).await;
    catcher.then(Answer::status(204).held_by(&gate));
    let daemon = setup.env("QUOTABELL__SHUTDOWN__DRAIN", "300ms").start().await;
    tokio::time::timeout(WAIT_MAX, catcher.next()).await.expect("the second send begins");
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["the drain's deadline passed"]);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.delivered, totals.pending), (0, 1), "the delivery of {id} is still due");
}

/// systemd with Type=notify kills a service that never reports READY.
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

/// In containers the socket has an abstract name: such a service used to be killed because it never reported READY.
#[tokio::test]
async fn a_supervisor_in_the_abstract_namespace_hears_it_too() {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("quotabell-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let socket = UnixDatagram::from_std(socket).expect("a socket");
    let server = RedisServer::start();
    let daemon = DaemonSetup::on(&server.url()).env("NOTIFY_SOCKET", &format!("@{name}")).spawn();
    assert_eq!(heard(&socket).await, "READY=1");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(heard(&socket).await, "STOPPING=1");
    daemon.ended().await.expect_code(0, &["drained"]);
}

/// Before Redis was reached there is nothing to drain.
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
    let length = tokio::time::timeout(WAIT_MAX, socket.recv(&mut buffer)).await.expect("in time").expect("a message");
    String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
}

/// A second signal after a third of a second used to be ignored.
#[tokio::test]
async fn a_signal_a_quarter_of_a_second_after_the_first_is_a_second_one() {
    let Sending { mut daemon, gate, .. } = Sending::begin().await;
    daemon.signal(Signal::SIGTERM);
    daemon.says("draining").await;
    let drains = std::time::Instant::now();
    let quarter = std::time::Duration::from_millis(250);
    eventually("a quarter of a second", || async { (drains.elapsed() >= quarter).then_some(()) }).await;
    daemon.signal(Signal::SIGTERM);
    daemon.says("ended by a second signal").await;
    daemon.ended().await.expect_code(1, &[]);
    gate.cancel();
}
