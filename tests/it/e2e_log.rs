//! The log for programs: typed fields, and each cause once.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::support;
use crate::support::daemon::{Daemon, DaemonSetup, READY, http_get, own_address};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, until};
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use quotabell::types::LOG_LINES_MAX;
use serde_json::Value;

fn fields(line: &str) -> Value {
    serde_json::from_str(line).expect("a JSON object a line")
}

/// Programs sum durations and filter by kinds of errors, so they need fields; repeated text hides the important part.
#[tokio::test]
async fn fields_have_their_kind_and_causes_are_said_once() {
    let mut outbox = Outbox::on(RedisServer::start());
    let catcher = HttpCatcher::start([]).await.expect("a receiver");
    let contacts = serde_json::json!([{"id": "c", "channel": "webhook", "url": catcher.url("/"), "secret": secret(1)}]);
    outbox.set_contacts(&support::outbox::subject("alice"), &contacts.to_string()).await;
    let mut daemon = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__LOG__FORMAT", "json").spawn();
    daemon.says(READY).await;
    let _: String = outbox.run("XADD", &["usage", "*", "subject", "alice", "units", "4000"]).await;
    let delivered = fields(&daemon.says(r#""message":"delivered""#).await);
    assert!(delivered["took_ms"].is_u64(), "{delivered}");

    outbox.server.kill();
    let away = fields(&daemon.says("redis does not serve deliveries").await);
    assert_eq!(away["error_kind"], "unreachable", "{away}");
    assert!(away["task"].is_string(), "{away}");
    daemon.says("counting waits for Redis").await;
    daemon.signal(Signal::SIGTERM);
    for line in daemon.ended().await.log.lines().map(fields) {
        for (name, value) in line.as_object().expect("an object") {
            let parts: Vec<&str> = value.as_str().unwrap_or_default().split(": ").collect();
            assert!(parts.windows(2).all(|pair| pair[0] != pair[1]), "{name} says it twice: {line}");
        }
        assert!(line.get("source").is_none_or(|source| Some(source) != line.get("error")), "{line}");
    }
}

/// HSET can store any number of contacts. An alert with 4,100 contacts used to reach nobody: now it reaches the allowed
/// number, and the log names the setting.
#[tokio::test]
async fn an_alert_of_too_many_contacts_reaches_those_that_are_allowed_and_the_log_says_so() {
    let outbox = Outbox::on(RedisServer::start());
    let contact = |number: usize| serde_json::json!({"channel": "email", "address": format!("{number}@b.test")});
    let contacts: Vec<Value> = (0..4_100).map(contact).collect();
    outbox.set_contacts(&support::outbox::subject("alice"), &Value::from(contacts).to_string()).await;
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__SUBJECTS__CONTACTS_MAX", "20");
    let mut daemon = setup.argument("--no-send").spawn();
    daemon.says(READY).await;
    let _: String = outbox.run("XADD", &["usage", "*", "subject", "alice", "units", "4000"]).await;
    daemon.says("4080 contacts are more than the 20 that subjects.contacts_max allows").await;
    until("its deliveries are made", || async { outbox.totals().await.made == 20 }).await;
    assert_eq!(outbox.assert_balanced().await.pending, 20);
    daemon.drain().await;
}

/// An operator must learn which receiver is down; the path may be a secret, and many people read the log.
#[tokio::test]
async fn the_log_names_the_destination_whose_circuit_opens_and_closes() {
    let outbox = Outbox::on(RedisServer::start());
    let catcher = HttpCatcher::start((0..5).map(|_| Answer::status(503))).await.expect("a receiver");
    let url = catcher.url("/secret-path");
    let contacts = serde_json::json!([{"id": "c", "channel": "webhook", "url": url, "secret": secret(1)}]);
    for name in ["a", "b", "c", "d", "e"] {
        outbox.set_contacts(&support::outbox::subject(name), &contacts.to_string()).await;
    }
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__LOG__FORMAT", "json");
    let mut daemon = setup.spawn();
    daemon.says(READY).await;
    for name in ["a", "b", "c", "d", "e"] {
        let _: String = outbox.run("XADD", &["usage", "*", "subject", name, "units", "4000"]).await;
    }
    let destination = url.trim_end_matches("/secret-path");
    for said in ["circuit open: ", "circuit closed: "] {
        let line = fields(&daemon.says(said).await);
        assert_eq!(line["destination"], destination, "{line}");
    }
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.ended().await;
    assert!(!ended.log.contains("secret-path"), "{}", ended.log);
}

/// A storm of 200,000 alerts used to write 130 MB. The log has a maximum number of lines per minute for alerts and
/// deliveries, and reports the number of suppressed lines.
#[tokio::test]
async fn a_storm_of_alerts_fills_no_disk() {
    let alerts = u64::from(LOG_LINES_MAX) + 100;
    let outbox = Outbox::on(RedisServer::start());
    let mut catcher = HttpCatcher::start([]).await.expect("a receiver");
    let contacts = serde_json::json!([{"id": "c", "channel": "webhook", "url": catcher.url("/"), "secret": secret(1)}]);
    let (mut storm, json) = (redis::pipe(), contacts.to_string());
    for number in 0..alerts {
        let subject = support::outbox::subject(&format!("s-{number}"));
        storm.cmd("HSET").arg(outbox.keys.subject(&subject)).arg("contacts").arg(&json).ignore();
        storm.cmd("XADD").arg("usage").arg("*").arg("subject").arg(subject.as_str()).arg("units").arg(4000).ignore();
    }
    let () = outbox.server.client().pipe(&storm).await.expect("Redis answers");
    let daemon = DaemonSetup::on(&outbox.server.url()).start().await;
    for _ in 0..alerts {
        catcher.next().await;
    }
    until("all are delivered", || async { outbox.totals().await.delivered == alerts }).await;
    daemon.signal(Signal::SIGTERM);
    let log = daemon.ended().await.log;
    for line in ["alert raised", "delivery made", "delivered"] {
        let lines = log.lines().filter(|logged| logged.contains(&format!(": {line} "))).count();
        assert_eq!(lines, LOG_LINES_MAX as usize, "{line}");
        let rest = format!("more such lines were not logged lines=100 like=\"{line}");
        assert!(log.contains(&rest), "{rest}\n{log}");
    }
}

/// A producer of invalid events must not fill the disk, and the operator must learn about it.
#[tokio::test]
async fn each_reason_of_refused_events_is_told_once_a_minute() {
    let outbox = Outbox::on(RedisServer::start());
    for (name, value) in [("units", "many"), ("units", "1.5"), ("metric", "Requests")] {
        let _: String = outbox.run("XADD", &["usage", "*", "subject", "bob", name, value]).await;
    }
    let daemon = DaemonSetup::on(&outbox.server.url()).start().await;
    until("all are refused", || async { outbox.run::<u64>("XLEN", outbox.keys.refused()).await == 3 }).await;
    daemon.signal(Signal::SIGTERM);
    let log = daemon.ended().await.log;
    let reasons: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(": an event can't be counted"))
        .filter_map(|line| line.split("reason=").nth(1)?.split(' ').next())
        .collect();
    assert_eq!(reasons, ["bad_units", "bad_metric"]);
    let rest = log.lines().find(|line| line.contains("more such lines were not logged lines=1 "));
    assert!(rest.is_some_and(|line| line.contains("reason=bad_units")), "{log}");
}

/// An invalid field for each subject of a platform must not fill the disk with lines for every alert.
#[tokio::test]
async fn settings_that_can_not_be_read_fill_no_disk() {
    let subjects = u64::from(LOG_LINES_MAX) + 100;
    let outbox = Outbox::on(RedisServer::start());
    let mut catcher = HttpCatcher::start([]).await.expect("a receiver");
    let contacts = serde_json::json!([
        {"id": "c", "channel": "webhook", "url": catcher.url("/"), "secret": secret(1)},
        {"id": "bad", "channel": "pigeon", "address": "a@b.test"},
    ]);
    let (mut storm, json) = (redis::pipe(), contacts.to_string());
    for number in 0..subjects {
        let subject = support::outbox::subject(&format!("s-{number}"));
        let wrong = [("contacts", json.as_str()), ("locale", "v_i"), ("muted", "perhaps")];
        storm.cmd("HSET").arg(outbox.keys.subject(&subject)).arg(&wrong).ignore();
        storm.cmd("XADD").arg("usage").arg("*").arg("subject").arg(subject.as_str()).arg("units").arg(4000).ignore();
    }
    let () = outbox.server.client().pipe(&storm).await.expect("Redis answers");
    let daemon = DaemonSetup::on(&outbox.server.url()).start().await;
    for _ in 0..subjects {
        catcher.next().await;
    }
    until("all are delivered", || async { outbox.totals().await.delivered == subjects }).await;
    daemon.signal(Signal::SIGTERM);
    let log = daemon.ended().await.log;
    for line in ["contact is unreadable", "locale is unreadable", "a mute can't be read"] {
        let lines = log.lines().filter(|logged| logged.contains(&format!(": {line}"))).count();
        assert_eq!(lines, LOG_LINES_MAX as usize, "{line}");
    }
}

/// A daemon with its own stderr, and events that each cause three log lines.
struct Unheard {
    _outbox: Outbox,
    daemon: Daemon,
    address: SocketAddr,
}

impl Unheard {
    async fn start(stderr: impl Into<OwnedFd>, alerts: u64) -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let mut storm = redis::pipe();
        for number in 0..alerts {
            // A long name makes long lines, and each quote is two characters in JSON.
            let subject = format!("{number}-{}", "\"".repeat(240));
            storm.cmd("XADD").arg("usage").arg("*").arg("subject").arg(subject).arg("units").arg(4000).ignore();
        }
        let () = outbox.server.client().pipe(&storm).await.expect("Redis answers");
        let address = own_address();
        let setup = DaemonSetup::on(&outbox.server.url()).at(address);
        let mut catcher = HttpCatcher::start([]).await.expect("a receiver");
        let contact = serde_json::json!([{"channel": "webhook", "url": catcher.url("/"), "secret": secret(1)}]);
        tokio::spawn(async move {
            loop {
                catcher.next().await;
            }
        });
        let setup = setup.env("QUOTABELL__FALLBACK__CONTACTS", &contact.to_string());
        let daemon = setup.env("QUOTABELL__LOG__FORMAT", "json").spawn_with_stderr(stderr.into());
        until("all is counted and delivered", || async {
            let totals = outbox.totals().await;
            totals.counted == alerts && totals.delivered == alerts
        })
        .await;
        for page in ["/healthz", "/readyz"] {
            assert_eq!(http_get(address, page).await.expect("it answers").status, 200, "{page}");
        }
        Self { _outbox: outbox, daemon, address }
    }

    async fn dropped_lines(&self) -> u64 {
        let page = http_get(self.address, "/metrics").await.expect("it answers").body;
        let line = page.lines().find_map(|line| line.strip_prefix("quotabell_log_lines_dropped_total "));
        line.expect("it is shown").parse().expect("a number")
    }

    async fn drains(self) {
        self.daemon.signal(Signal::SIGTERM);
        assert_eq!(self.daemon.ended().await.status.code(), Some(0));
    }
}

/// Fills a pipe so that the next log line does not fit.
fn fill(pipe: &OwnedFd) {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
    while nix::unistd::write(pipe, b"filling\n") != Err(Errno::EAGAIN) {}
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (reader.into(), writer.into())
}

/// A log on a full disk, or behind a dead collector, used to end the daemon with 101 before it counted.
#[tokio::test]
async fn a_daemon_whose_log_is_refused_counts_sends_answers_and_drains() {
    let full_disk = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let (reader, closed_pipe) = pipe();
    drop(reader);
    for stderr in [OwnedFd::from(full_disk), closed_pipe] {
        let unheard = Unheard::start(stderr, 200).await;
        until("dropped lines are counted", || async { unheard.dropped_lines().await >= 400 }).await;
        unheard.drains().await;
    }
}

/// A hanging collector used to block counting, `/healthz` and SIGTERM.
#[tokio::test]
async fn a_daemon_whose_log_nobody_reads_counts_sends_answers_and_drains() {
    let (_reader, writer) = pipe();
    fill(&writer);
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
    Unheard::start(writer, 2_001).await.drains().await;
}

/// Another process may have made the pipe non-blocking: lines that do not fit at once must not be lost.
#[tokio::test]
async fn a_full_pipe_that_does_not_block_gets_every_line_once_it_is_read() {
    let (reader, writer) = pipe();
    fill(&writer);
    let unheard = Unheard::start(writer, 200).await;
    let log = std::thread::spawn(move || BufReader::new(File::from(reader)).lines().map_while(Result::ok).collect());
    unheard.drains().await;
    let log: Vec<String> = log.join().expect("it reads");
    let lines = |text: &str| log.iter().filter(|line| line.contains(text)).count();
    assert_eq!((lines("alert raised"), lines("\"delivered\"")), (200, 200));
    assert!(log.last().is_some_and(|line| line.contains("drained")), "{:?}", log.last());
}

/// A gap in the log must be visible with its size.
#[tokio::test]
async fn dropped_lines_are_counted_and_reported_once_the_log_is_read_again() {
    let (reader, writer) = pipe();
    let unheard = Unheard::start(writer, 2_001).await;
    until("lines are dropped", || async { unheard.dropped_lines().await > 0 }).await;
    let (said, mut hears) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        BufReader::new(File::from(reader)).lines().map_while(Result::ok).try_for_each(|line| said.send(line))
    });
    let mut reported = 0;
    while let Some(line) = tokio::time::timeout(support::eventually::WAIT_MAX, hears.recv()).await.expect("in time") {
        if line.contains("dropped lines of the log") {
            reported += fields(&line)["lines"].as_u64().expect("a number");
            break;
        }
        // Each written line is complete.
        fields(&line);
    }
    assert!(reported > 0);
    eventually("the report is of all", || async { (unheard.dropped_lines().await == reported).then_some(()) }).await;
    unheard.drains().await;
}

/// `quotabell subject list` into a full disk or a closed pipe must never panic.
#[tokio::test]
async fn no_command_panics_for_want_of_a_reader() {
    let server = RedisServer::start();
    for command in [
        &["man"][..],
        &["--help"],
        &["--version"],
        &["no-such-command"],
        &["subject", "list", "--json"],
        &["check-config"],
        &["completions", "bash"],
        &["emit", "--subject", "alice"],
    ] {
        let full = || OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into();
        let closed = || pipe().1;
        for outputs in [(full(), full()), (closed(), closed()), (full(), closed()), (closed(), full())] {
            let run = std::process::Command::new(env!("CARGO_BIN_EXE_quotabell"))
                .args(command)
                .env("QUOTABELL__REDIS__URL", server.url())
                .stdout(outputs.0)
                .stderr(outputs.1)
                .status();
            let code = run.expect("it runs").code();
            assert!(matches!(code, Some(0..=2)), "{command:?}: {code:?}");
        }
    }
}

/// Everybody may post to the links in emails: 20,000 forged ones used to write 20,000 lines.
#[tokio::test]
async fn forged_unsubscribe_links_fill_no_disk() {
    let server = RedisServer::start();
    let mut daemon = DaemonSetup::on(&server.url()).start().await;
    let api = crate::support::api::Caller::of(&mut daemon).await;
    for number in 0..500 {
        api.post(&format!("/unsubscribe/Zm9yZ2Vk.{number}.Zm9yZ2Vk"), &serde_json::json!({})).await;
        api.post(&format!("/unsubscribe/{number}"), &serde_json::json!({})).await;
    }
    daemon.signal(Signal::SIGTERM);
    let log = daemon.ended().await.log;
    let lines = log.lines().filter(|line| line.contains("unsubscribe")).count();
    assert!(lines <= 2, "{lines} lines");
}
