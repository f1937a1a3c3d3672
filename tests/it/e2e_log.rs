//! The log as programs read it: fields of their own kind, and a cause said once.

use crate::support;
use crate::support::daemon::{DaemonSetup, READY};
use crate::support::outbox::{Outbox, until};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::secret;
use nix::sys::signal::Signal;
use quotabell::demo::receivers::{Answer, HttpCatcher};
use quotabell::types::LOG_LINES;
use serde_json::Value;

fn fields(line: &str) -> Value {
    serde_json::from_str(line).expect("a JSON object a line")
}

/// Who sums up durations or filters by the kind of an error reads fields, and text that says everything twice buries
/// what matters.
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

/// An operator must learn which receiver is down; a path may be a secret, and the log is read by many.
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

/// A storm of 200,000 alerts wrote 130 MB. What is told of each alert and delivery has a line for so many a minute, and
/// the others are told with their number when it is over.
#[tokio::test]
async fn a_storm_of_alerts_fills_no_disk() {
    let alerts = u64::from(LOG_LINES) + 100;
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
    let of = [
        ("alert raised ", "more alerts raised, not logged one by one alerts"),
        ("delivery made ", "more deliveries made, not logged one by one deliveries"),
        ("delivered ", "more deliveries ended, not logged one by one deliveries"),
    ];
    for (line, rest) in of {
        let lines = log.lines().filter(|logged| logged.contains(&format!(": {line}"))).count();
        assert_eq!(lines, LOG_LINES as usize, "{line}");
        let number = |logged: &str| logged.split_once(&format!("{rest}="))?.1.parse::<u64>().ok();
        assert_eq!(log.lines().filter_map(number).sum::<u64>(), 100, "{rest}");
    }
}

/// A producer that sends what can't be counted fills no disk, and the operator learns of it without being asked.
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
        .filter(|line| line.contains("an event can't be counted"))
        .filter_map(|line| line.split("reason=").nth(1)?.split(' ').next())
        .collect();
    assert_eq!(reasons, ["bad_units", "bad_metric"]);
    let rest = "more events that can't be counted, not logged one by one reason=bad_units events=1";
    assert!(log.contains(rest), "{log}");
}

/// A platform that writes one wrong field for each of its subjects would fill the disk with every alert, three times.
#[tokio::test]
async fn settings_that_can_not_be_read_fill_no_disk() {
    let subjects = u64::from(LOG_LINES) + 100;
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
        let lines = log.lines().filter(|logged| logged.contains(line)).count();
        assert_eq!(lines, LOG_LINES as usize, "{line}");
    }
}
