//! Connections of both kinds to a real server: every kind of address, every error, and recovery.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::eventually::WAIT_MAX;
use crate::support::redis_server::{RedisServer, free_port};
use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::server::{ServerReadiness, ServerRole};
use quotabell::redis_client::{
    ErrorKind, RedisClient, RedisEndpoint, Script, StreamReader, error_kind, inspect, install_crypto,
};
use redis::RedisError;
use tokio::io::AsyncReadExt as _;

fn config(url: &str) -> RedisConfig {
    RedisConfig { url: url.into(), url_file: None, data_dir: "data".into(), embedded_port: 1, ca_file: None }
}

fn target(url: &str) -> RedisEndpoint {
    RedisEndpoint::from_config(&config(url)).expect("a valid URL")
}

fn client(target: &RedisEndpoint) -> RedisClient {
    target.client("usage").expect("a client")
}

async fn set(client: &RedisClient) -> Result<(), RedisError> {
    client.query(redis::cmd("SET").arg("key").arg("value")).await
}

/// Both kinds of connection reach the target: one writes an entry, the other reads it.
async fn assert_both_reach(target: &RedisEndpoint) {
    let client = client(target);
    let () = client.query(redis::cmd("DEL").arg("usage")).await.expect("the client");
    let id: String =
        client.query(redis::cmd("XADD").arg("usage").arg("*").arg("a").arg("b")).await.expect("the client");
    let mut reader = StreamReader::connect(target, "usage").await.expect("the reader");
    reader.request("0-0", 1, None).await.expect("the request is written");
    let received = reader.receive().await.expect("a reply");
    assert_eq!(received.last().map(|last| last.to_string()), Some(id));
}

/// The errors of both kinds of connection at a target that refuses them.
async fn faults(target: &RedisEndpoint) -> [ErrorKind; 2] {
    let by_client = error_kind(&set(&client(target)).await.expect_err("the client is refused"));
    let by_reader = match StreamReader::connect(target, "usage").await {
        Err(error) => error.error_kind(),
        Ok(mut reader) => match reader.request("0-0", 1, None).await {
            Err(error) => error.error_kind(),
            Ok(()) => reader.receive().await.expect_err("the reader is refused").error_kind(),
        },
    };
    [by_client, by_reader]
}

/// A database, a password or a user that only one kind uses would split the data.
#[tokio::test]
async fn a_server_is_reached_with_password_user_and_database_over_tcp_and_unix_socket() {
    let server = RedisServer::start_with(&[
        "--save",
        "",
        "--requirepass",
        "p#/ %w",
        "--user",
        "alice",
        "on",
        ">s+c:r@t",
        "~*",
        "&*",
        "+@all",
    ]);
    let port = server.port();
    let socket = server.socket();
    let socket = socket.display();
    for (db, url) in [
        (1, format!("redis://:p%23%2F%20%25w@127.0.0.1:{port}/1")),
        (2, format!("redis://alice:s+c%3Ar%40t@localhost:{port}/2")),
        (3, format!("redis+unix://{socket}?db=3&pass=p%23/%20%25w")),
        (4, format!("unix://{socket}?db=4&user=alice&pass=s+c:r@t")),
    ] {
        let target = target(&url);
        assert_both_reach(&target).await;
        let keyspace: String = client(&target).query(redis::cmd("INFO").arg("keyspace")).await.expect("INFO");
        assert!(keyspace.contains(&format!("db{db}:keys=1")), "{url}: {keyspace}");
        let primary = target.ask_primary_of("usage").await.expect("one server is always known");
        let resp3 = primary.node().client_resp3().expect("a client");
        let mut resp3 = resp3.get_multiplexed_async_connection().await.expect("a RESP3 connection");
        let length: usize = redis::cmd("XLEN").arg("usage").query_async(&mut resp3).await.expect("the same database");
        assert_eq!(length, 1);
    }
}

/// IPv6 hosts are in brackets only in a URL.
#[tokio::test]
async fn a_server_is_reached_over_ipv6() {
    let server = RedisServer::start_with(&["--save", "", "--bind", "127.0.0.1", "::1"]);
    assert_both_reach(&target(&format!("redis://[::1]:{}/1", server.port()))).await;
}

/// An empty list must not fail a whole call.
#[tokio::test]
async fn a_pipeline_without_commands_answers_nothing() {
    let server = RedisServer::start();
    let client = client(&target(&server.url()));
    for pipeline in [redis::pipe(), redis::pipe().atomic().clone(), redis::pipe().ignore_errors().clone()] {
        assert_eq!(client.pipe::<Vec<String>>(&pipeline).await, Ok(Vec::new()));
    }
}

/// A certificate authority and its certificates, as PEM files.
fn certificates(directory: &Path) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let authority_pem = authority.self_signed(&authority_key).expect("a certificate").pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(names).expect("parameters").signed_by(&key, &issuer);
    for (name, pem) in [
        ("ca.pem", authority_pem),
        ("server.pem", certificate.expect("a certificate").pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        std::fs::write(directory.join(name), pem).expect("a file");
    }
}

/// TLS without verification protects nothing; TLS that refuses the right server stops everything.
#[tokio::test]
async fn tls_reaches_the_server_that_the_authority_vouches_for_and_no_other() {
    install_crypto();
    install_crypto();
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tls_port = free_port();
    let _server = RedisServer::start_with(&[
        "--save",
        "",
        "--requirepass",
        "s3cret",
        "--tls-auth-clients",
        "no",
        "--tls-port",
        &tls_port.to_string(),
        "--tls-cert-file",
        &path("server.pem"),
        "--tls-key-file",
        &path("key.pem"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
    ]);
    for host in ["127.0.0.1", "localhost"] {
        let mut trusted = config(&format!("rediss://:s3cret@{host}:{tls_port}/1"));
        trusted.ca_file = Some(folder.path().join("ca.pem"));
        let target = RedisEndpoint::from_config(&trusted).expect("a valid URL");
        assert!(target.to_string().starts_with("rediss://"));
        assert_both_reach(&target).await;
    }

    let other = tempfile::tempdir().expect("a folder");
    certificates(other.path());
    let mut untrusted = config(&format!("rediss://:s3cret@localhost:{tls_port}/1"));
    untrusted.ca_file = Some(other.path().join("ca.pem"));
    let target = RedisEndpoint::from_config(&untrusted).expect("a valid URL");
    let error = set(&client(&target)).await.expect_err("another authority");
    assert!(error.to_string().contains("certificate"), "{error}");
    StreamReader::connect(&target, "usage").await.expect_err("another authority");
}

/// A wrong password must end the daemon with a reason; as an unreachable server it would be retried forever.
#[tokio::test]
async fn a_wrong_missing_or_needless_login_is_a_login_fault() {
    let server = RedisServer::start_with(&[
        "--save",
        "",
        "--requirepass",
        "s3cret",
        "--user",
        "alice",
        "on",
        ">a",
        "~*",
        "+@all",
        "-select",
    ]);
    let at = format!("127.0.0.1:{}", server.port());
    for url in [
        format!("redis://:wrong@{at}"),
        format!("redis://nobody:s3cret@{at}/1"),
        format!("redis://alice@{at}"),
        format!("redis://{at}"),
        format!("redis://{at}/1"),
    ] {
        assert_eq!(faults(&target(&url)).await, [ErrorKind::Login; 2], "{url}");
    }
    assert_eq!(faults(&target(&format!("redis://alice:a@{at}/1"))).await, [ErrorKind::Denied; 2]);
    assert_eq!(faults(&target(&format!("redis://:s3cret@{at}/99"))).await, [ErrorKind::Database; 2]);
    let error = StreamReader::connect(&target(&format!("redis://:wr0ng@{at}")), "usage").await.expect_err("wrong");
    assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error:?}");
}

/// A missing right must be named at start, also in scripts and pipelines.
#[tokio::test]
async fn missing_permissions_are_denied_in_commands_pipelines_and_scripts() {
    let server = RedisServer::start_with(&["--save", "", "--user", "bob", "on", ">b", "~usage*", "+@all", "-set"]);
    let client = client(&target(&server.url().replace("redis://", "redis://bob:b@")));
    let error = set(&client).await.expect_err("bob may not SET");
    assert_eq!(error_kind(&error), ErrorKind::Denied, "{error}");
    let error = client.query::<()>(redis::cmd("GET").arg("other")).await.expect_err("not bob's key");
    assert_eq!(error_kind(&error), ErrorKind::Denied, "{error}");
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING").cmd("SET").arg("usage").arg("x");
    let error = client.pipe::<Vec<String>>(&pipeline).await.expect_err("bob may not SET");
    assert_eq!(error_kind(&error), ErrorKind::Denied, "{error}");
    let script = Script::new("#!lua\nreturn redis.call('SET', KEYS[1], 'x')");
    let error = script.call().key("usage").run::<()>(&client).await.expect_err("bob may not SET");
    assert_eq!(error_kind(&error), ErrorKind::Denied, "{error}");
}

/// One of our keys with a wrong type stops its partition; a full server is waited for.
#[tokio::test]
async fn wrong_types_and_full_memory_are_told_apart_in_commands_pipelines_and_scripts() {
    let server = RedisServer::start();
    let client = server.client();
    set(&client).await.expect("set");
    let error = client.query::<()>(redis::cmd("XLEN").arg("key")).await.expect_err("no stream");
    assert_eq!(error_kind(&error), ErrorKind::WrongType, "{error}");
    let script = Script::new("#!lua\nreturn redis.call('HGETALL', KEYS[1])");
    let error = script.call().key("key").run::<()>(&client).await.expect_err("no hash");
    assert_eq!(error_kind(&error), ErrorKind::WrongType, "{error}");

    let () = client.query(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1")).await.expect("set");
    let error = set(&client).await.expect_err("memory is full");
    assert_eq!(error_kind(&error), ErrorKind::Full, "{error}");
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING").cmd("SET").arg("key").arg("x");
    for pipeline in [pipeline.clone(), pipeline.atomic().clone()] {
        let error = client.pipe::<redis::Value>(&pipeline).await.expect_err("memory is full");
        assert_eq!(error_kind(&error), ErrorKind::Full, "{error}");
    }
    let error = script.call().key("key").run::<()>(&client).await.expect_err("memory is full");
    assert_eq!(error_kind(&error), ErrorKind::Full, "{error}");
}

/// After a failover the old primary refuses writes; the client must reconnect instead of staying with it.
#[tokio::test]
async fn a_replica_is_read_only_and_not_ready_until_it_is_promoted() {
    let primary = RedisServer::start();
    let replica = RedisServer::start();
    let client = replica.client();
    let before: i64 = client.query(redis::cmd("CLIENT").arg("ID")).await.expect("an id");
    let follow = ["REPLICAOF", "127.0.0.1", &primary.port().to_string()].map(str::to_owned);
    let () = client.query(redis::cmd(&follow[0]).arg(&follow[1..])).await.expect("a replica");
    assert_eq!(inspect(&client).await.expect("INFO").readiness(), ServerReadiness::Replica);
    let error = set(&client).await.expect_err("a replica takes no writes");
    assert_eq!(error_kind(&error), ErrorKind::ReadOnly, "{error}");
    let after: i64 = client.query(redis::cmd("CLIENT").arg("ID")).await.expect("an id");
    assert_ne!(before, after, "the connection is another one");
    let () = client.query(redis::cmd("REPLICAOF").arg("NO").arg("ONE")).await.expect("a primary");
    set(&client).await.expect("a primary takes writes");
    let info = inspect(&client).await.expect("INFO");
    assert_eq!(
        (info.role, info.readiness(), info.check_supported()),
        (ServerRole::Primary, ServerReadiness::Ready, Ok(()))
    );
}

/// A demotion ends a blocked read with an error that means: reconnect.
#[tokio::test]
async fn a_blocked_read_on_a_server_that_is_demoted_is_read_only() {
    let primary = RedisServer::start();
    let demoted = RedisServer::start();
    let client = demoted.client();
    let mut reader = StreamReader::connect(&target(&demoted.url()), "usage").await.expect("a connection");
    reader.request("0-0", 1, Some(Duration::from_secs(60))).await.expect("the request is written");
    let blocked = async {
        while !client
            .query::<String>(redis::cmd("INFO").arg("clients"))
            .await
            .expect("INFO")
            .contains("blocked_clients:1")
        {}
    };
    tokio::time::timeout(WAIT_MAX, blocked).await.expect("the reader blocks");
    let () = client.query(redis::cmd("REPLICAOF").arg("127.0.0.1").arg(primary.port())).await.expect("a replica");
    let ended = tokio::time::timeout(WAIT_MAX, reader.receive()).await.expect("no wait for the block");
    let error = ended.expect_err("unblocked");
    assert_eq!(error.error_kind(), ErrorKind::ReadOnly, "{error:?}");
}

/// A restarting server is unavailable for a while; the client must reconnect by itself and log in again.
#[tokio::test]
async fn a_client_comes_back_after_its_server_was_killed_in_the_middle_of_a_call() {
    let mut server = RedisServer::start_with(&["--save", "", "--requirepass", "s3cret"]);
    let client = client(&target(&server.url().replace("redis://", "redis://:s3cret@")));
    set(&client).await.expect("set");
    let mut block = redis::cmd("BLPOP");
    block.arg("list").arg(0);
    let asked = client.query::<redis::Value>(&block);
    let killed = async {
        let other = RedisClient::new(server.sync_client());
        let () = other.query(redis::cmd("AUTH").arg("s3cret")).await.expect("a login");
        while !other
            .query::<String>(redis::cmd("INFO").arg("clients"))
            .await
            .expect("INFO")
            .contains("blocked_clients:1")
        {}
        server.kill();
    };
    let (answer, ()) = tokio::join!(asked, killed);
    assert_eq!(error_kind(&answer.expect_err("it is gone")), ErrorKind::Unreachable);
    let refused = set(&client).await.expect_err("nobody listens");
    assert!(refused.is_connection_refusal(), "{refused}");
    assert_eq!(error_kind(&refused), ErrorKind::Unreachable);
    server.restart();
    set(&client).await.expect("it is back");
}

/// A hanging server must not block a caller forever.
#[tokio::test]
async fn a_call_to_a_server_that_hangs_ends_as_away_and_the_client_connects_anew() {
    let server = RedisServer::start();
    let client = server.client();
    set(&client).await.expect("set");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(server.pid()).expect("a process id"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it runs");
    let endpoint = target(&server.url());
    let (hung, reader) = tokio::join!(set(&client), StreamReader::connect(&endpoint, "usage"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("it is stopped");
    let hung = hung.expect_err("it hangs");
    assert_eq!(error_kind(&hung), ErrorKind::Unreachable, "{hung}");
    assert_eq!(reader.expect_err("it hangs").error_kind(), ErrorKind::Unreachable);
    set(&client).await.expect("it is back");
}

/// A hundred callers of a hanging server must not time out one after another.
#[tokio::test]
async fn callers_that_wait_for_a_connection_share_its_failure() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let client = Arc::new(client(&target(&format!("redis://:s3cret@127.0.0.1:{port}"))));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let client = Arc::clone(&client);
        callers.spawn(async move { set(&client).await });
    }
    let mut connections = 0;
    let mut failures = 0;
    while failures < 16 {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut stream, _) = accepted.expect("a connection");
                // The login is not answered. Every caller is waiting: all were spawned before.
                let mut asked = [0; 64];
                let _ = stream.read(&mut asked).await.expect("AUTH");
                connections += 1;
            }
            failed = callers.join_next() => {
                let failed = failed.expect("callers are left").expect("no caller panicked");
                assert_eq!(error_kind(&failed.expect_err("nobody answers")), ErrorKind::Unreachable);
                failures += 1;
            }
        }
    }
    assert_eq!(connections, 1);
}

/// A server at its maximum of clients has room again later.
#[tokio::test]
async fn a_crowded_server_is_away_with_and_without_a_password() {
    let server =
        RedisServer::start_with(&["--save", "", "--maxclients", "1", "--user", "alice", "on", ">a", "~*", "+@all"]);
    let first = server.client();
    set(&first).await.expect("set");
    for url in [server.url(), server.url().replace("redis://", "redis://alice:a@")] {
        assert_eq!(faults(&target(&url)).await, [ErrorKind::Unreachable; 2], "{url}");
    }
}

/// A server that is busy with another script must not look like one that refuses the login or the database.
#[tokio::test]
async fn a_server_busy_with_a_script_is_not_ready() {
    let server = RedisServer::start_with(&[
        "--save",
        "",
        "--busy-reply-threshold",
        "1",
        "--user",
        "alice",
        "on",
        ">a",
        "~*",
        "+@all",
    ]);
    let mut busy = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    busy.write_all(b"EVAL \"while true do end\" 0\r\n").expect("written");
    let probe = server.client();
    let begun = async { while set(&probe).await.is_ok() {} };
    tokio::time::timeout(WAIT_MAX, begun).await.expect("the script runs");
    for url in ["redis://", "redis://alice:a@"] {
        for db in [0, 1] {
            let url = format!("{}/{db}", server.url().replace("redis://", url));
            assert_eq!(faults(&target(&url)).await, [ErrorKind::NotReady; 2], "{url}");
        }
    }
    let () = probe.query(redis::cmd("SCRIPT").arg("KILL")).await.expect("it is killed");
    let ended = async { while set(&probe).await.is_err() {} };
    tokio::time::timeout(WAIT_MAX, ended).await.expect("the same connection serves on");
}

/// A server that loads its data for long; killed on drop.
struct Loading {
    child: Child,
    port: u16,
}

impl Loading {
    fn start(folder: &Path) -> Self {
        let port = free_port();
        // The server that wrote the data, because an older one may not read it.
        let binary = std::env::var("QUOTABELL_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
        let mut child = Command::new(binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024", "--dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server");
        let log = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut lines = log.lines();
        lines
            .find(|line| line.as_ref().is_ok_and(|line| line.contains("Loading RDB")))
            .expect("it loads")
            .expect("text");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A restart with much data must be waited for.
#[tokio::test]
async fn a_server_that_loads_its_data_is_not_ready() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = RedisServer::start_with(&["--dir", &folder.path().display().to_string()]);
    let client = writer.client();
    let fill = "for i = 1, 40000 do redis.call('SET', 'key' .. i, string.rep('x', 200)) end";
    let () = client.query(redis::cmd("EVAL").arg(fill).arg(0)).await.expect("filled");
    let () = client.query(&redis::cmd("SAVE")).await.expect("saved");
    let loading = Loading::start(folder.path());
    for db in [0, 1] {
        let target = target(&format!("redis://127.0.0.1:{}/{db}", loading.port));
        assert_eq!(faults(&target).await, [ErrorKind::NotReady; 2]);
    }
    let client = self::client(&target(&format!("redis://127.0.0.1:{}", loading.port)));
    assert_eq!(inspect(&client).await.expect("INFO").readiness(), ServerReadiness::Loading);
}
