//! Limits that change during their period: which alerts are raised, raised again, or never raised.

use crate::support::partition::Partition;
use quotabell::types::{Period, RaisedRecord, Threshold, UnixMs, keys};

/// Counts more units of a subject, and waits until they are counted.
async fn add_units(partition: &Partition, subject: &str, units: u64) {
    partition.add(&[(b"subject", subject.as_bytes()), (b"units", units.to_string().as_bytes())]).await;
    partition.caught_up().await;
}

/// The stored record of a subject's alerts at this percentage.
async fn record(partition: &Partition, subject: &str, percent: u16) -> RaisedRecord {
    let metric = "requests".parse().expect("legal");
    let key = partition.keys.raised(&metric, partition.today().await, keys::bucket(subject));
    let text: String = partition.run(&["HGET", &key, &format!("{percent}:{subject}")]).await;
    serde_json::from_str(&text).expect("a record")
}

/// I3: a customer who upgrades at noon from 5,000 to 20,000 is alerted again at 16,000 and 20,000, and the record keeps
/// the earlier alerts.
#[tokio::test]
async fn a_higher_limit_lets_its_thresholds_be_raised_again() {
    let partition = Partition::with_worker().await;
    add_units(&partition, "alice", 4_999).await;
    add_units(&partition, "alice", 1).await;
    partition.set("alice", &["limit:requests", "20000"]).await;
    add_units(&partition, "alice", 10_999).await;
    let before = [(80, 4_000), (100, 5_000)];
    assert_eq!(partition.raised("alice").await, before, "15,999");
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await[2..], [(80, 16_000)]);
    add_units(&partition, "alice", 3_999).await;
    assert_eq!(partition.raised("alice").await.len(), 3);
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await[2..], [(80, 16_000), (100, 20_000)]);
    let told: Vec<_> = partition.facts().await.into_iter().filter(|alert| alert.subject.as_str() == "alice").collect();
    let ids: std::collections::BTreeSet<_> = told.iter().map(|alert| alert.id.clone()).collect();
    assert_eq!(ids.len(), 4, "four alerts, four ids");
    for alert in &told {
        assert_eq!(partition.run::<String>(&["GET", &partition.keys.flag(&alert.key())]).await, alert.id.as_str());
    }
    let stored = record(&partition, "alice", 80).await;
    assert_eq!((stored.alert.threshold_units, stored.earlier.len()), (16_000, 1));
    assert_eq!((&stored.earlier[0].id, stored.earlier[0].threshold_units), (&told[0].id, 4_000));
}

/// With `alerts.on_multiple = "highest"` only an alert that names no higher threshold is sent: the order of the kinds
/// must be that of their counts, not of their spelling.
#[tokio::test]
async fn an_alert_names_the_higher_thresholds_by_their_counts() {
    let partition = Partition::with_worker().await;
    // Of the limit of 5,000: at 2,500, 4,000, 4,500, 4,900 and never.
    let thresholds = "80,90,used:2500,remaining:100,remaining:5000";
    partition.set("alice", &["thresholds", thresholds]).await;
    add_units(&partition, "alice", 5_000).await;
    let told = partition.facts().await;
    let shown = |threshold: &Threshold| threshold.to_string();
    let named: Vec<(String, Vec<String>)> = told
        .iter()
        .filter(|alert| alert.subject.as_str() == "alice")
        .map(|alert| (shown(&alert.threshold), alert.higher_thresholds.iter().map(shown).collect()))
        .collect();
    let order = ["used:2500", "80", "90", "remaining:100"].map(str::to_owned);
    let expected: Vec<_> = (0..order.len()).map(|at| (order[at].clone(), order[at + 1..].to_vec())).collect();
    assert_eq!(named, expected);
}

/// I3: a limit that goes up and down raises no number twice; and a threshold below the count is raised only by a
/// crossing, not by a change of the limit.
#[tokio::test]
async fn a_limit_that_goes_up_and_down_raises_nothing_twice() {
    let partition = Partition::without_worker();
    let worker = partition.start_worker().await;
    add_units(&partition, "alice", 4_500).await;
    for limit in ["5500", "5000", "5600", "4900", "5000"] {
        partition.set("alice", &["limit:requests", limit]).await;
        add_units(&partition, "alice", 1).await;
    }
    // 80 % of 5,500 are 4,400: the count was above that when the limit was raised.
    assert_eq!(partition.raised("alice").await, [(80, 4_000)]);
    // A new worker reads the record.
    worker.end().await;
    partition.start_worker().await;
    partition.set("alice", &["limit:requests", "5800"]).await;
    add_units(&partition, "alice", 134).await;
    assert_eq!(partition.raised("alice").await, [(80, 4_000)], "4,639");
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await, [(80, 4_000), (80, 4_640)]);
    partition.set("alice", &["limit:requests", "5000"]).await;
    add_units(&partition, "alice", 400).await;
    partition.set("alice", &["limit:requests", "5800"]).await;
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await[2..], [(100, 5_000)], "5,040 and 5,041");
}

/// I3: a limit that changes a little with every request must not cause an email each time.
#[tokio::test]
async fn a_threshold_is_raised_again_ten_times_at_most() {
    let partition = Partition::with_worker().await;
    for n in 1..=13_u64 {
        partition.set("alice", &["limit:requests", &(n * 100).to_string(), "thresholds", "100"]).await;
        add_units(&partition, "alice", 100).await;
    }
    let expected: Vec<(u64, u64)> = (1..=11).map(|n| (100, n * 100)).collect();
    assert_eq!(partition.raised("alice").await, expected, "once, and ten times again");
    assert_eq!(record(&partition, "alice", 100).await.earlier.len(), 10);
}

/// Prepaid units are topped up by higher limits: a bound of ten would end the warnings of a total for good.
#[tokio::test]
async fn a_total_is_raised_again_by_every_higher_limit() {
    let partition = Partition::with_worker().await;
    for n in 1..=13_u64 {
        partition.set("alice", &["limit:requests", &format!("{}/total", n * 100), "thresholds", "100"]).await;
        add_units(&partition, "alice", 100).await;
    }
    assert_eq!(partition.raised("alice").await.len(), 13);
}

/// After a credit a threshold of a higher limit is ahead again. The event that crosses it raises the alert, not an
/// earlier one.
#[tokio::test]
async fn a_higher_limit_is_crossed_by_events_alone_also_after_a_credit() {
    let partition = Partition::with_worker().await;
    partition.set("alice", &["limit:requests", "100"]).await;
    add_units(&partition, "alice", 170).await;
    assert_eq!(partition.raised("alice").await, [(80, 80), (100, 100)]);
    partition.set("alice", &["limit:requests", "200"]).await;
    // 80 % are 160: between the counts of this batch, but never crossed upwards.
    partition.add_at_once(&[&["subject", "alice", "units", "40"], &["subject", "alice", "credit", "150"]]).await;
    partition.caught_up().await;
    assert_eq!(partition.raised("alice").await[2..], [(100, 200)], "210, then 60");
    add_units(&partition, "alice", 99).await;
    assert_eq!(partition.raised("alice").await.len(), 3, "159");
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await[3..], [(80, 160)]);
}

/// I3: a credit may put a threshold ahead again that a higher limit had moved below the count: reaching it then is a
/// crossing.
#[tokio::test]
async fn a_threshold_that_lies_ahead_after_a_credit_is_crossed() {
    let partition = Partition::with_worker().await;
    partition.set("alice", &["limit:requests", "100"]).await;
    add_units(&partition, "alice", 170).await;
    partition.set("alice", &["limit:requests", "200"]).await;
    // 160 is below the count, so the worker's next threshold is 200.
    add_units(&partition, "alice", 1).await;
    partition.add(&[(b"subject", b"alice"), (b"credit", b"21")]).await;
    partition.caught_up().await;
    assert_eq!(partition.raised("alice").await, [(80, 80), (100, 100)]);
    add_units(&partition, "alice", 15).await;
    assert_eq!(partition.raised("alice").await, [(80, 80), (100, 100), (80, 160)]);
}

/// I3: the flag may expire during its day (26 h days, outages): the record still knows.
#[tokio::test]
async fn an_alert_whose_flag_expired_is_not_raised_again() {
    let partition = Partition::without_worker();
    let worker = partition.start_worker().await;
    add_units(&partition, "alice", 4_000).await;
    let flag = partition.keys.flag(&partition.facts().await[0].key());
    assert_eq!(partition.run::<u64>(&["DEL", &flag]).await, 1);
    worker.end().await;
    partition.start_worker().await;
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await, [(80, 4_000)]);
    assert_eq!(partition.run::<u64>(&["EXISTS", &flag]).await, 0);
}

/// During the day the count decides, so a lowered limit takes effect with the next event; afterwards only a crossing
/// does.
#[tokio::test]
async fn a_lowered_limit_counts_today_and_not_for_yesterday() {
    let partition = Partition::without_worker();
    // 12:00 of a day that ended long before the worker reads it, then today.
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "1000"]).await;
    let worker = partition.start_worker().await;
    partition.add_at("2023-11-14T12:00:00Z", &["subject", "alice", "units", "9"]).await;
    add_units(&partition, "alice", 9).await;
    assert_eq!(partition.raised("alice").await, []);
    worker.end().await;
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "10"]).await;
    partition.start_worker().await;
    add_units(&partition, "alice", 1).await;
    assert_eq!(partition.raised("alice").await, [(80, 8), (100, 10)], "today: 80 % lay behind the count");
    let yesterday = Partition::without_worker();
    yesterday.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "1000"]).await;
    let worker = yesterday.start_worker().await;
    yesterday.add_at("2023-11-14T12:00:00Z", &["subject", "alice", "units", "9"]).await;
    yesterday.caught_up().await;
    worker.end().await;
    yesterday.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "10"]).await;
    yesterday.start_worker().await;
    yesterday.add_at("2023-11-14T12:00:01Z", &["subject", "alice", "units", "1"]).await;
    yesterday.caught_up().await;
    assert_eq!(yesterday.raised("alice").await, [(100, 10)], "only the crossing from 9 to 10");
}

/// The receiver's data state which commit raised the alert: the counts before and after, and its entries.
#[tokio::test]
async fn an_alert_carries_its_evidence() {
    let partition = Partition::with_worker().await;
    add_units(&partition, "alice", 3_000).await;
    let before = partition.now().await;
    partition
        .add_at_once(&[
            &["subject", "bob"],
            &["subject", "alice", "units", "1500"],
            &["subject", "alice", "units", "1"],
            &["subject", "bob"],
        ])
        .await;
    partition.caught_up().await;
    let newest: Vec<(String, Vec<String>)> = partition.run(&["XREVRANGE", "usage", "+", "-", "COUNT", "4"]).await;
    let alert = partition.facts().await.remove(0);
    assert_eq!((alert.used_before, alert.used, alert.limit, alert.threshold_units), (3_000, 4_501, 5_000, 4_000));
    assert_eq!(
        (alert.first_entry.to_string(), alert.last_entry.to_string()),
        (newest[3].0.clone(), newest[0].0.clone())
    );
    assert_eq!((alert.plan.as_str(), alert.timezone.as_str()), ("free", "UTC"));
    assert!(UnixMs(before.0 - 1) < alert.raised_at_ms && alert.raised_at_ms <= partition.now().await);
    assert_eq!(alert.period, Period::from(partition.today().await));
}
