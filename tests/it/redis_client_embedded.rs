//! The embedded server: started, left behind by a killed daemon, adopted, refused, stopped.

use std::ffi::{OsStr, OsString};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::redis_server::{RedisServer, free_port, tear_newest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::embedded::EmbeddedStart;
use quotabell::redis_client::{EmbeddedError, EmbeddedServer, RedisClient, RedisEndpoint};
use tempfile::TempDir;

/// No process has this id.
const NO_PROCESS: u32 = u32::MAX;

/// A folder and a port for one embedded server, which is killed on drop in any case.
struct Place {
    folder: TempDir,
    config: RedisConfig,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = RedisConfig {
            url: "embedded".into(),
            url_file: None,
            data_dir: folder.path().join("with a space").join("data"),
            embedded_port: free_port(),
            ca_file: None,
        };
        Self { folder, config }
    }

    async fn ensure(&self) -> Result<EmbeddedServer, EmbeddedError> {
        EmbeddedServer::ensure(&self.config).await
    }

    fn client(&self) -> RedisClient {
        RedisEndpoint::from_config(&self.config).expect("embedded").client("usage").expect("a client")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let record = std::fs::read_to_string(self.config.data_dir.join("embedded.json")).unwrap_or_default();
        if let Ok(record) = serde_json::from_str::<serde_json::Value>(&record)
            && let Some(pid) = record["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
            // 0 would be our own process group.
            && pid > 1
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn pid_of(server: &EmbeddedServer) -> Pid {
    Pid::from_raw(i32::try_from(server.pid()).expect("a process id"))
}

async fn get(place: &Place) -> Option<String> {
    place.client().query(redis::cmd("GET").arg("key")).await.expect("it answers")
}

/// Producers write to it without further configuration; their data must survive a stop.
#[tokio::test]
async fn it_starts_keeps_its_data_over_a_stop_and_loses_nothing() {
    let place = Place::new();
    let server = place.ensure().await.expect("it starts");
    assert_eq!((server.started(), server.port()), (EmbeddedStart::Started, place.config.embedded_port));
    assert_eq!(server.info().check_supported(), Ok(()));
    assert!(server.info().aof_enabled);
    let mode = std::fs::metadata(&place.config.data_dir).expect("the folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "readable by its owner only");
    assert!(place.config.data_dir.join("redis.log").exists());
    assert_eq!(getpgid(Some(pid_of(&server))), Ok(pid_of(&server)), "a process group of its own");
    let client = place.client();
    let () = client.query(redis::cmd("SET").arg("key").arg("kept")).await.expect("set");
    let pid = pid_of(&server);
    server.stop().await.expect("it stops");
    assert!(kill(pid, None).is_err(), "the process is gone");
    std::net::TcpStream::connect(("127.0.0.1", place.config.embedded_port)).expect_err("nobody listens");

    let again = place.ensure().await.expect("it starts again");
    assert_eq!(again.started(), EmbeddedStart::Started);
    assert_eq!(get(&place).await.as_deref(), Some("kept"));
    again.stop().await.expect("it stops");
}

/// A killed daemon leaves the server behind; the next one must neither start a second one on the same file nor refuse.
#[tokio::test]
async fn a_server_left_behind_is_adopted_and_can_be_stopped() {
    let place = Place::new();
    let first = place.ensure().await.expect("it starts");
    let pid = first.pid();
    let () = place.client().query(redis::cmd("SET").arg("key").arg("kept")).await.expect("set");
    drop(first);
    let second = place.ensure().await.expect("it is adopted");
    assert_eq!((second.started(), second.pid()), (EmbeddedStart::Adopted, pid));
    assert_eq!(get(&place).await.as_deref(), Some("kept"));
    second.stop().await.expect("it stops");
    std::net::TcpStream::connect(("127.0.0.1", place.config.embedded_port)).expect_err("nobody listens");
}

/// A server of an older version has no password: it must not stay open, nor look foreign.
#[tokio::test]
async fn an_adopted_server_without_a_password_gets_one() {
    let place = Place::new();
    let first = place.ensure().await.expect("it starts");
    let () = place.client().query(redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("")).await.expect("set");
    drop(first);
    let second = place.ensure().await.expect("it is adopted");
    assert_eq!(second.started(), EmbeddedStart::Adopted);
    let stranger = RedisEndpoint::local(second.port()).client("usage").expect("a client");
    let refused = stranger.query::<String>(&redis::cmd("PING")).await.expect_err("no password");
    assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
    assert_eq!(get(&place).await, None);
    second.stop().await.expect("it stops");
}

/// A daemon may die before it has learned its server's run id.
#[tokio::test]
async fn a_server_whose_run_id_was_not_noted_yet_is_known_by_its_process_id() {
    let place = Place::new();
    let first = place.ensure().await.expect("it starts");
    let record = format!(r#"{{"pid":{},"port":{},"run_id":null}}"#, first.pid(), first.port());
    std::fs::write(place.config.data_dir.join("embedded.json"), record).expect("a record");
    assert_eq!(place.ensure().await.expect("it is adopted").started(), EmbeddedStart::Adopted);
    first.stop().await.expect("it stops");
}

/// A crashed server is restarted with its data.
#[tokio::test]
async fn a_server_that_was_killed_is_started_again() {
    let place = Place::new();
    let first = place.ensure().await.expect("it starts");
    let client = place.client();
    let () = client.query(redis::cmd("SET").arg("key").arg("kept")).await.expect("set");
    let () = client.query(redis::cmd("CONFIG").arg("SET").arg("appendfsync").arg("always")).await.expect("set");
    let () = client.query(redis::cmd("SET").arg("other").arg("x")).await.expect("set");
    kill(pid_of(&first), Signal::SIGKILL).expect("it runs");
    let gone = async { while client.query::<String>(&redis::cmd("PING")).await.is_ok() {} };
    tokio::time::timeout(WAIT_MAX, gone).await.expect("it is gone");
    let second = place.ensure().await.expect("it starts again");
    assert_eq!(second.started(), EmbeddedStart::Started);
    assert_ne!(second.pid(), first.pid());
    assert_eq!(get(&place).await.as_deref(), Some("kept"));
    first.stop().await.expect("it has ended already");
    assert_eq!(get(&place).await.as_deref(), Some("kept"));
    second.stop().await.expect("it stops");
}

/// The daemon must never count into a foreign Redis or stop it.
#[tokio::test]
async fn a_foreign_listener_on_the_port_is_refused_and_left_alone() {
    let mut place = Place::new();
    let foreign = RedisServer::start();
    let guarded = RedisServer::start_with(&["--save", "", "--requirepass", "x"]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let silent_port = silent.local_addr().expect("an address").port();
    for (port, record) in [
        (foreign.port(), None),
        (guarded.port(), None),
        (silent_port, None),
        // Our server ran there once; another one uses the port now.
        (foreign.port(), Some(format!(r#"{{"pid":{NO_PROCESS},"port":{},"run_id":"before"}}"#, foreign.port()))),
    ] {
        place.config.embedded_port = port;
        if let Some(record) = record {
            std::fs::write(place.config.data_dir.join("embedded.json"), record).expect("a record");
        }
        let error = place.ensure().await.expect_err("not ours");
        assert!(matches!(error, EmbeddedError::Foreign { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(&port.to_string()) && said.contains("redis.embedded_port"), "{said}");
    }
    let pong: String = foreign.client().query(&redis::cmd("PING")).await.expect("it still runs");
    assert_eq!(pong, "PONG");
}

/// Two servers on one append-only file would corrupt it.
#[tokio::test]
async fn a_folder_whose_server_runs_on_another_port_is_refused() {
    let mut place = Place::new();
    let server = place.ensure().await.expect("it starts");
    place.config.embedded_port = free_port();
    let error = place.ensure().await.expect_err("the folder is in use");
    assert!(matches!(error, EmbeddedError::OtherPort { .. }), "{error}");
    assert!(error.to_string().contains(&server.port().to_string()), "{error}");
    server.stop().await.expect("it stops");
    place.ensure().await.expect("the folder is free").stop().await.expect("it stops");
}

/// The error must say how to install the server.
#[tokio::test]
async fn no_binary_is_an_error_that_tells_how_to_get_one() {
    let place = Place::new();
    let search = OsString::from(place.folder.path());
    let error = EmbeddedServer::ensure_from(&place.config, &search).await.expect_err("nothing there");
    insta::assert_snapshot!(error, @"no redis-server or valkey-server on PATH; install one (Debian, Ubuntu: apt-get install redis-server; Fedora: dnf install valkey; macOS: brew install redis), or set redis.url to a server that runs");
}

fn script(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// The log of a server that ends at once has the reason; the error must show it.
#[tokio::test]
async fn a_server_that_ends_at_once_is_an_error_with_its_last_words() {
    let place = Place::new();
    script(place.folder.path(), "redis-server", "#!/bin/sh\necho 'the disk is on fire' > redis.log\nexit 3\n");
    let error = EmbeddedServer::ensure_from(&place.config, place.folder.path().as_os_str()).await.expect_err("it ends");
    let said = error.to_string();
    assert!(said.contains("the disk is on fire") && said.contains("exit status: 3"), "{said}");
    place.ensure().await.expect("nothing stands in the way").stop().await.expect("it stops");
}

/// An error must name a program that can't be started, or a folder that can't be created.
#[tokio::test]
async fn what_cannot_be_used_is_named() {
    let mut place = Place::new();
    script(place.folder.path(), "redis-server", "#!/no/such/interpreter\n");
    let error =
        EmbeddedServer::ensure_from(&place.config, place.folder.path().as_os_str()).await.expect_err("no program");
    assert!(matches!(error, EmbeddedError::Start { .. }), "{error}");
    let file = place.folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    place.config.data_dir = file.join("data");
    let error = place.ensure().await.expect_err("no folder");
    assert!(matches!(error, EmbeddedError::DataDir { .. }) && error.to_string().contains("file/data"), "{error}");
}

/// Data that takes long to load must be waited for, by the starter and by an adopter.
#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for_and_adopted() {
    let place = Place::new();
    let first = place.ensure().await.expect("it starts");
    let client = place.client();
    let fill = "for i = 1, 3000 do redis.call('SET', 'key' .. i, 'x') end redis.call('SET', 'key', 'last')";
    let () = client.query(redis::cmd("EVAL").arg(fill).arg(0)).await.expect("filled");
    first.stop().await.expect("it stops");
    // The real server, slowed down so that loading takes some seconds.
    let real = which("redis-server");
    let slow = format!("#!/bin/sh\nexec {real} \"$@\" --key-load-delay 1000\n");
    script(place.folder.path(), "redis-server", &slow);
    let search = place.folder.path().as_os_str();
    let starting = EmbeddedServer::ensure_from(&place.config, search);
    let given_up = tokio::time::timeout(Duration::from_millis(1500), starting).await;
    assert!(given_up.is_err(), "it loads for longer");
    let adopted = EmbeddedServer::ensure_from(&place.config, OsStr::new("")).await.expect("it is adopted");
    assert_eq!(adopted.started(), EmbeddedStart::Adopted);
    assert_eq!(get(&place).await.as_deref(), Some("last"));
    adopted.stop().await.expect("it stops");
}

fn which(name: &str) -> String {
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output().expect("a shell");
    String::from_utf8(found.stdout).expect("a path").trim().to_owned()
}

/// Waits until the append-only file contains everything that was acknowledged. With `everysec` that is usually the
/// case; on a busy disk it may take two seconds.
async fn written(place: &Place) {
    eventually("the file has it", || async {
        let info: String = place.client().query(redis::cmd("INFO").arg("persistence")).await.ok()?;
        info.lines().any(|line| line == "aof_buffer_length:0").then_some(())
    })
    .await;
}

/// A file that ends inside a transaction would lose everything appended later, if it is torn once more.
#[tokio::test]
async fn a_file_torn_inside_a_transaction_is_written_anew() {
    let place = Place::new();
    let files = place.config.data_dir.join("appendonlydir");
    let killed = async |server: EmbeddedServer| {
        kill(pid_of(&server), Signal::SIGKILL).expect("it ran");
        let mut server = server;
        server.ended().await;
    };
    let server = place.ensure().await.expect("it starts");
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("SET").arg("a").arg(1).ignore().cmd("SET").arg("other").arg(1).ignore();
    let () = place.client().pipe(&transaction).await.expect("done");
    written(&place).await;
    killed(server).await;
    tear_newest(&files, "*1\r\n$4\r\nEXEC\r\n".len() as u64 + 3);

    let server = place.ensure().await.expect("it starts again");
    eventually("the old file is removed", || async {
        (!files.join("appendonly.aof.1.incr.aof").exists()).then_some(())
    })
    .await;
    let () = place.client().query(redis::cmd("SET").arg("key").arg("kept")).await.expect("set");
    let () = place.client().query(redis::cmd("SET").arg("last").arg("torn")).await.expect("set");
    written(&place).await;
    killed(server).await;
    tear_newest(&files, 3);
    let server = place.ensure().await.expect("it starts once more");
    assert_eq!(get(&place).await.as_deref(), Some("kept"));
    server.stop().await.expect("it stops");
}

/// A daemon that is ready before the rewrite of the file would accept events that may be lost; so would one that adopts
/// the server of a killed daemon.
#[tokio::test]
async fn a_server_is_ready_when_its_file_is_written_anew() {
    let place = Place::new();
    let first = place.ensure().await.expect("it starts");
    let fill = "for i = 1, 20 do redis.call('SET', 'key' .. i, 'x') end";
    let () = place.client().query(redis::cmd("EVAL").arg(fill).arg(0)).await.expect("filled");
    first.stop().await.expect("it stops");
    // The real server, slowed down so that the rewrite takes some seconds.
    let real = which("redis-server");
    script(
        place.folder.path(),
        "redis-server",
        &format!("#!/bin/sh\nexec {real} \"$@\" --rdb-key-save-delay 100000\n"),
    );
    let search = place.folder.path().as_os_str();
    let persistence =
        async || -> String { place.client().query(redis::cmd("INFO").arg("persistence")).await.expect("INFO") };
    let written =
        |info: &str| info.contains("aof_rewrite_in_progress:0") && !info.contains("aof_last_rewrite_time_sec:-1");
    let starting = EmbeddedServer::ensure_from(&place.config, search);
    let given_up = tokio::time::timeout(Duration::from_millis(1_000), starting).await;
    assert!(given_up.is_err(), "it writes for longer");
    assert!(!written(&persistence().await));
    let adopted = EmbeddedServer::ensure_from(&place.config, OsStr::new("")).await.expect("it is adopted");
    assert_eq!(adopted.started(), EmbeddedStart::Adopted);
    assert!(written(&persistence().await));
    adopted.stop().await.expect("it stops");
}
