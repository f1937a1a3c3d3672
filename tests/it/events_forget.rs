//! Counters that are removed while the worker has them cached.

use crate::support::partition::Partition;
use quotabell::ledger::{forget, query};
use quotabell::types::{Period, Subject, keys};
use quotabell::views::kept_periods;

/// A commit compares only one of many counters in a hash: a cached total must not be written back when another one is
/// compared.
#[tokio::test]
async fn a_counter_that_was_removed_begins_at_zero() {
    let partition = Partition::with_worker().await;
    let bucket = keys::bucket("alice");
    let others = (0..).map(|n| format!("other {n}")).filter(|name| keys::bucket(name) == bucket).take(60);
    let names: Vec<String> = std::iter::once("alice".to_owned()).chain(others).collect();
    let alice = Subject::parse(b"alice").expect("legal");
    let events = |units: &'static str| names.iter().map(move |name| vec!["subject", name.as_str(), "units", units]);
    let add = async |units: &'static str| {
        let events: Vec<Vec<&str>> = events(units).collect();
        partition.add_at_once(&events.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
        partition.caught_up().await;
    };
    // 80 % of the limit of 5,000.
    add("4000").await;
    let today: Period = partition.today().await.into();
    assert_eq!(partition.count("alice", "requests", today).await, Some(4000));
    let periods = kept_periods(partition.now().await);
    let reached = quotabell::redis_client::Partition { client: partition.client.clone(), keys: partition.keys.clone() };
    let counters = query::metrics_of(&reached.client, &reached.keys, &periods).await.expect("redis answers");
    let forgotten = forget::counts(&reached, &alice, &counters).await.expect("redis answers");
    assert_eq!((forgotten.counters, forgotten.records, forgotten.flags), (1, 1, 1));
    add("5").await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(5));
    assert_eq!(partition.count(&names[1], "requests", today).await, Some(4005));
    add("4000").await;
    assert_eq!(partition.raised("alice").await, [(80, 4000), (80, 4000)], "told again, since nothing was used");
    assert_eq!(partition.raised(&names[1]).await, [(80, 4000), (100, 5000)]);
}

/// A flag that stays after an erasure names its subject, and prevents the alert of the next customer with that name.
#[tokio::test]
async fn flags_of_every_kind_of_threshold_are_removed() {
    let partition = Partition::with_worker().await;
    let add = async |units: &str| {
        partition.add_at_once(&[&["subject", "80:alice", "units", units]]).await;
        partition.caught_up().await;
    };
    partition.set("80:alice", &["thresholds", "80,used:4000,remaining:1000"]).await;
    add("4000").await;
    partition.set("80:alice", &["limit:requests", "10000"]).await;
    add("5000").await;
    // The second alert of two thresholds keeps the first one in its record.
    assert_eq!(partition.raised("80:alice").await, [(80, 4000), (80, 4000), (80, 4000), (80, 8000), (90, 9000)]);
    let flags = async || partition.run::<Vec<String>>(&["KEYS", "quota_alert:*:80:alice:*"]).await;
    assert_eq!(flags().await.len(), 5, "{:?}", flags().await);
    let of = quotabell::redis_client::Partition { client: partition.client.clone(), keys: partition.keys.clone() };
    let periods = kept_periods(partition.now().await);
    let counters = query::metrics_of(&of.client, &of.keys, &periods).await.expect("redis answers");
    let alice = Subject::parse(b"80:alice").expect("legal");
    let forgotten = forget::counts(&of, &alice, &counters).await.expect("redis answers");
    assert_eq!((forgotten.counters, forgotten.records, forgotten.flags), (1, 3, 5));
    assert!(flags().await.is_empty(), "{:?}", flags().await);
}
