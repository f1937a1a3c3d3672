//! Ids of events: each counts once, with any reader and after any interruption.

use std::time::Duration;

use crate::support::eventually::eventually;
use crate::support::partition::{Partition, WorkerSettings};
use quotabell::ledger::event_ids::window_of;
use quotabell::types::Day;

async fn add_id(partition: &Partition, id: &str) {
    partition.add(&[(b"subject", b"alice"), (b"id", id.as_bytes())]).await;
}

/// I1: the next reader knows what the last one counted, whether that one drained, still runs, or was killed.
#[tokio::test]
async fn an_id_counts_once_across_a_take_over_and_a_restart() {
    let partition = Partition::without_worker();
    let today = partition.today().await;
    let first = partition.start_worker().await;
    for id in ["a", "b"] {
        add_id(&partition, id).await;
        partition.caught_up().await;
    }
    // A second reader runs beside the first: the one that loses a batch restarts.
    let second = partition.start_worker().await;
    for n in 0..60 {
        add_id(&partition, ["a", "b", "c"][n % 3]).await;
    }
    partition.caught_up().await;
    first.end().await;
    for id in ["a", "b", "c", "d"] {
        add_id(&partition, id).await;
    }
    partition.caught_up().await;
    second.end().await;
    for id in ["d", "a", "e"] {
        add_id(&partition, id).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(5));
    let totals: u64 = partition.run(&["HGET", &partition.keys.totals(), "duplicates"]).await;
    assert_eq!(totals, 2 + 60 + 4 + 3 - 5);
}

/// I1: ids that were counted before the server's clock was set back are in a window that has not begun again.
#[tokio::test]
async fn an_id_counts_once_across_a_restart_after_the_clock_was_set_back() {
    for windows in [1, 143] {
        let partition = Partition::without_worker();
        let worker = partition.start_worker().await;
        // As if the clock was wrong by these windows when it was counted.
        let now: Vec<u64> = partition.run(&["TIME"]).await;
        let entry = format!("{}-1", (now[0] + windows * 600) * 1_000);
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "alice", "id", "a"]).await;
        partition.caught_up().await;
        worker.end().await;
        let keys: Vec<String> = partition.run(&["KEYS", "quota_seen:*"]).await;
        let (prefix, window) = keys[0].rsplit_once(':').expect("a window");
        let then = window.parse::<u64>().expect("a number") + windows;
        partition.run::<()>(&["RENAME", &keys[0], &format!("{prefix}:{then}")]).await;
        let _worker = partition.start_worker().await;
        for _ in 0..2 {
            add_id(&partition, "a").await;
        }
        partition.caught_up().await;
        let duplicates: u64 = partition.run(&["HGET", &partition.keys.totals(), "duplicates"]).await;
        assert_eq!(duplicates, 2, "{windows}");
    }
}

/// I1: the promise is 10 to 20 minutes of stream time, also for a reader that starts in between; old ids are removed,
/// including those of skipped windows.
#[tokio::test]
async fn an_id_counts_once_across_a_restart_at_a_windows_end() {
    let partition = Partition::without_worker();
    let begins = 1_000_000 * 600_000_u64;
    // Minutes, and whether the event counts.
    let entries = [
        (0, true),
        (9, false),
        (12, false),
        (19, false),
        (20, true),
        (29, false),
        (31, false),
        (45, true),
        (700, true),
    ];
    let mut counted = 0;
    for (minutes, counts) in entries {
        let entry = format!("{}-1", begins + minutes * 60_000);
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "alice", "id", "x"]).await;
        let worker = partition.start_worker().await;
        partition.caught_up().await;
        counted += u64::from(counts);
        let day = Day::in_utc(quotabell::types::UnixMs(i64::try_from(begins).expect("small"))).expect("a day");
        let mut sum = partition.count("alice", "requests", day).await.unwrap_or(0);
        sum += partition.count("alice", "requests", day.next().expect("a day")).await.unwrap_or(0);
        assert_eq!(sum, counted, "{minutes} min");
        worker.end().await;
    }
    let worker = partition.start_worker().await;
    let ids = [("800", "y"), ("1000", "z"), ("1200", "z"), ("1400", "z")];
    for (minutes, id) in ids {
        let entry = format!("{}-1", begins + minutes.parse::<u64>().expect("minutes") * 60_000);
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "alice", "id", id]).await;
    }
    partition.caught_up().await;
    // The remaining ids are in the window that counts.
    eventually("lists of windows that are past are removed", || async {
        let lists: Vec<String> = partition.run(&["KEYS", "quota_seen:*"]).await;
        (lists == [partition.keys.event_ids(1_000_140)]).then_some(())
    })
    .await;
    worker.end().await;
}

/// Shippers with a buffer on disk send again after hours.
#[tokio::test]
async fn with_a_window_of_a_day_an_id_counts_once_within_a_day() {
    let partition = Partition::without_worker();
    let begins = 1_000_000 * 600_000_u64;
    for (hours, counted) in [(0, 1), (5, 1), (24, 1), (50, 2)] {
        let entry = format!("{}-1", begins + hours * 3_600_000);
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "alice", "id", "x"]).await;
        let event_ids_window = Duration::from_secs(86_400);
        // Each reader learns the ids from Redis.
        let worker =
            partition.start_worker_with(WorkerSettings { event_ids_window, ..WorkerSettings::default() }).await;
        partition.caught_up().await;
        worker.end().await;
        assert_eq!(partition.run::<u64>(&["HGET", &partition.keys.totals(), "counted"]).await, counted, "{hours} h");
    }
}

/// One explicit id in the future dates every later entry: windows follow arrival, so ids are still found and still
/// removed.
#[tokio::test]
async fn an_entry_in_the_future_does_not_freeze_the_windows() {
    let partition = Partition::with_worker().await;
    let now = partition.now().await;
    let ahead = format!("{}-0", now.0 + 10 * 86_400_000);
    partition.run::<String>(&["XADD", "usage", &ahead, "subject", "alice", "id", "ahead"]).await;
    for id in ["a", "b", "a", "ahead", "b", "c"] {
        add_id(&partition, id).await;
        partition.caught_up().await;
    }
    let lists: Vec<String> = partition.run(&["KEYS", "quota_seen:*"]).await;
    let now = window_of(partition.now().await);
    let expected = [now - 1, now].map(|window| partition.keys.event_ids(window));
    assert!(!lists.is_empty() && lists.iter().all(|list| expected.contains(list)), "{lists:?}");
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(4));
}

/// Endless ids must not exhaust the memory: the newest are remembered, also by the next reader, which reads stored ids
/// in slices. Forgotten ids count again, so that must be reported.
#[tokio::test]
async fn of_more_ids_than_may_be_remembered_the_newest_are() {
    const MAX: usize = 1_000;
    const IDS: usize = 2_500;
    let partition = Partition::without_worker();
    // All in one window, even if the test's minute is the last one of a window.
    let ms = partition.now().await.0 / 600_000 * 600_000;
    let add = async |ids: Vec<usize>, first: usize| {
        let mut adds = redis::pipe();
        for (n, id) in ids.into_iter().enumerate() {
            adds.cmd("XADD").arg("usage").arg(format!("{ms}-{}", first + n)).arg("subject").arg("alice");
            adds.arg("id").arg(id).ignore();
        }
        let () = partition.client.pipe(&adds).await.expect("added");
        partition.caught_up().await;
    };
    let settings = || WorkerSettings { event_ids_max: MAX, batch_entries: 50, ..WorkerSettings::default() };
    let worker = partition.start_worker_with(settings()).await;
    add((0..IDS).collect(), 1).await;
    let count = async || partition.count("alice", "requests", partition.today().await).await;
    assert_eq!(count().await, Some(IDS as u64));
    // At least the newest half of the maximum.
    add((IDS - MAX / 2..IDS).collect(), 10_000).await;
    assert_eq!(count().await, Some(IDS as u64));
    worker.end().await;
    partition.start_worker_with(settings()).await;
    add((IDS - MAX / 2..IDS).collect(), 20_000).await;
    assert_eq!(count().await, Some(IDS as u64));
    // Not the oldest.
    add((0..10).collect(), 30_000).await;
    assert_eq!(count().await, Some(IDS as u64 + 10));
}

/// A stream that is renamed back, or restored alone, is read again from its beginning: events counted a moment before
/// must not count again.
#[tokio::test]
async fn ids_are_known_when_the_stream_of_before_comes_back() {
    let partition = Partition::without_worker();
    let worker = partition.start_worker().await;
    let today = partition.today().await;
    for id in ["a", "b"] {
        add_id(&partition, id).await;
    }
    partition.caught_up().await;
    partition.run::<u64>(&["COPY", "usage", "backup"]).await;
    partition.run::<()>(&["RENAME", "usage", "renamed"]).await;
    add_id(&partition, "c").await;
    partition.caught_up().await;
    partition.run::<()>(&["RENAME", "renamed", "usage"]).await;
    partition.caught_up().await;
    for id in ["c", "d"] {
        add_id(&partition, id).await;
    }
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(4), "after it was renamed back");
    // Two of its entries are missing in the backup.
    partition.run::<()>(&["RENAME", "backup", "usage"]).await;
    partition.caught_up().await;
    worker.end().await;
    partition.start_worker().await;
    for id in ["d", "c", "a", "e"] {
        add_id(&partition, id).await;
    }
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(5), "after it was restored");
}
