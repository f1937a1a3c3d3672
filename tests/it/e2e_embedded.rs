//! The daemon and its embedded Redis: left behind, adopted, shared, died.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::support::binary::quotabell;
use crate::support::daemon::{DaemonSetup, READY, own_address};
use crate::support::eventually::eventually;
use crate::support::redis_server::free_port;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quotabell::redis_client::RedisClient;
use quotabell::types::Keys;
use tempfile::TempDir;

/// A folder and a port for an embedded server, which is killed on drop in any case.
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

    fn client(&self) -> RedisClient {
        let password = std::fs::read_to_string(self.folder.path().join("redis-password")).expect("a password");
        self.client_as(&format!(":{password}@"))
    }

    /// With this login: empty, or the part of a URL before the host.
    fn client_as(&self, login: &str) -> RedisClient {
        RedisClient::new(redis::Client::open(format!("redis://{login}127.0.0.1:{}", self.port)).expect("a URL"))
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("embedded.json")
    }

    /// The server's process id, from the folder's record.
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

async fn counted(client: &RedisClient) -> u64 {
    let counted: Option<u64> =
        client.query(redis::cmd("HGET").arg(Keys::new("usage").totals()).arg("counted")).await.expect("it answers");
    counted.unwrap_or(0)
}

async fn add(client: &RedisClient, events: u64) {
    for _ in 0..events {
        let _: String =
            client.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice")).await.expect("added");
    }
}

async fn all_counted(client: &RedisClient, events: u64) {
    eventually("everything is counted", || async { (counted(client).await == events).then_some(()) }).await;
}

/// Producers keep writing to the embedded server while the daemon is dead; it must survive a kill and end with a drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_redis_outlives_a_kill_and_ends_with_a_drain() {
    let place = Place::new();
    // A successor on the address of the killed daemon need not wait for its lease to end.
    let setup = place.setup().at(own_address());
    let mut daemon = setup.start().await;
    daemon.says("embedded redis started").await;
    let client = place.client();
    add(&client, 20).await;
    all_counted(&client, 20).await;
    let pid = place.pid().expect("the record names it");
    daemon.kill().await;

    add(&client, 7).await;
    let mut daemon = setup.start().await;
    daemon.says("embedded redis adopted").await;
    assert_eq!(place.pid(), Some(pid));
    all_counted(&client, 27).await;
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["the embedded redis has stopped", "drained"]);
    // The kernel keeps the entry of an adopted process until its new parent has waited for it.
    let gone = || async { (state_of(pid).is_none_or(|state| state == 'Z')).then_some(()) };
    eventually("its process is gone", gone).await;
    assert!(!place.record().exists());

    let mut daemon = place.setup().start().await;
    daemon.says("embedded redis started").await;
    let client = place.client();
    assert_eq!(counted(&client).await, 27, "its data was kept");
    add(&client, 1).await;
    all_counted(&client, 28).await;
    let child = place.pid().expect("the record names it");
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["the embedded redis has stopped"]);
    assert_eq!(kill(child, None), Err(Errno::ESRCH), "the daemon waited for its child");
}

/// The state letter of a process; `None` if there is none.
fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the state follows the last parenthesis.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The kernel clears huge pages each time: a seventh of the daemon's time while it sends.
#[tokio::test]
async fn the_daemon_takes_small_pages_of_memory() {
    let place = Place::new();
    let daemon = place.setup().start().await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it runs");
    assert!(status.lines().any(|line| line == "THP_enabled:\t0"), "{status}");
    daemon.drain().await;
}

/// Ctrl-C reaches the terminal's whole group: the embedded server must not die before the daemon has drained.
#[tokio::test]
async fn the_embedded_redis_has_a_process_group_of_its_own() {
    let place = Place::new();
    let daemon = place.setup().start().await;
    let pid = place.pid().expect("the record names it");
    assert_eq!(nix::unistd::getpgid(Some(pid)), Ok(pid));
    daemon.drain().await;
}

/// Two daemons share the server: an upgrade that starts the new one before it stops the old one must not lose Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_redis_is_stopped_by_the_last_daemon_only() {
    let place = Place::new();
    // Both at once: one of them starts it.
    let (mut old, mut new) = (place.setup().spawn(), place.setup().spawn());
    old.says(READY).await;
    new.says(READY).await;
    let started = [&old, &new].map(|daemon| daemon.has_said("embedded redis started"));
    assert!(started[0] != started[1], "one starts it, one adopts it: {started:?}");
    let client = place.client();
    add(&client, 5).await;
    all_counted(&client, 5).await;
    let pid = place.pid().expect("the record names it");
    old.signal(Signal::SIGTERM);
    old.ended().await.expect_code(0, &["the embedded redis keeps running: another quotabell uses it", "drained"]);
    add(&client, 5).await;
    all_counted(&client, 10).await;
    assert_eq!(place.pid(), Some(pid));
    new.signal(Signal::SIGTERM);
    new.ended().await.expect_code(0, &["the embedded redis has stopped", "drained"]);
    assert!(!place.record().exists());
}

/// A server that was killed or ran out of memory must be restarted without an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_redis_that_dies_is_started_again_and_counting_goes_on() {
    let place = Place::new();
    let (mut one, mut other) = (place.setup().spawn(), place.setup().spawn());
    one.says(READY).await;
    other.says(READY).await;
    let client = place.client();
    let () = client.query(redis::cmd("CONFIG").arg("SET").arg("appendfsync").arg("always")).await.expect("set");
    add(&client, 5).await;
    all_counted(&client, 5).await;
    let first = place.pid().expect("the record names it");
    kill(first, Signal::SIGKILL).expect("it runs");
    one.says("the embedded redis ended: starting it again").await;
    other.says("the embedded redis ended: starting it again").await;
    let again = || async {
        let answers = client.query::<String>(&redis::cmd("PING")).await.is_ok();
        place.pid().filter(|pid| answers && *pid != first)
    };
    eventually("another one runs", again).await;
    add(&client, 5).await;
    all_counted(&client, 10).await;
    one.drain().await;
    other.signal(Signal::SIGTERM);
    other.ended().await.expect_code(0, &["the embedded redis has stopped", "drained"]);
}

/// If a foreign server has taken the port meanwhile, the daemon must not count into its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_in_the_place_of_the_embedded_redis_ends_the_daemon() {
    let place = Place::new();
    let mut daemon = place.setup().env("QUOTABELL__SHUTDOWN__DRAIN", "300ms").start().await;
    let pid = place.pid().expect("the record names it");
    std::fs::remove_file(place.record()).expect("the record is there");
    // On the restart the port is taken: a listener takes it as soon as it is free.
    kill(pid, Signal::SIGKILL).expect("it runs");
    let _stranger =
        eventually("the port is free", || async { std::net::TcpListener::bind(("127.0.0.1", place.port)).ok() }).await;
    daemon.says("the embedded redis ended").await;
    let ended = daemon.ended().await;
    assert!(ended.status.code() == Some(1), "{}", ended.log);
    assert!(ended.log.contains("is taken by a server that is not the one of redis.data_dir"), "{}", ended.log);
}

/// A server with an append-only file ignores a snapshot: an operator who restores one would get an empty Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_restored_into_the_data_folder_is_loaded_and_kept() {
    let place = Place::new();
    let daemon = place.setup().start().await;
    let client = place.client();
    add(&client, 20).await;
    all_counted(&client, 20).await;
    let () = client.query(&redis::cmd("SAVE")).await.expect("a snapshot");
    add(&client, 5).await;
    all_counted(&client, 25).await;
    daemon.drain().await;
    std::fs::remove_dir_all(place.folder.path().join("appendonlydir")).expect("it is there");

    let daemon = place.setup().start().await;
    let client = place.client();
    assert_eq!(counted(&client).await, 20, "the state of the snapshot");
    add(&client, 1).await;
    all_counted(&client, 21).await;
    daemon.drain().await;
    std::fs::remove_file(place.folder.path().join("dump.rdb")).expect("it is there");
    let daemon = place.setup().start().await;
    assert_eq!(counted(&place.client()).await, 21, "from the append-only file");
    daemon.drain().await;
}

/// A folder that lost its files must not look like a first start, because a day's events would be counted from zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_whose_data_folder_lost_its_files_waits_for_the_operator() {
    let place = Place::new();
    let daemon = place.setup().start().await;
    let client = place.client();
    add(&client, 3).await;
    all_counted(&client, 3).await;
    daemon.drain().await;
    std::fs::remove_dir_all(place.folder.path().join("appendonlydir")).expect("it is there");
    let mut daemon = place.setup().spawn();
    let line = daemon.says("Redis is empty, but ").await;
    let record = place.folder.path().join("quotabell-deployments.json");
    assert!(line.contains(record.to_str().expect("UTF-8")), "{line}");
    assert_eq!(daemon.get("/readyz").await.status, 503);
    assert!(!daemon.has_said(READY));
    std::fs::write(&record, "").expect("written");
    daemon.says("Redis is empty, and a record of its deployment can't be read").await;
    assert!(!daemon.has_said(READY));
    std::fs::remove_file(&record).expect("the record is there");
    daemon.says(READY).await;
    add(&place.client(), 2).await;
    all_counted(&place.client(), 2).await;
    daemon.drain().await;
}

/// Every user of the machine can reach the server on 127.0.0.1. Neither the list of processes nor the log may show its
/// password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_users_who_can_read_the_data_folder_get_into_the_embedded_redis() {
    let place = Place::new();
    let folder = place.folder.path();
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("its mode");
    let mut daemon = place.setup().start().await;
    let refused = place.client_as("").query::<String>(&redis::cmd("PING")).await.expect_err("no password");
    assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
    daemon.says("other users could read the data folder: closed it to them").await;
    let mode = |path: PathBuf| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let file = folder.join("redis-password");
    assert_eq!((mode(folder.to_owned()), mode(file.clone())), (0o700, 0o600));

    let password = std::fs::read_to_string(&file).expect("a password");
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", place.pid().expect("it runs"))).expect("it");
    assert!(!arguments.contains(&password), "{arguments}");
    let line = daemon.says("embedded redis started").await;
    assert!(line.contains(&format!("redis://127.0.0.1:{}, password and data in", place.port)), "{line}");

    let command = |words: &str| {
        quotabell(words.split(' '))
            .redis("embedded")
            .env("QUOTABELL__REDIS__EMBEDDED_PORT", place.port.to_string())
            .env("QUOTABELL__REDIS__DATA_DIR", folder)
            .run()
    };
    command("emit --subject alice --count 3").expect_done();
    all_counted(&place.client(), 3).await;
    let checked = command("check-config");
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    daemon.signal(Signal::SIGTERM);
    let log = daemon.ended().await.log;
    assert!(![checked.stdout, checked.stderr, log].concat().contains(&password));
}
