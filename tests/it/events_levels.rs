//! Subjects as paths: an event counts at each level, in one commit, and each level alerts for itself.

use std::collections::BTreeSet;

use crate::support::eventually::eventually;
use crate::support::partition::{Partition, WorkerSettings};
use quotabell::ledger::children;
use quotabell::types::{Alert, Day, Period};

const DAY: &str = "2023-11-14";

fn day() -> Period {
    DAY.parse().expect("a period")
}

/// The counts of these subjects on the day.
async fn counts<const N: usize>(partition: &Partition, subjects: [&str; N]) -> [Option<u64>; N] {
    let mut counts = [None; N];
    for (count, subject) in counts.iter_mut().zip(subjects) {
        *count = partition.count(subject, "requests", day()).await;
    }
    counts
}

/// Subject and percentage of each alert, once each.
async fn raised(partition: &Partition) -> BTreeSet<(String, u16)> {
    let alerts = partition.facts().await;
    let of = |alert: &Alert| (alert.subject.to_string(), alert.threshold.percent().expect("a percentage").get());
    let set: BTreeSet<_> = alerts.iter().map(of).collect();
    assert_eq!(set.len(), alerts.len(), "each is raised once");
    set
}

fn expected(alerts: &[(&str, u16)]) -> BTreeSet<(String, u16)> {
    alerts.iter().map(|(subject, percent)| ((*subject).to_owned(), *percent)).collect()
}

/// One event for a key counts for its team and its organization too, each by its own limit; keys and teams have no
/// limit unless it is set for them. One commit may raise alerts at all levels.
#[tokio::test]
async fn an_event_counts_and_alerts_at_each_level() {
    let partition = Partition::of_trees();
    for (subject, limit) in [("acme", "1000"), ("acme/search", "100"), ("acme/search/key-7", "10")] {
        partition.run::<u64>(&["HSET", &format!("quota_subject:{subject}"), "limit:requests", limit]).await;
    }
    let at = "2023-11-14T14:30:00Z";
    partition.add_at(at, &["subject", "acme/search/key-7", "units", "8"]).await;
    partition.add_at("2023-11-14T14:31:00Z", &["subject", "acme/search/key-8", "units", "72"]).await;
    partition.add_at("2023-11-14T14:32:00Z", &["subject", "acme/chat", "units", "720"]).await;
    partition.add_at("2023-11-14T14:33:00Z", &["subject", "acme-2/search", "units", "9"]).await;
    partition.start_worker().await;
    partition.caught_up().await;
    let subjects = ["acme", "acme/search", "acme/chat", "acme/search/key-7", "acme/search/key-8", "acme-2"];
    assert_eq!(counts(&partition, subjects).await, [800, 80, 720, 8, 72, 9].map(Some));
    assert_eq!(raised(&partition).await, expected(&[("acme", 80), ("acme/search", 80), ("acme/search/key-7", 80)]));
    let children: Vec<String> = partition.run(&["ZRANGE", "quota_children:{usage}:acme", "0", "-1"]).await;
    assert_eq!(children, ["acme/chat", "acme/search"]);
    let children: Vec<String> = partition.run(&["ZRANGE", "quota_children:{usage}:acme/search", "0", "-1"]).await;
    assert_eq!(children, ["acme/search/key-7", "acme/search/key-8"]);
    assert!(partition.run::<i64>(&["TTL", "quota_children:{usage}:acme"]).await > 34 * 86_400);
}

/// A credit gives back at each level what that level used, and no more: a level that counted less stays at zero.
#[tokio::test]
async fn a_credit_gives_back_at_each_level_what_it_used() {
    let partition = Partition::of_trees();
    partition.add_at("2023-11-14T14:30:00Z", &["subject", "acme/a", "units", "5"]).await;
    partition.add_at("2023-11-14T14:31:00Z", &["subject", "acme/b", "units", "20"]).await;
    partition.add_at("2023-11-14T14:32:00Z", &["subject", "acme/a", "credit", "8"]).await;
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(counts(&partition, ["acme", "acme/a", "acme/b"]).await, [17, 0, 20].map(Some));
}

/// An event counts at all levels or at none: neither a repetition, nor a counter that is full, nor a bad path may count
/// at some of them.
#[tokio::test]
async fn what_is_not_counted_counts_at_no_level() {
    let partition = Partition::of_trees();
    let most = quotabell::types::units::UNITS_MAX.to_string();
    for (minute, fields) in [
        ["subject", "acme/a", "units", "5", "id", "e1"].as_slice(),
        &["subject", "acme/a", "units", "5", "id", "e1"],
        // Ids belong to the subject of the event.
        &["subject", "acme/b", "units", "5", "id", "e1"],
        &["subject", "acme/b", "units", &most],
        &["subject", "acme//b"],
        &["subject", "/acme"],
        &["subject", "acme/"],
        &["subject", "a/b/c/d/e"],
        &["subject", "a/b/c/d"],
    ]
    .into_iter()
    .enumerate()
    {
        partition.add_at(&format!("2023-11-14T14:{minute:02}:00Z"), fields).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(counts(&partition, ["acme", "acme/a", "acme/b"]).await, [10, 5, 5].map(Some));
    assert_eq!(
        counts(&partition, ["a", "a/b", "a/b/c", "a/b/c/d", "acme/", ""]).await,
        [Some(1), Some(1), Some(1), Some(1), None, None]
    );
    // `entry`, its id, `reason`, the reason, `detail`, the detail, and what was sent.
    let text = |values: &[Vec<u8>], at: usize| String::from_utf8_lossy(&values[at]).into_owned();
    let refused = partition.refused().await;
    let reasons: Vec<String> = refused.iter().map(|(_, values)| text(values, 3)).collect();
    assert_eq!(reasons, ["counter_overflow", "bad_subject", "bad_subject", "bad_subject", "bad_subject"]);
    let details: Vec<String> = refused.iter().map(|(_, values)| text(values, 5)).collect();
    assert!(details[1].contains("empty part") && details[4].contains("5 levels, at most 4"), "{details:?}");
}

/// The day of a key is that of its organization, also after the organization moves; a level with a zone of its own
/// keeps it.
#[tokio::test]
async fn a_zone_applies_to_all_levels_below_it() {
    let partition = Partition::of_trees();
    partition.run::<u64>(&["HSET", "quota_subject:acme", "timezone", "Asia/Tokyo"]).await;
    partition.run::<u64>(&["HSET", "quota_subject:acme/berlin", "timezone", "Europe/Berlin"]).await;
    partition.start_worker().await;
    let next = Period::from("2023-11-15".parse::<Day>().expect("a day"));
    let late = ["units", "1", "ts", "2023-11-14T15:30:00Z"];
    for subject in ["acme/a", "acme/berlin/k"] {
        partition.add_at("2023-11-14T15:31:00Z", &[["subject", subject].as_slice(), &late].concat()).await;
    }
    partition.caught_up().await;
    assert_eq!(partition.count("acme/a", "requests", next).await, Some(1));
    assert_eq!(partition.count("acme", "requests", next).await, Some(2));
    assert_eq!(
        counts(&partition, ["acme", "acme/a", "acme/berlin", "acme/berlin/k"]).await,
        [None, None, Some(1), Some(1)]
    );
    // The settings of the organization change: those below follow within a second.
    partition.run::<u64>(&["HSET", "quota_subject:acme", "timezone", "UTC"]).await;
    eventually("the new zone applies to the level below", || async {
        partition.add_at("2023-11-14T15:32:00Z", &[["subject", "acme/a"].as_slice(), &late].concat()).await;
        partition.caught_up().await;
        partition.count("acme/a", "requests", day()).await
    })
    .await;
}

/// A metric for which a key has a limit must be counted on a day with the maximum number of metrics, although the
/// levels above have no limit for it and are asked first; otherwise the key's limit would be without effect.
#[tokio::test]
async fn a_limit_of_any_level_admits_its_metric() {
    let partition = Partition::of_trees();
    partition.run::<u64>(&["HSET", "quota_subject:acme/a", "limit:images", "10"]).await;
    partition.start_worker_with(WorkerSettings { metrics_max: 1, ..WorkerSettings::default() }).await;
    for (minute, subject, metric) in [(30, "acme/a", "requests"), (31, "acme/a", "images"), (32, "acme/b", "images")] {
        partition.add_at(&format!("2023-11-14T14:{minute}:00Z"), &["subject", subject, "metric", metric]).await;
    }
    partition.add_at("2023-11-14T14:33:00Z", &["subject", "acme/b", "metric", "invented"]).await;
    partition.caught_up().await;
    assert_eq!(partition.refused().await.len(), 1, "the metric without a limit");
    for (subject, count) in [("acme", 2), ("acme/a", 1), ("acme/b", 1)] {
        assert_eq!(partition.count(subject, "images", day()).await, Some(count), "{subject}");
    }
}

/// A key that is used again while it is erased must be found below its team: a list that does not name it would hide it
/// from people, and from the next erasure of the branch.
#[tokio::test]
async fn a_subject_that_is_erased_is_listed_again_when_it_is_used() {
    let partition = Partition::of_trees();
    partition.start_worker().await;
    let add = async |subject: &str| {
        partition.add(&[(b"subject", subject.as_bytes())]).await;
        partition.caught_up().await;
    };
    let list = async || partition.run::<Vec<String>>(&["ZRANGE", "quota_children:{usage}:acme", "0", "-1"]).await;
    add("acme/a").await;
    assert_eq!(list().await, ["acme/a"]);
    // The last step of an erasure, after the worker has counted again.
    let erased = quotabell::redis_client::Partition { client: partition.client.clone(), keys: partition.keys.clone() };
    for subject in ["acme/a", "acme"] {
        children::forget(&erased, &subject.parse().expect("legal")).await.expect("redis answers");
        assert_eq!(list().await, [""; 0]);
        add("acme/a").await;
        assert_eq!(list().await, ["acme/a"], "{subject} is erased");
    }
}

/// One event takes a key, its team and its organization over their limits: each must be told, and all in one commit, or
/// a crash between two of them would lose an alert.
#[tokio::test]
async fn one_event_raises_the_alerts_of_all_its_levels_in_one_commit() {
    let partition = Partition::of_trees();
    for (subject, limit) in [("acme", "1000"), ("acme/search", "900"), ("acme/search/key-7", "800")] {
        partition.run::<u64>(&["HSET", &format!("quota_subject:{subject}"), "limit:requests", limit]).await;
    }
    partition.start_worker().await;
    partition.add_at("2023-11-14T14:30:00Z", &["subject", "acme/search/key-7", "units", "1"]).await;
    partition.caught_up().await;
    assert_eq!(raised(&partition).await, expected(&[]));
    partition.add_at("2023-11-14T14:31:00Z", &["subject", "acme/search/key-7", "units", "849"]).await;
    partition.caught_up().await;
    let all = [("acme", 80), ("acme/search", 80), ("acme/search/key-7", 80), ("acme/search/key-7", 100)];
    assert_eq!(raised(&partition).await, expected(&all));
    let entries: BTreeSet<_> =
        partition.facts().await.iter().map(|alert| (alert.first_entry, alert.last_entry)).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
}

/// An organization may have any number of teams: an alert that named all of them could not be read, and counting must
/// not read them all.
#[tokio::test]
async fn an_alert_names_three_of_the_children_that_were_used_last() {
    let partition = Partition::of_trees();
    partition.run::<u64>(&["HSET", "quota_subject:acme", "limit:requests", "11000"]).await;
    let mut events: Vec<[String; 4]> = Vec::new();
    for number in 0..1_002 {
        let units = match number {
            0 => "2000",
            1 => "3000",
            500 => "600",
            501 => "700",
            502 => "800",
            _ => "1",
        };
        events.push(["subject", &format!("acme/{number:04}"), "units", units].map(str::to_owned));
    }
    let worker = partition.start_worker().await;
    let events: Vec<Vec<&str>> = events.iter().map(|event| event.iter().map(String::as_str).collect()).collect();
    partition.add_at_once(&events.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    partition.caught_up().await;
    // The two that used most were used on an earlier day, the others today.
    partition.run::<u64>(&["ZADD", "quota_children:{usage}:acme", "CH", "5", "acme/0000", "6", "acme/0001"]).await;
    assert_eq!(raised(&partition).await, expected(&[]));
    worker.end().await;
    // The next worker holds nothing of them in memory.
    partition.start_worker().await;
    partition.add(&[(b"subject", b"acme/0999"), (b"units", b"1000")]).await;
    partition.caught_up().await;
    let alerts = partition.facts().await;
    let named: Vec<(&str, u64)> = alerts[0].largest.iter().map(|child| (child.subject.as_str(), child.used)).collect();
    assert_eq!((alerts.len(), named), (1, vec![("acme/0999", 1001), ("acme/0502", 800), ("acme/0501", 700)]));
}

/// Keys come and go: a list that keeps each for ever would grow without bound, and one that forgets too early would
/// hide a key that is used once a month.
#[tokio::test]
async fn a_child_that_was_not_used_for_35_days_is_forgotten() {
    let partition = Partition::of_trees();
    partition.start_worker().await;
    let today = partition.today().await.since_epoch();
    for (name, days) in [("acme/gone", 36), ("acme/last", 34), ("acme/lately", 1)] {
        partition.run::<u64>(&["ZADD", "quota_children:{usage}:acme", &(today - days).to_string(), name]).await;
    }
    partition.add(&[(b"subject", b"acme/new")]).await;
    partition.caught_up().await;
    let left: Vec<String> = partition.run(&["ZRANGE", "quota_children:{usage}:acme", "0", "-1"]).await;
    assert_eq!(left, ["acme/last", "acme/lately", "acme/new"]);
    let ttl_s: i64 = partition.run(&["TTL", "quota_children:{usage}:acme"]).await;
    assert!((35 * 86_400 - 60..=35 * 86_400).contains(&ttl_s), "{ttl_s}");
}
