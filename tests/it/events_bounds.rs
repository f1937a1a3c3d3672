//! Bounds of one commit: any read is split, and all of it is counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::partition::{Partition, WorkerSettings};
use quotabell::types::threshold::THRESHOLDS_MAX;
use quotabell::types::{Day, StreamId};

/// An alert costs the server as much as many counters: 2,000 subjects that crossed both thresholds in one backlog used
/// to block it for 90 ms. The first commit may cost as much as 8,000 counters, so it has 200 alerts; later ones have up
/// to 500, depending on the speed of the server.
#[tokio::test]
async fn alerts_of_a_backlog_are_raised_in_several_commits() {
    const FIRST_MAX: usize = 202;
    const MAX: usize = 502;
    const SUBJECTS: usize = 2_000;
    let partition = Partition::without_worker();
    let mut adds = redis::pipe();
    for n in 0..SUBJECTS {
        adds.cmd("XADD").arg("usage").arg("*").arg("subject").arg(format!("s{n}")).arg("units").arg(5_000).ignore();
    }
    let () = partition.client.pipe(&adds).await.expect("added");
    partition.start_worker().await;
    partition.caught_up().await;
    let told = partition.facts().await;
    let mut commits: BTreeMap<StreamId, usize> = BTreeMap::new();
    for alert in &told {
        *commits.entry(alert.last_entry).or_default() += 1;
    }
    assert!(commits.values().next().is_some_and(|first| *first <= FIRST_MAX), "{commits:?}");
    assert!(commits.values().all(|alerts| *alerts <= MAX), "{commits:?}");
    assert!(commits.len() >= 2 * SUBJECTS / MAX, "{commits:?}");
    let raised: BTreeSet<(&str, u64)> =
        told.iter().map(|alert| (alert.subject.as_str(), alert.threshold_share())).collect();
    assert_eq!((told.len(), raised.len()), (2 * SUBJECTS, 2 * SUBJECTS));
}

/// One event may reach every threshold in every window: its alerts can't be split, and must not stop counting.
#[tokio::test]
async fn one_event_reaches_as_many_thresholds_as_there_may_be() {
    let partition = Partition::without_worker();
    let thresholds: Vec<String> = (1..=THRESHOLDS_MAX).map(|n| n.to_string()).collect();
    let settings = ["limit:requests", "100/hour 100/day 100/week 100/month", "thresholds", &thresholds.join(",")];
    partition.run::<u64>(&[&["HSET", "quota_subject:alice"], settings.as_slice()].concat()).await;
    partition.start_worker().await;
    partition.run::<String>(&["CONFIG", "RESETSTAT"]).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"100")]).await;
    partition.caught_up().await;
    for _ in 0..2 {
        let told = partition.facts().await;
        let raised: BTreeSet<_> = told.iter().map(|alert| (alert.window.to_string(), alert.threshold)).collect();
        assert_eq!((told.len(), raised.len()), (4 * THRESHOLDS_MAX, 4 * THRESHOLDS_MAX));
        let entries: BTreeSet<StreamId> = told.iter().map(|alert| alert.last_entry).collect();
        assert_eq!(entries.len(), 1, "one event raised them all");
        partition.add(&[(b"subject", b"alice"), (b"units", b"1")]).await;
        partition.caught_up().await;
    }
    // They were written once: no commit was too slow and repeated.
    assert_eq!(calls(&partition, "xadd").await, 4 * THRESHOLDS_MAX + 3);
}

/// Number of times that the server has run this command.
async fn calls(partition: &Partition, command: &str) -> usize {
    let stats: String = partition.run(&["INFO", "commandstats"]).await;
    let of = format!("cmdstat_{command}:calls=");
    stats.split(&of).nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// A refused event costs the server as much as several counters, even if it is small.
#[tokio::test]
async fn many_refused_events_are_kept_in_several_commits() {
    const EVENTS: usize = 8_000;
    let partition = Partition::without_worker();
    let mut adds = redis::pipe();
    for _ in 0..EVENTS {
        adds.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").arg("units").arg("-1").ignore();
    }
    let () = partition.client.pipe(&adds).await.expect("added");
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.run::<usize>(&["XLEN", &partition.keys.refused()]).await, EVENTS);
    // Each commit adds to the total of refused events once. One commit of 45,000 entries would have contained all.
    let commits = calls(&partition, "hincrby").await;
    assert!(commits >= 5, "{commits}");
}

/// Old events must not make the worker read and cache counters for each of their days.
#[tokio::test]
async fn events_that_come_too_late_read_no_counters() {
    const EVENTS: i64 = 500;
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "9/hour 9/day 9/week 9/month"]).await;
    let now = partition.now().await;
    let mut adds = redis::pipe();
    for n in 0..EVENTS {
        let ts = now.plus(-(n + 3) * 30 * 86_400_000).0;
        adds.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").arg("ts").arg(ts).ignore();
    }
    let () = partition.client.pipe(&adds).await.expect("added");
    partition.start_worker().await;
    partition.caught_up().await;
    let refused = partition.refused().await;
    assert_eq!(refused.len(), 500);
    assert!(refused.iter().all(|(_, fields)| fields[3] == b"too_late"));
    // Each commit and each cleanup read the checkpoint; nothing reads a counter.
    let asked = calls(&partition, "hmget").await;
    assert!(asked < 100, "{asked}");
}

/// Refused events are stored with their fields: a read full of large ones must not become one commit of many megabytes.
#[tokio::test]
async fn large_refused_events_are_kept_in_several_commits() {
    const EVENTS: usize = 300;
    let partition = Partition::without_worker();
    let large = vec![b'x'; 1_024];
    let mut adds = redis::pipe();
    for n in 0..EVENTS {
        adds.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").arg("units").arg("-1").arg("n").arg(n);
        for field in 0..29 {
            adds.arg(format!("f{field}")).arg(&large);
        }
        adds.ignore();
    }
    adds.cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice").ignore();
    let () = partition.client.pipe(&adds).await.expect("added");
    partition.start_worker().await;
    partition.caught_up().await;
    let refused = partition.refused().await;
    assert_eq!(refused.len(), EVENTS);
    let of: BTreeSet<&Vec<u8>> = refused.iter().map(|(_, fields)| &fields[1]).collect();
    assert_eq!(of.len(), EVENTS, "each entry once");
    assert!(refused.iter().all(|(_, fields)| fields.len() == 6 + 32), "16 fields are kept");
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(1));
    // Each commit adds to the total of refused events once, the last one also to that of counted ones: 13 KiB of each
    // entry are stored.
    let commits = calls(&partition, "hincrby").await - 1;
    assert!(commits > EVENTS * 13 / 1_024, "{commits}");
}

/// Memory of a server, from INFO.
async fn memory(partition: &Partition, field: &str) -> usize {
    let info: String = partition.run(&["INFO", "memory"]).await;
    let value = info.split(&format!("{field}:")).nth(1).and_then(|rest| rest.lines().next());
    value.and_then(|value| value.parse().ok()).expect("a number")
}

/// Adds this number of events of alice, each with a payload of this size.
fn add_payloads(partition: &Partition, entries: usize, bytes: usize) {
    const SCRIPT: &str = "local x = string.rep('x', ARGV[2]) \
         for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'subject', 'alice', 'payload', x) end return 1";
    // Without a deadline, because the script may take long.
    let mut connection = partition.server.sync_client().get_connection().expect("a connection");
    redis::cmd("EVAL").arg(SCRIPT).arg(1).arg("usage").arg(entries).arg(bytes).exec(&mut connection).expect("added");
}

/// Small entries make reads large, and later entries may have any size. 10,000 small ones and 1,500 of 1 MiB used to
/// take the server to 3 GB and the daemon to 1.5 GB.
#[tokio::test]
async fn large_entries_behind_small_ones_are_counted_in_bounded_memory() {
    const MIB: usize = 1 << 20;
    let partition = Partition::without_worker();
    add_payloads(&partition, 10_000, 1);
    add_payloads(&partition, 150, MIB);
    add_payloads(&partition, 2_000, 1);
    partition.run::<String>(&["CONFIG", "RESETSTAT"]).await;
    let before = memory(&partition, "used_memory").await;
    partition.start_worker_with(WorkerSettings { batch_entries: 2_000, ..WorkerSettings::default() }).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(12_150));
    let added = memory(&partition, "used_memory_peak").await - before;
    println!("the server held {} MiB more", added / MIB);
    assert!(added < 64 * MIB, "{added}");
    assert_eq!(partition.run::<i64>(&["XLEN", &partition.keys.refused()]).await, 0);
}

/// An entry beyond the maximum size must neither stop the counting of others nor be dropped silently.
#[tokio::test]
async fn entries_beyond_the_bound_are_refused_and_those_around_them_counted() {
    const MIB: usize = 1 << 20;
    let partition = Partition::without_worker();
    for bytes in [1, 15 * MIB, 17 * MIB, 1, 36 * MIB, 1] {
        add_payloads(&partition, 1, bytes);
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(4));
    let refused = partition.refused().await;
    let kept: Vec<(&[u8], &[u8], usize)> =
        refused.iter().map(|(_, fields)| (&*fields[3], &*fields[7], fields[9].len())).collect();
    assert_eq!(kept, [(b"too_large".as_slice(), b"alice".as_slice(), 1_024); 2]);
    let of: BTreeSet<&Vec<u8>> = refused.iter().map(|(_, fields)| &fields[1]).collect();
    assert_eq!(of.len(), 2, "each entry once");
}

/// An event that no script can append must be refused, because a migration could never copy it. The largest allowed one
/// counts.
#[tokio::test]
async fn events_with_too_many_fields_are_refused_and_those_around_them_counted() {
    let partition = Partition::without_worker();
    for extra in [1, 999, 1_000, 4_200, 1] {
        let fields = [&[(&b"subject"[..], &b"alice"[..])][..], &vec![(&b"note"[..], &b"x"[..]); extra]].concat();
        partition.add(&fields).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(3));
    let refused = partition.refused().await;
    let kept: Vec<(&[u8], &[u8], usize)> =
        refused.iter().map(|(_, fields)| (&*fields[3], &*fields[5], fields.len())).collect();
    let detail = b"an event has at most 1000 fields".as_slice();
    assert_eq!(kept, [(b"too_many_fields".as_slice(), detail, 6 + 32); 2], "with its first 16 fields");
}

/// A new metric for each event would create endless counters, and a day that is never archived. Known metrics, and
/// metrics with limits, must still count.
#[tokio::test]
async fn events_of_more_metrics_than_a_day_may_have_are_refused() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:bob", "limit:asked", "100"]).await;
    let settings = || WorkerSettings { metrics_max: 3, ..WorkerSettings::default() };
    let today = partition.today().await;
    let ts = partition.now().await.0.to_string();
    let send = async |subject: &str, metrics: &[&str]| {
        let events: Vec<Vec<&str>> =
            metrics.iter().map(|metric| vec!["subject", subject, "metric", metric, "ts", &ts]).collect();
        partition.add_at_once(&events.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
        partition.caught_up().await;
    };
    let refused = async || partition.refused().await.iter().map(|(_, fields)| fields[3].clone()).collect::<Vec<_>>();
    let first = partition.start_worker_with(settings()).await;
    send("alice", &["m1", "m2", "m3", "m4", "m1", "m5"]).await;
    assert_eq!(refused().await, vec![b"too_many_metrics"; 2]);
    send("bob", &["asked", "m2", "m6"]).await;
    assert_eq!(refused().await.len(), 3);
    first.end().await;

    // The next process reads them from Redis.
    partition.start_worker_with(settings()).await;
    send("carol", &["m4", "m3", "asked"]).await;
    assert_eq!(refused().await, vec![b"too_many_metrics"; 4], "asked is one of the day's metrics by now");
    for (subject, metric, units) in [("alice", "m1", 2), ("alice", "m3", 1), ("bob", "asked", 1), ("carol", "m3", 1)] {
        assert_eq!(partition.count(subject, metric, today).await, Some(units), "{subject} {metric}");
    }
    assert_eq!(partition.count("alice", "m4", today).await, None);
}

/// A client with its own ids (`XADD usage 5-1`) must be told: its usage used to count in 1970 and raise alerts for that
/// day.
#[tokio::test]
async fn an_event_that_arrived_longer_ago_than_counters_live_is_refused() {
    let partition = Partition::without_worker();
    let now = partition.now().await;
    let days_ago = |days: i64| now.plus(-days * 86_400_000).0;
    for entry in ["5-1".to_owned(), format!("{}-0", days_ago(47)), format!("{}-0", days_ago(45))] {
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "alice", "units", "4000"]).await;
    }
    let age_max = std::time::Duration::from_secs(46 * 86_400);
    partition.start_worker_with(WorkerSettings { age_max, ..WorkerSettings::default() }).await;
    partition.caught_up().await;
    let refused = partition.refused().await;
    let kept: Vec<&[u8]> = refused.iter().map(|(_, fields)| &*fields[3]).collect();
    assert_eq!(kept, [b"too_old".as_slice(); 2]);
    let detail = String::from_utf8_lossy(&refused[0].1[5]).into_owned();
    assert!(detail.contains("1970-01-01") && detail.contains("stream.age_max"), "{detail}");
    assert_eq!(partition.alerts().await, [("alice".to_owned(), 80)], "the one of 45 days ago counts");
}

/// The days of one read used to evict each other, so counting stopped after an outage of three weeks.
#[tokio::test]
async fn a_backlog_of_many_days_is_counted() {
    let partition = Partition::without_worker();
    let now = partition.now().await;
    for days in (0..40).rev() {
        let entry = format!("{}-0", now.plus(-days * 86_400_000).0);
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "alice"]).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.refused().await, []);
    assert_eq!(partition.count("alice", "requests", Day::in_utc(now).expect("a day")).await, Some(1));
}
