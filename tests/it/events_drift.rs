//! Counters that somebody changes by hand while the worker runs.

use crate::support::eventually::eventually;
use crate::support::partition::{Partition, WorkerSettings};
use quotabell::types::{Metric, keys};

async fn counter(partition: &Partition, subject: &str) -> String {
    partition.keys.usage(&Metric::default(), partition.today().await, keys::bucket(subject))
}

/// I1: the stored value wins, and nothing is lost or counted twice: a worker that trusts its cache would overwrite the
/// correction.
#[tokio::test]
async fn a_counter_changed_by_hand_is_counted_on_from_what_is_stored() {
    let partition = Partition::with_worker().await;
    let key = counter(&partition, "alice").await;
    let today = partition.today().await;
    for n in 0..5_u64 {
        for stored in [Some(100), Some(7), None, Some(0)] {
            match stored {
                Some(units) => partition.run::<u64>(&["HSET", &key, "alice", &units.to_string()]).await,
                None => partition.run::<u64>(&["HDEL", &key, "alice"]).await,
            };
            partition
                .add_at_once(&[&["subject", "alice", "units", "2"], &["subject", "bob"], &["subject", "alice"]])
                .await;
            partition.caught_up().await;
            assert_eq!(partition.count("alice", "requests", today).await, Some(stored.unwrap_or(0) + 3), "{n}");
        }
    }
    assert_eq!(partition.count("bob", "requests", today).await, Some(20));
    assert_eq!(partition.run::<u64>(&["HGET", &partition.keys.totals(), "counted"]).await, 60);
}

/// I3: a count that somebody raised above a threshold has reached it: the next event raises the alert, once.
#[tokio::test]
async fn a_counter_lifted_over_a_threshold_alerts_with_the_next_event() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"10")]).await;
    partition.caught_up().await;
    let key = counter(&partition, "alice").await;
    partition.run::<u64>(&["HSET", &key, "alice", "4500"]).await;
    for _ in 0..2 {
        partition.add(&[(b"subject", b"alice")]).await;
        partition.caught_up().await;
    }
    assert_eq!(partition.raised("alice").await, [(80, 4_000)]);
    let told = partition.facts().await;
    assert_eq!((told[0].used_before, told[0].used), (4_500, 4_501));
}

/// A deleted or renamed hash is counted from zero, with the usual lifetime.
#[tokio::test]
async fn counters_deleted_by_hand_are_counted_from_zero() {
    let partition = Partition::with_worker().await;
    let key = counter(&partition, "alice").await;
    for _ in 0..3 {
        partition.add(&[(b"subject", b"alice"), (b"units", b"9")]).await;
        partition.caught_up().await;
        assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(9));
        assert!(partition.run::<i64>(&["TTL", &key]).await > 13 * 86_400);
        assert_eq!(partition.run::<u64>(&["DEL", &key]).await, 1);
    }
}

/// I8: a value that no commit writes is reported and not interpreted: a count with a leading zero would always look
/// changed.
#[tokio::test]
async fn a_count_that_no_commit_writes_stops_the_counting_until_it_is_mended() {
    for held in ["007", "1.5", "-1", "abc", "", "9007199254740992", "+5"] {
        let partition = Partition::without_worker();
        let key = counter(&partition, "alice").await;
        partition.run::<u64>(&["HSET", &key, "alice", held]).await;
        partition.start_worker().await;
        partition.add(&[(b"subject", b"alice"), (b"units", b"2")]).await;
        // Nothing else reads counters: after two replies the worker has judged one.
        eventually("the counter is read again", || async {
            let stats: String = partition.run(&["INFO", "commandstats"]).await;
            let calls = stats.split("cmdstat_lrange:calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
            calls.filter(|calls| *calls >= 4)
        })
        .await;
        assert_eq!(partition.run::<String>(&["HGET", &key, "alice"]).await, held);
        partition.run::<u64>(&["HSET", &key, "alice", "5"]).await;
        partition.caught_up().await;
        assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(7), "{held:?}");
    }
}

/// The events for each withdrawn right: each needs all commands of a commit.
fn events(n: usize) -> [Vec<String>; 3] {
    let metric = format!("m{n}");
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    [
        words(&["subject", "alice", "metric", &metric, "units", "85", "id", &metric]),
        words(&["subject", "bob", "metric", &metric, "units", "3"]),
        words(&["subject", "alice", "metric", &metric, "units", "bad"]),
    ]
}

/// I2: a right that is withdrawn at run time stops the worker; a commit that failed midway would be counted again at
/// each attempt, and an alert would be raised again or lost.
#[tokio::test]
async fn a_right_withdrawn_while_a_worker_counts_leaves_nothing_half_done() {
    const RIGHTS: [&str; 7] = ["xadd", "sadd", "rpush", "expire", "hincrby", "hset", "set"];
    let partition = Partition::without_worker();
    let refusals = async || {
        let stats: String = partition.run(&["INFO", "errorstats"]).await;
        let count = stats.split("errorstat_NOPERM:count=").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        count.unwrap_or(0_u64)
    };
    partition.run::<String>(&["ACL", "SETUSER", "bell", "on", ">pass", "~*", "&*", "+@all"]).await;
    for n in 0..RIGHTS.len() {
        partition.run::<u64>(&["HSET", "quota_subject:alice", &format!("limit:m{n}"), "100"]).await;
    }
    partition.start_worker_with(WorkerSettings { user: Some("bell:pass"), ..WorkerSettings::default() }).await;
    for (n, right) in RIGHTS.into_iter().enumerate() {
        partition.add(&[(b"subject", b"carol")]).await;
        partition.caught_up().await;
        partition.run::<String>(&["ACL", "SETUSER", "bell", &format!("-{right}")]).await;
        let before = refusals().await;
        let events = events(n);
        let events: Vec<Vec<&str>> = events.iter().map(|event| event.iter().map(String::as_str).collect()).collect();
        partition.add_at_once(&events.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
        eventually("commits are refused", || async { (refusals().await > before + 2).then_some(()) }).await;
        let today = partition.today().await;
        let metric = format!("m{n}");
        assert_eq!(partition.count("alice", &metric, today).await, None, "without {right}");
        assert_eq!(partition.count("bob", &metric, today).await, None, "without {right}");
        assert_eq!(partition.raised("alice").await.len(), n, "without {right}");
        assert_eq!(partition.refused().await.len(), n, "without {right}");
        partition.run::<String>(&["ACL", "SETUSER", "bell", "+@all"]).await;
        partition.caught_up().await;
        assert_eq!(partition.count("alice", &metric, today).await, Some(85), "without {right}");
        assert_eq!(partition.count("bob", &metric, today).await, Some(3), "without {right}");
        assert_eq!(partition.raised("alice").await.len(), n + 1, "without {right}");
    }
    let total = async |field: &str| partition.run::<u64>(&["HGET", &partition.keys.totals(), field]).await;
    let rounds = RIGHTS.len() as u64;
    let totals = [total("counted").await, total("refused").await, total("raised").await];
    assert_eq!(totals, [3 * rounds, rounds, rounds]);
    let flags: Vec<String> = partition.run(&["KEYS", "quota_alert:*"]).await;
    assert_eq!(flags.len(), RIGHTS.len());
}
