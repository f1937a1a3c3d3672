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
