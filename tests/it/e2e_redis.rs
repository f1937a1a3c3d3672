//! The daemon and a Redis that disappears, starts late, is full, evicts, is a replica, or refuses the user.

use crate::support;
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup, READY};
use crate::support::eventually::eventually;
use crate::support::redis_server::{RedisServer, free_port};
use nix::sys::signal::Signal;
use quotabell::redis_client::RedisClient;
use quotabell::types::Keys;
use redis::FromRedisValue;

/// Runs a command given by its words.
async fn run<T: FromRedisValue>(client: &RedisClient, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The number of events that all daemons counted, from the totals.
async fn counted(client: &RedisClient) -> u64 {
    let mut command = redis::cmd("HGET");
    command.arg(Keys::new("usage").totals()).arg("counted");
    client.query::<Option<u64>>(&command).await.expect("redis answers").unwrap_or(0)
}

async fn add(client: &RedisClient, events: u32) {
    let mut pipeline = redis::pipe();
    for _ in 0..events {
        pipeline.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").ignore();
    }
    let () = client.pipe(&pipeline).await.expect("they are added");
}

async fn all_counted(client: &RedisClient, events: u64) {
    eventually("everything is counted", || async { (counted(client).await == events).then_some(()) }).await;
}

async fn is_ready(daemon: &mut Daemon) {
    let address = daemon.http().await;
    eventually("/readyz says 200", || async {
        support::daemon::http_get(address, "/readyz").await.is_some_and(|page| page.status == 200).then_some(())
    })
    .await;
}

/// Waits until /readyz returns 503 with this text.
async fn is_not_ready(daemon: &mut Daemon, why: &str) {
    let address = daemon.http().await;
    eventually(why, || async {
        let page = support::daemon::http_get(address, "/readyz").await?;
        (page.status == 503 && page.body.contains(why)).then_some(())
    })
    .await;
    assert_eq!(daemon.get("/healthz").await.status, 200, "the process lives");
}

/// A crash of Redis must neither lose nor double a count, and the daemon must recover without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_restarted_in_the_middle_of_traffic_loses_and_doubles_nothing() {
    let mut server = RedisServer::start_durable();
    let client = server.client();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    for round in 0..3_u32 {
        // Added one by one, so that the crash happens between two of them; the last one may have survived.
        let traffic = async {
            for sent in 1_u32.. {
                let xadd: Result<String, _> =
                    client.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice")).await;
                if xadd.is_err() {
                    return sent;
                }
            }
            0
        };
        let pid = nix::unistd::Pid::from_raw(i32::try_from(server.pid()).expect("a process id"));
        let watcher = server.client();
        let before = counted(&watcher).await;
        let crash = async {
            eventually("some are counted", || async { (counted(&watcher).await > before + 100).then_some(()) }).await;
            nix::sys::signal::kill(pid, Signal::SIGKILL).expect("it runs");
        };
        let (sent, ()) = tokio::join!(traffic, crash);
        assert!(sent > 100, "round {round}");
        is_not_ready(&mut daemon, "Redis does not answer").await;
        server.reap();
        server.restart();
        is_ready(&mut daemon).await;
        let read = Keys::new("usage").checkpoint();
        eventually("the backlog is gone", || async {
            let added = entries_added(&client).await?;
            let read: u64 = client.query(redis::cmd("HGET").arg(&read).arg("entries_read")).await.ok()?;
            (read == added && counted(&client).await == added).then_some(())
        })
        .await;
    }
    let survived = entries_added(&client).await.expect("the stream is there");
    let keys: Vec<String> = run(&client, &["KEYS", "quota_usage:{usage}:*"]).await;
    let mut sum = 0;
    for key in keys {
        sum += run::<Option<u64>>(&client, &["HGET", &key, "alice"]).await.unwrap_or(0);
    }
    assert_eq!(sum, survived);
    daemon.drain().await;
}

async fn entries_added(client: &RedisClient) -> Option<u64> {
    let info: std::collections::HashMap<String, redis::Value> =
        client.query(redis::cmd("XINFO").arg("STREAM").arg("usage")).await.ok()?;
    redis::from_redis_value_ref(&info["entries-added"]).ok()
}

/// A machine that starts everything at once starts the daemon before Redis.
#[tokio::test]
async fn a_redis_that_appears_later_is_waited_for() {
    let port = free_port();
    let mut daemon = DaemonSetup::on(&format!("redis://127.0.0.1:{port}")).spawn();
    daemon.says("waiting for Redis").await;
    is_not_ready(&mut daemon, "starting").await;
    let server = RedisServer::start_on(port);
    daemon.says(READY).await;
    is_ready(&mut daemon).await;
    add(&server.client(), 3).await;
    all_counted(&server.client(), 3).await;
    daemon.drain().await;
}

/// Waiting does not fix a wrong password: the operator must be told, without the password in the log.
#[tokio::test]
async fn a_wrong_password_ends_the_start() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    for url in [format!("redis://:wr0ng@127.0.0.1:{}", server.port()), server.url()] {
        let ended = DaemonSetup::on(&url).run_to_its_end().await;
        // With several servers the error must say which one it was.
        let server = format!("(redis://127.0.0.1:{}/0)", server.port());
        ended.expect_code(1, &["error: ", &server, "hint: check user and password in redis.url"]);
        assert!(!ended.log.contains("wr0ng"), "{}", ended.log);
    }
}

/// A wrong port reaches another server: the error must not look like a fault of quotabell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_redis_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let http = tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
    // If a proxy has changed a reply, only the place in the reply helps.
    let told = format!("the server at {address} is no Redis: it does not speak the protocol (Parse error at ");
    for url in ["redis://", "redis://:s3cret@", "redis+sentinel://", "redis+cluster://"] {
        let service = if url.contains("sentinel") { "/main" } else { "" };
        let url = format!("{url}{address}{service}");
        let ended = DaemonSetup::on(&url).run_to_its_end().await;
        ended.expect_code(1, &["error: ", &told, "hint: is that the port of Redis?"]);
        for command in [&["subject", "list"][..], &["emit", "--subject", "alice"], &["check-config"]] {
            let finished = quotabell(command.iter().copied()).redis(&url).run();
            assert_eq!(finished.code, 1, "{command:?} {url}: {}", finished.stderr);
            assert!(finished.stderr.contains(&told), "{command:?} {url}: {}", finished.stderr);
        }
    }
    http.abort();
}

/// An evicting Redis removes counters and flags: refused at start, and logged if it begins later.
#[tokio::test]
async fn an_evicting_redis_is_refused_and_shows_in_readiness() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let setup = DaemonSetup::on(&server.url());
    setup.run_to_its_end().await.expect_code(
        1,
        &[
            "error: maxmemory-policy is allkeys-lru",
            "needed: noeviction",
            "hint: set it with `redis-cli config set maxmemory-policy noeviction`",
        ],
    );
    let client = server.client();
    let () = run(&client, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let mut daemon = setup.start().await;
    is_ready(&mut daemon).await;
    let () = run(&client, &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).await;
    is_not_ready(&mut daemon, "maxmemory-policy is volatile-ttl").await;
    daemon.says("redis is not fit for quotabell any more").await;
    let () = run(&client, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    is_ready(&mut daemon).await;
    daemon.drain().await;
}

/// A full Redis must not stay full: commits free memory, so they must run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_recovers_once_the_daemon_counts() {
    let server = RedisServer::start();
    let client = server.client();
    // With a fallback, so that the start also looks for waiting alerts.
    let setup = DaemonSetup::on(&server.url())
        .env("QUOTABELL__FALLBACK__CONTACTS", r#"[{"channel":"email","address":"ops@b.test"}]"#);
    // The stream outgrows the memory while no daemon runs.
    let () = run(&client, &["CONFIG", "SET", "maxmemory", "6mb"]).await;
    let padding = "x".repeat(2_000);
    let mut sent = 0_u64;
    let full = loop {
        let mut xadd = redis::cmd("XADD");
        xadd.arg("usage").arg("*").arg("subject").arg("alice").arg("note").arg(&padding);
        match client.query::<String>(&xadd).await {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.code(), Some("OOM"));
    assert!(sent > 500, "the stream holds most of the memory");
    // A running daemon counts and trims; one that starts on the full server must get there too.
    let daemon = setup.start().await;
    all_counted(&client, sent).await;
    eventually("XADD works again", || async {
        let added: Result<String, _> =
            client.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice")).await;
        added.ok().map(|_| ())
    })
    .await;
    all_counted(&client, sent + 1).await;
    daemon.drain().await;
}

/// The same while the daemon runs: after a short stop it finds Redis full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_fills_up_while_the_daemon_is_away_for_a_moment_recovers() {
    let server = RedisServer::start();
    let client = server.client();
    let daemon = DaemonSetup::on(&server.url()).start().await;
    let () = run(&client, &["CONFIG", "SET", "maxmemory", "6mb"]).await;
    daemon.signal(Signal::SIGSTOP);
    let padding = "x".repeat(2_000);
    let mut sent = 0_u64;
    loop {
        let mut xadd = redis::cmd("XADD");
        xadd.arg("usage").arg("*").arg("subject").arg("alice").arg("note").arg(&padding);
        if client.query::<String>(&xadd).await.is_err() {
            break;
        }
        sent += 1;
    }
    daemon.signal(Signal::SIGCONT);
    all_counted(&client, sent).await;
    // Trimming follows the commit.
    eventually("XADD works again", || async {
        let added: Result<String, _> =
            client.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice")).await;
        added.ok().map(|_| ())
    })
    .await;
    all_counted(&client, sent + 1).await;
    daemon.drain().await;
}

/// Without XTRIM the stream would grow without bound, and nobody would know why.
#[tokio::test]
async fn a_user_who_may_not_trim_is_refused_by_name() {
    let server = RedisServer::start();
    let client = server.client();
    let () = run(&client, &["ACL", "SETUSER", "bell", "on", ">pass", "~*", "&*", "+@all", "-xtrim"]).await;
    let url = format!("redis://bell:pass@127.0.0.1:{}", server.port());
    let ended = DaemonSetup::on(&url).run_to_its_end().await;
    ended.expect_code(1, &["error: ", "trim", "hint: grant the user this command"]);
    let left: Vec<String> = run(&client, &["KEYS", "*"]).await;
    assert_eq!(left, Vec::<String>::new(), "a dry run leaves nothing behind");
    // The solution that the hint names.
    let mut daemon = DaemonSetup::on(&url).env("QUOTABELL__STREAM__TRIM", "never").start().await;
    is_ready(&mut daemon).await;
    add(&client, 2).await;
    all_counted(&client, 2).await;
    assert_eq!(run::<u64>(&client, &["XLEN", "usage"]).await, 2);
    daemon.drain().await;
}

/// A dry run that could not clean up, as after a kill, must not leave permanent keys.
#[tokio::test]
async fn what_a_dry_run_leaves_behind_goes_by_itself() {
    let server = RedisServer::start();
    let client = server.client();
    let () = run(&client, &["ACL", "SETUSER", "bell", "on", ">pass", "~*", "&*", "+@all", "-unlink"]).await;
    let url = format!("redis://bell:pass@127.0.0.1:{}", server.port());
    DaemonSetup::on(&url).run_to_its_end().await.expect_code(1, &["error: ", "unlink", "hint: "]);
    let left: Vec<String> = run(&client, &["KEYS", "*"]).await;
    assert!(!left.is_empty(), "it could not clean up");
    for key in left {
        assert!(run::<i64>(&client, &["TTL", &key]).await > 0, "{key} has no time to live");
    }
}

/// A standby is started against a replica; it must work from the moment of the promotion.
#[tokio::test]
async fn a_replica_is_waited_for_until_it_is_promoted() {
    let primary = RedisServer::start();
    let replica = RedisServer::start();
    let port = primary.port().to_string();
    let client = replica.client();
    let () = run(&client, &["REPLICAOF", "127.0.0.1", &port]).await;
    let mut daemon = DaemonSetup::on(&replica.url()).spawn();
    daemon.says("the server is a replica, until it is promoted").await;
    is_not_ready(&mut daemon, "starting").await;
    assert!(!daemon.has_said(READY));
    let () = run(&client, &["REPLICAOF", "NO", "ONE"]).await;
    daemon.says(READY).await;
    add(&client, 2).await;
    all_counted(&client, 2).await;
    // Demoted and promoted again while it runs.
    let () = run(&client, &["REPLICAOF", "127.0.0.1", &port]).await;
    is_not_ready(&mut daemon, "replica").await;
    let () = run(&client, &["REPLICAOF", "NO", "ONE"]).await;
    is_ready(&mut daemon).await;
    let before = counted(&client).await;
    add(&client, 1).await;
    all_counted(&client, before + 1).await;
    daemon.drain().await;
}

/// Two daemons with one address: the second must fail before it touches anything.
#[tokio::test]
async fn an_http_address_in_use_ends_the_start_before_anything_is_read() {
    let server = RedisServer::start();
    let client = server.client();
    add(&client, 1).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let ended = DaemonSetup::on(&server.url()).env("QUOTABELL__HTTP__LISTEN", &address).run_to_its_end().await;
    ended.expect_code(
        1,
        &[&format!("error: listen on {address} (http.listen)"), "hint: another program has the address"],
    );
    let keys: Vec<String> = run(&client, &["KEYS", "*"]).await;
    assert_eq!(keys, ["usage"], "nothing was read or written");
}

/// A foreign value in one of our keys: guessing would damage both.
#[tokio::test]
async fn a_checkpoint_of_another_type_ends_the_start_and_is_named() {
    let server = RedisServer::start();
    let client = server.client();
    let () = run(&client, &["SET", "quota_checkpoint:{usage}", "mine"]).await;
    add(&client, 1).await;
    let ended = DaemonSetup::on(&server.url()).run_to_its_end().await;
    ended.expect_code(1, &["error: ", "quota_checkpoint:{usage}", "hint: a key of quotabell holds unexpected data"]);
    assert_eq!(run::<String>(&client, &["GET", "quota_checkpoint:{usage}"]).await, "mine");
}

/// A stream key with another type would leave a daemon that is ready and counts nothing.
#[tokio::test]
async fn a_stream_of_another_type_ends_the_start_and_is_named() {
    let server = RedisServer::start();
    let () = run(&server.client(), &["SET", "usage", "mine"]).await;
    let ended = DaemonSetup::on(&server.url()).run_to_its_end().await;
    ended.expect_code(1, &["error: usage is a string, not a stream", "hint: "]);
}

/// At run time each such key must be named, the metric for alarms must show it, and nothing may claim that counting
/// continues.
#[tokio::test]
async fn keys_overwritten_while_it_runs_are_named_until_they_are_mended() {
    let server = RedisServer::start();
    let client = server.client();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    let mut events = 0;
    for key in ["quota_refused:{usage}", "quota_checkpoint:{usage}", "quota_totals:{usage}"] {
        let _: u64 = run(&client, &["DEL", "kept"]).await;
        let kept: Option<String> = client.query(redis::cmd("RENAME").arg(key).arg("kept")).await.ok();
        let () = run(&client, &["SET", key, "mine"]).await;
        let said = daemon.lines();
        // One event is counted and one is refused.
        add(&client, 1).await;
        let _: String = run(&client, &["XADD", "usage", "*", "units", "1"]).await;
        events += 1;
        let line = daemon.says_again("counting has stopped until this is mended", said).await;
        assert!(line.contains(key) || line.contains("read the checkpoint"), "{line}");
        let address = daemon.http().await;
        eventually("the metric says so", || async {
            let page = support::daemon::http_get(address, "/metrics").await?;
            page.body.contains("quotabell_counting_stopped 1").then_some(())
        })
        .await;
        let _: u64 = run(&client, &["DEL", key]).await;
        if kept.is_some() {
            let () = run(&client, &["RENAME", "kept", key]).await;
        }
        all_counted(&client, events).await;
        daemon.says_again("counting continues", said).await;
        let again = daemon.lines_after(said).iter().filter(|line| line.contains("counting continues")).count();
        assert_eq!(again, 1, "{key}");
        assert!(daemon.get("/metrics").await.body.contains("quotabell_counting_stopped 0"), "{key}");
    }
    daemon.drain().await;
}

/// The log line when all stored data is gone.
const EMPTIED: &str = "everything that quotabell had stored is gone";

async fn deployments_lost(daemon: &mut Daemon) -> u64 {
    let page = daemon.get("/metrics").await;
    let value = page.body.lines().find_map(|line| line.strip_prefix("quotabell_deployments_lost_total "));
    value.expect("it begins with 0").parse().expect("a number")
}

/// Empties the server and appends events before anybody can read.
async fn flush_under_traffic(client: &RedisClient, events: u32) {
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("FLUSHALL").ignore();
    for _ in 0..events {
        transaction.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").ignore();
    }
    let () = client.pipe(&transaction).await.expect("done");
}

/// FLUSHALL removes counters and flags: counting again from zero must be reported.
#[tokio::test]
async fn a_flushed_redis_is_said_aloud() {
    let server = RedisServer::start();
    let client = server.client();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    add(&client, 3).await;
    all_counted(&client, 3).await;
    assert_eq!(deployments_lost(&mut daemon).await, 0);
    let _: String = run(&client, &["FLUSHALL"]).await;
    daemon.says(EMPTIED).await;
    add(&client, 2).await;
    all_counted(&client, 2).await;
    assert_eq!(deployments_lost(&mut daemon).await, 1);
    daemon.drain().await;
}

/// Under traffic new events are in the stream before the daemon's next read, so no entry seems to be missing: an alarm
/// on lost entries would not fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_emptied_under_traffic_is_said_and_counted_each_time() {
    let mut server = RedisServer::start();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    add(&server.client(), 3).await;
    all_counted(&server.client(), 3).await;
    for lost in 1..=4 {
        let said = daemon.lines();
        if lost % 2 == 1 {
            flush_under_traffic(&server.client(), 2).await;
        } else {
            // Without persistence it returns empty, and a producer is faster than the daemon.
            server.kill();
            server.restart();
            add(&server.client(), 2).await;
        }
        all_counted(&server.client(), 2).await;
        daemon.says_again(EMPTIED, said).await;
        assert_eq!(deployments_lost(&mut daemon).await, lost);
        assert_eq!(daemon.lines_after(said).iter().filter(|line| line.contains(EMPTIED)).count(), 1);
    }
    daemon.drain().await;
}

/// FLUSHALL also removes the reader's lease, so another daemon may be the next reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_an_emptied_redis_says_so() {
    let server = RedisServer::start();
    let client = server.client();
    let reader = DaemonSetup::on(&server.url()).start().await;
    let mut standby = DaemonSetup::on(&server.url()).start().await;
    standby.says("standing by").await;
    add(&client, 3).await;
    all_counted(&client, 3).await;
    let () = run(&client, &["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000"]).await;
    eventually("the standby has looked since", || async {
        let commands: redis::Value = run(&client, &["SLOWLOG", "GET", "-1"]).await;
        // It alone asks for the instance of the checkpoint.
        (format!("{commands:?}").matches("instance").count() >= 2).then_some(())
    })
    .await;
    reader.kill().await;
    flush_under_traffic(&client, 2).await;
    all_counted(&client, 2).await;
    standby.says(EMPTIED).await;
    assert_eq!(deployments_lost(&mut standby).await, 1);
    standby.drain().await;
}

/// The same for a counter whose type shows only at a write: counting stops with an error, and continues after the fix.
#[tokio::test]
async fn a_counter_of_another_type_stops_counting_loudly_until_it_is_mended() {
    let server = RedisServer::start();
    let client = server.client();
    let time: (i64, i64) = run(&client, &["TIME"]).await;
    // An instant on a day that can't end during the test.
    let noon_ms = (time.0 / 86_400 * 86_400 - 43_200) * 1000;
    let day = chrono::DateTime::from_timestamp_millis(noon_ms).expect("a time").format("%Y-%m-%d").to_string();
    let key = format!("quota_usage:{{usage}}:requests:{day}:{:02x}", quotabell::types::keys::bucket("alice"));
    let () = run(&client, &["SET", &key, "mine"]).await;
    let mut daemon = DaemonSetup::on(&server.url()).env("QUOTABELL__STREAM__LATE_MAX", "7d").start().await;
    let _: String = run(&client, &["XADD", "usage", "*", "subject", "alice", "ts", &noon_ms.to_string()]).await;
    let line = daemon.says("counting has stopped until this is mended").await;
    assert!(line.contains(&key), "{line}");
    assert_eq!(counted(&client).await, 0);
    let () = run(&client, &["DEL", &key]).await;
    all_counted(&client, 1).await;
    daemon.drain().await;
}

/// Redis cuts a torn file behind its last whole command, possibly inside an open transaction: later writes are lost if
/// the file is torn again, and reappear before the checkpoint if a later transaction closes it. The daemon must report
/// counts that are too low.
#[tokio::test]
async fn entries_that_a_torn_file_brings_back_are_said() {
    const LOST: u64 = 50;
    let mut server = RedisServer::start_durable();
    let client = server.client();
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("SET").arg("a").arg(1).ignore().cmd("SET").arg("other").arg(1).ignore();
    let () = client.pipe(&transaction).await.expect("done");
    server.kill();
    // EXEC, and a part of the command before it.
    server.tear_file("*1\r\n$4\r\nEXEC\r\n".len() as u64 + 3);
    server.restart();
    let client = server.client();
    let add = async |client: &RedisClient, events: u64| {
        for _ in 0..events {
            let _: String = client
                .query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice"))
                .await
                .expect("added");
        }
    };
    add(&client, LOST + 1).await;
    server.kill();
    server.tear_file(3);
    server.restart();
    let client = server.client();
    let length = async |client: &RedisClient| -> u64 {
        client.query(redis::cmd("XLEN").arg("usage")).await.expect("its length")
    };
    assert_eq!(length(&client).await, 0, "they had been acknowledged");
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    add(&client, 10).await;
    let checkpoint = Keys::new("usage").checkpoint();
    eventually("they are counted, and the stream was looked at", || async {
        let fields = redis::cmd("HMGET").arg(&checkpoint).arg("entries_read").arg("entries_gone").to_owned();
        let (read, gone): (Option<u64>, Option<u64>) = client.query(&fields).await.ok()?;
        (read == Some(10) && gone == Some(0)).then_some(())
    })
    .await;
    server.kill();
    server.restart();
    let line = daemon.says("entries appeared at or before the checkpoint").await;
    assert!(line.contains(&format!("entries={LOST}")), "{line}");
    assert_eq!(length(&server.client()).await, LOST + 10);
}

/// A server without scripts, as after a failover, must get them again without a log line.
#[tokio::test]
async fn scripts_that_the_server_forgot_are_loaded_again_without_an_error() {
    let server = RedisServer::start();
    let client = server.client();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    for round in 1..=20 {
        run::<()>(&client, &["SCRIPT", "FLUSH"]).await;
        add(&client, 50).await;
        run::<()>(&client, &["SCRIPT", "FLUSH"]).await;
        all_counted(&client, round * 50).await;
    }
    is_ready(&mut daemon).await;
    for bad in ["ERROR", "NOSCRIPT", "counting has stopped"] {
        assert!(!daemon.has_said(bad), "{bad}");
    }
    daemon.drain().await;
}

/// A load balancer must not send work to a daemon whose Redis is still loading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_loads_its_data_is_not_ready() {
    let slow = ["--save", "", "--appendonly", "yes", "--loading-process-events-interval-bytes", "1024"];
    let mut server = RedisServer::start_with(&slow);
    let client = server.client();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    is_ready(&mut daemon).await;
    let fill = "for i = 1, 20000 do redis.call('SET', 'other' .. i, string.rep('x', 200)) end";
    let () = run(&client, &["EVAL", fill, "0"]).await;
    // The rewritten file begins with a snapshot; the server answers while it loads that.
    let () = run(&client, &["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]).await;
    let _: redis::Value = run(&client, &["BGREWRITEAOF"]).await;
    eventually("it is written", || async {
        let info: String = run(&client, &["INFO", "persistence"]).await;
        (info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")).then_some(())
    })
    .await;
    server.kill();
    server.set_option("--key-load-delay", "2000");
    let loading = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    is_not_ready(&mut daemon, "Redis is loading its data").await;
    assert!(daemon.get("/metrics").await.body.contains("quotabell_ready 0"));
    let hurry = redis::cmd("CONFIG").arg("SET").arg("key-load-delay").arg("0").to_owned();
    eventually("it loads fast from now on", || async { client.query::<()>(&hurry).await.ok() }).await;
    let server = loading.await.expect("it starts");
    is_ready(&mut daemon).await;
    add(&server.client(), 1).await;
    all_counted(&server.client(), 1).await;
    daemon.drain().await;
}

/// A Redis with a full disk, or that waits for replicas, answers reads but accepts no event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_refuses_every_write_is_not_ready() {
    let server =
        RedisServer::start_with(&["--save", "3600 1000000", "--appendonly", "no", "--dbfilename", "in-the-way"]);
    let client = server.client();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    is_ready(&mut daemon).await;
    let snapshot = server.directory().join("in-the-way");
    std::fs::create_dir(&snapshot).expect("a folder in the place of the file");
    let _: redis::Value = run(&client, &["BGSAVE"]).await;
    is_not_ready(&mut daemon, "Redis refuses every write (MISCONF)").await;
    assert!(daemon.get("/metrics").await.body.contains("quotabell_ready 0"));
    std::fs::remove_dir(&snapshot).expect("it is empty");
    let _: redis::Value = run(&client, &["BGSAVE"]).await;
    is_ready(&mut daemon).await;
    let () = run(&client, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    is_not_ready(&mut daemon, "Redis refuses every write (NOREPLICAS)").await;
    let () = run(&client, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    is_ready(&mut daemon).await;
    daemon.drain().await;
}

/// A right that only reading needs is missed after the start: such a daemon must not be ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_after_the_start_is_not_ready() {
    let server = RedisServer::start();
    let client = server.client();
    let () = run(&client, &["ACL", "SETUSER", "bell", "on", ">pass", "~*", "&*", "+@all", "-xread"]).await;
    let mut daemon = DaemonSetup::on(&format!("redis://bell:pass@127.0.0.1:{}", server.port())).start().await;
    is_not_ready(&mut daemon, "the counting of partition 0 has stopped (denied)").await;
    let page = daemon.get("/metrics").await.body;
    assert!(page.contains("quotabell_ready 0") && page.contains("quotabell_counting_stopped 1"), "{page}");
    let () = run(&client, &["ACL", "SETUSER", "bell", "+xread"]).await;
    add(&client, 1).await;
    all_counted(&client, 1).await;
    is_ready(&mut daemon).await;
    daemon.drain().await;
}

/// The documented fixes must work without a restart: granting the right to subscribe, and resetting a checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_mended_takes_effect_without_a_restart() {
    let server = RedisServer::start();
    let client = server.client();
    let () = run(&client, &["ACL", "SETUSER", "bell", "on", ">pass", "~*", "&*", "+@all", "-subscribe"]).await;
    let mut daemon = DaemonSetup::on(&format!("redis://bell:pass@127.0.0.1:{}", server.port())).start().await;
    daemon.says("the Redis user may not subscribe").await;
    add(&client, 2).await;
    all_counted(&client, 2).await;
    let () = run(&client, &["ACL", "SETUSER", "bell", "+subscribe"]).await;
    daemon.says("the Redis user may subscribe now").await;
    let subscribed: Vec<String> = run(&client, &["PUBSUB", "CHANNELS", "quota_reader:*"]).await;
    assert_eq!(subscribed.len(), 1, "{subscribed:?}");

    let checkpoint = Keys::new("usage").checkpoint();
    let last: String = run(&client, &["HGET", &checkpoint, "id"]).await;
    let _: u64 = run(&client, &["DEL", &checkpoint]).await;
    add(&client, 1).await;
    daemon.says("counting has stopped until this is mended").await;
    is_not_ready(&mut daemon, "the counting of partition 0 has stopped (wrong_type)").await;
    let _: u64 = run(&client, &["HSET", &checkpoint, "id", &last]).await;
    all_counted(&client, 3).await;
    daemon.says("counting continues").await;
    is_ready(&mut daemon).await;
    assert_eq!(deployments_lost(&mut daemon).await, 0);
    daemon.drain().await;
}

/// A server with an append-only file ignores `dump.rdb`: the daemon must not count from zero, and the commands of
/// docs/operations.md must restore the snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_is_waited_for_and_the_documented_commands_restore_its_snapshot() {
    let operations = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).expect("it");
    for command in ["redis-server /etc/redis/redis.conf --appendonly no", "\nredis-cli CONFIG SET appendonly yes"] {
        assert!(operations.contains(command), "{command}");
    }
    let mut server = RedisServer::start_durable();
    let folder = tempfile::tempdir().expect("a folder");
    let setup =
        DaemonSetup::on(&server.url()).env("QUOTABELL__REDIS__DATA_DIR", folder.path().to_str().expect("UTF-8"));
    let daemon = setup.start().await;
    add(&server.client(), 3).await;
    all_counted(&server.client(), 3).await;
    let () = run(&server.client(), &["SAVE"]).await;
    daemon.drain().await;
    server.kill();
    std::fs::remove_dir_all(server.directory().join("appendonlydir")).expect("it is there");
    server.restart();
    assert_eq!(run::<u64>(&server.client(), &["DBSIZE"]).await, 0, "the server ignores the snapshot");
    let mut daemon = setup.spawn();
    daemon.says("Redis is empty, but ").await;
    add(&server.client(), 1).await;
    is_not_ready(&mut daemon, "").await;
    assert!(!daemon.has_said(READY));

    server.kill();
    std::fs::remove_dir_all(server.directory().join("appendonlydir")).expect("it is there");
    let usual = server.options();
    server.set_option("--appendonly", "no");
    server.restart();
    let client = server.client();
    let () = run(&client, &["CONFIG", "SET", "appendonly", "yes"]).await;
    eventually("the append-only file is written", || async {
        let info: String = run(&client, &["INFO", "persistence"]).await;
        let done = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"];
        done.iter().all(|line| info.contains(line)).then_some(())
    })
    .await;
    daemon.says(READY).await;
    assert_eq!(counted(&client).await, 3);
    add(&client, 1).await;
    all_counted(&client, 4).await;
    server.kill();
    server.set_options(usual);
    server.restart();
    is_ready(&mut daemon).await;
    assert_eq!(counted(&server.client()).await, 4);
    daemon.drain().await;
}

/// A container may have no writable folder: the daemon must work, and the log must say what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_without_a_data_folder_logs_once_that_it_records_no_deployment() {
    let server = RedisServer::start();
    let setup = DaemonSetup::on(&server.url());
    let daemon = setup.start().await;
    add(&server.client(), 1).await;
    all_counted(&server.client(), 1).await;
    daemon.signal(Signal::SIGTERM);
    let log = daemon.ended().await.log;
    assert_eq!(log.matches("could not record the deployment").count(), 1, "{log}");
    let () = run(&server.client(), &["FLUSHALL"]).await;
    setup.start().await.drain().await;
}
