//! The worker archives past days.

use crate::support::eventually::eventually;
use crate::support::partition::Partition;
use quotabell::ledger::daily_usage;
use quotabell::types::{Day, Metric, Subject, keys};

const CLOSED_TTL_S: i64 = 48 * 3600 + 2560;

/// A day's usage must be known after its counters are gone: also in a silent stream, and by a daemon that finds the day
/// at its start. Counters that expired earlier would be lost.
#[tokio::test]
async fn a_day_that_is_over_is_archived_before_its_counters_are_let_go() {
    let partition = Partition::without_worker();
    let past = partition.today().await.before(4).expect("a day");
    let alice = Subject::parse(b"alice").expect("legal");
    let archived = async |day: Day| {
        let read =
            daily_usage::read(&partition.client, &partition.keys, &alice, None, &[]).await.expect("redis answers");
        read.get(&Metric::default()).and_then(|days| days.get(&day).copied())
    };
    let counter = partition.keys.usage(&Metric::default(), past, keys::bucket("alice"));
    let ttl_s = async || partition.run::<i64>(&["TTL", &counter]).await;

    let first = partition.start_worker().await;
    partition.add_at(&format!("{past}T12:00:00Z"), &["subject", "alice", "units", "5"]).await;
    eventually("it is archived", || async { (archived(past).await == Some(5)).then_some(()) }).await;
    // An entry may still get an id of that day, so the day is not closed.
    assert!(ttl_s().await > CLOSED_TTL_S);
    partition.add_at(&format!("{past}T13:00:00Z"), &["subject", "alice", "units", "2"]).await;
    eventually("it is archived again", || async { (archived(past).await == Some(7)).then_some(()) }).await;
    first.end().await;

    partition.add(&[(b"subject", b"bob")]).await;
    partition.start_worker().await;
    eventually("its counters are let go", || async { (ttl_s().await <= CLOSED_TTL_S).then_some(()) }).await;
    assert_eq!(archived(past).await, Some(7));
    assert_eq!(archived(past.next().expect("a day")).await, None);
}

/// 100,000 metrics that were used once took 16 h to archive, half a second each: days followed faster, and history was
/// lost. A hundred took a minute.
#[tokio::test]
async fn metrics_with_few_counters_are_archived_many_at_a_time() {
    const METRICS: usize = 100;
    let partition = Partition::without_worker();
    let past = partition.today().await.before(4).expect("a day");
    let mut pipeline = redis::pipe();
    for number in 0..METRICS {
        let metric: Metric = format!("m{number}").parse().expect("legal");
        pipeline.hset(partition.keys.usage(&metric, past, keys::bucket("alice")), "alice", 5).ignore();
        pipeline.sadd(partition.keys.metrics(past), metric.as_str()).ignore();
    }
    let () = partition.client.pipe(&pipeline).await.expect("written");
    partition.add(&[(b"subject", b"bob")]).await;
    partition.start_worker().await;
    let alice = Subject::parse(b"alice").expect("legal");
    eventually("all of them are archived", || async {
        let read = daily_usage::read(&partition.client, &partition.keys, &alice, None, &[]).await.ok()?;
        (read.len() == METRICS).then_some(())
    })
    .await;
}
