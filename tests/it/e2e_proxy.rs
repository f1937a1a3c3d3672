//! A network between daemon and Redis with every kind of fault: nothing is lost, counted twice or raised twice.

use std::time::Duration;

use quotabell::redis_client::RedisClient;
use quotabell::types::{Keys, keys};

use crate::support::checker::{compare, enter_stream};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;
use crate::support::stream_model::{Customer, Limit, StreamModel};
use crate::support::surviving::{agrees, all_counted, all_fanned_out, counted, run};

const SUBJECTS: u64 = 11;
/// Daily limit; each fault happens while some subjects cross a threshold.
const LIMIT: u64 = 70;
const EVENTS: u64 = 60;

/// Adds some events at once, so that they form one or two commits.
async fn add(client: &RedisClient, from: u64) {
    let mut events = redis::pipe();
    for number in from..from + EVENTS {
        events.cmd("XADD").arg("usage").arg("*").arg("subject").arg(format!("s-{}", number % SUBJECTS)).ignore();
    }
    let () = client.pipe(&events).await.expect("added");
}

/// A commit with a lost reply has happened: a daemon that resends it, or assumes that it failed, would count twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_network_does_nothing_is_lost_and_nothing_doubled() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port()).await;
    let mut daemon = DaemonSetup::on(&proxy.url())
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
        .env("QUOTABELL__STREAM__BATCH_ENTRIES", "20")
        .start()
        .await;
    let client = server.client();
    let once = [Fault::LoseReply, Fault::CutReply, Fault::CutRequest, Fault::HalfOpen];
    let lasting = [Fault::Delay(Duration::from_millis(5)), Fault::Split, Fault::HoldReplies, Fault::BlackHole];
    let mut added = 0;
    for fault in once.into_iter().cycle().take(3 * once.len()) {
        proxy.set(fault);
        add(&client, added).await;
        added += EVENTS;
        proxy.done().await;
        all_counted(&client).await;
    }
    for fault in lasting {
        let said = daemon.lines();
        proxy.set(fault);
        add(&client, added).await;
        added += EVENTS;
        if matches!(fault, Fault::HoldReplies | Fault::BlackHole) {
            daemon.says_again("timed out", said).await;
        } else {
            all_counted(&client).await;
        }
        proxy.cut();
        proxy.set(Fault::None);
        all_counted(&client).await;
    }
    assert_eq!(counted(&client).await, added);
    agrees(&client, LIMIT).await;
    daemon.drain().await;
}

/// A checker that finds nothing would make every test with it pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_finds_whatever_is_changed() {
    let server = RedisServer::start();
    let (client, names) = (server.client(), Keys::new("usage"));
    let daemon = DaemonSetup::on(&server.url())
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["5/day","1000/week"]}"#)
        .start()
        .await;
    for event in ["subject alice units 9", "subject bob", "subject carol units x", "subject dora id a"] {
        let words: Vec<&str> = ["XADD", "usage", "*"].into_iter().chain(event.split(' ')).collect();
        run::<String>(&client, &words).await;
    }
    eventually("everything is read", || async {
        let read: Option<u64> = run(&client, &["HGET", &names.checkpoint(), "entries_read"]).await;
        (read == Some(4)).then_some(())
    })
    .await;
    all_fanned_out(&client, &names).await;
    daemon.kill().await;

    let customer = |subject| {
        let limits = [(5, "day"), (1000, "week")].map(|(units, window)| Limit { window, units });
        Customer { limits: [("requests", limits.to_vec())].into(), ..Customer::plain(subject) }
    };
    let mut model = StreamModel::new(&["alice", "bob", "dora"].map(customer), 5);
    enter_stream(&client, "usage", &mut model).await;
    compare(&client, &names, &model).await.findings.expect_none();

    let all: Vec<String> = run(&client, &["KEYS", "quota_*"]).await;
    assert!(all.len() > 15, "{all:?}");
    for name in all {
        // Leases, the metrics of a period, the ids of events and the log of alerts say nothing about counts. The outbox
        // is empty.
        if ["quota_lease:", "quota_daemons", "quota_metrics:", "quota_seen:", "quota_outbox:", "quota_alert_log:"]
            .iter()
            .any(|kind| name.starts_with(kind))
        {
            continue;
        }
        run::<u64>(&client, &["RENAMENX", &name, "aside"]).await;
        let findings = compare(&client, &names, &model).await.findings;
        assert!(!findings.is_clean(), "{name} may go unnoticed");
        run::<u64>(&client, &["RENAMENX", "aside", &name]).await;
    }
    let is_found = async |words: &[&str]| {
        run::<redis::Value>(&client, words).await;
        let findings = compare(&client, &names, &model).await.findings;
        assert!(!findings.is_clean(), "{words:?} goes unnoticed");
        findings
    };
    let bucket = keys::bucket("bob");
    let week: Vec<String> = run(&client, &["KEYS", &format!("quota_usage:*-W*:{bucket:02x}")]).await;
    assert_eq!(is_found(&["HSET", &week[0], "bob", "2"]).await.doubled.len(), 1);
    assert_eq!(is_found(&["HSET", &week[0], "bob", "0"]).await.lost.len(), 1);
    run::<u64>(&client, &["HSET", &week[0], "bob", "1"]).await;
    assert_eq!(is_found(&["HINCRBY", &names.totals(), "raised", "1"]).await.raised_twice.len(), 1);
    assert_eq!(is_found(&["HINCRBY", &names.totals(), "raised", "-2"]).await.never_raised.len(), 1);
    run::<u64>(&client, &["HINCRBY", &names.totals(), "raised", "1"]).await;
    let refused: Vec<(String, Vec<String>)> = run(&client, &["XRANGE", &names.refused(), "-", "+"]).await;
    let kept = names.refused();
    let again = ["XADD", &kept, "*"].into_iter().chain(refused[0].1.iter().map(String::as_str));
    assert_eq!(is_found(&again.collect::<Vec<_>>()).await.doubled.len(), 1);
    assert_eq!(is_found(&["XTRIM", &names.refused(), "MAXLEN", "0"]).await.lost.len(), 1);
}
