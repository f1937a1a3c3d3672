//! Credit: returned units, in the order of the stream.

use crate::support::partition::Partition;

/// I1: unused units can't be returned, and the order of the stream decides, also between events with and without ids.
#[tokio::test]
async fn a_credit_gives_back_what_was_used_before_it_and_no_more() {
    let partition = Partition::without_worker();
    for fields in [
        // 5, 0, 3.
        &["subject", "alice", "units", "5"][..],
        &["subject", "alice", "credit", "10"],
        &["subject", "alice", "units", "3"],
        // The same with ids: a repeated event changes nothing at any place.
        &["subject", "bob", "units", "5", "id", "a"],
        &["subject", "bob", "credit", "10", "id", "b"],
        &["subject", "bob", "units", "4"],
        &["subject", "bob", "credit", "10", "id", "b"],
        &["subject", "bob", "units", "3", "id", "c"],
        &["subject", "bob", "units", "5", "id", "a"],
        // A credit first.
        &["subject", "carol", "credit", "7"],
        &["subject", "carol", "units", "2"],
        &["subject", "dora", "credit", "1"],
    ] {
        partition.run::<String>(&[&["XADD", "usage", "*"], fields].concat()).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    let today = partition.today().await;
    for (subject, units) in [("alice", 3), ("bob", 7), ("carol", 2), ("dora", 0)] {
        assert_eq!(partition.count(subject, "requests", today).await, Some(units), "{subject}");
    }
    let total = |field: &'static str| partition.run::<u64>(Vec::leak(vec!["HGET", "quota_totals:{usage}", field]));
    assert_eq!((total("counted").await, total("duplicates").await), (10, 2));
}

/// A nearly full counter accepts what fits at that place of the stream: a credit makes room only for later events.
#[tokio::test]
async fn the_order_of_the_stream_decides_what_fits() {
    let partition = Partition::without_worker();
    let full = ((1_u64 << 53) - 1).to_string();
    for fields in [
        &["subject", "alice", "units", &full][..],
        &["subject", "alice", "units", "2", "id", "early"],
        &["subject", "alice", "credit", "5", "id", "credit"],
        &["subject", "alice", "units", "4"],
        &["subject", "alice", "units", "2", "id", "late"],
        &["subject", "alice", "units", "1", "id", "fits"],
        &["subject", "alice", "units", "1"],
        // It was refused before, so its id was not used up: it is judged again.
        &["subject", "alice", "credit", "9"],
        &["subject", "alice", "units", "2", "id", "early"],
    ] {
        partition.run::<String>(&[&["XADD", "usage", "*"], fields].concat()).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some((1 << 53) - 1 - 9 + 2));
    let refused = partition.refused().await;
    let ids: Vec<Option<&[u8]>> = refused.iter().map(|(_, fields)| fields.get(11).map(Vec::as_slice)).collect();
    assert_eq!(ids, [Some(b"early".as_slice()), Some(b"late".as_slice()), None]);
}

/// An entry with units and credit, or with a credit of zero, is a mistake that must be reported.
#[tokio::test]
async fn units_and_credit_in_one_entry_are_refused() {
    let partition = Partition::with_worker().await;
    for fields in [&["units", "5", "credit", "5"][..], &["credit", "0"], &["credit", "-5"], &["credit", ""]] {
        partition.run::<String>(&[&["XADD", "usage", "*", "subject", "alice"], fields].concat()).await;
    }
    partition.add(&[(b"subject", b"alice"), (b"units", b"1")]).await;
    partition.caught_up().await;
    let refused = partition.refused().await;
    assert_eq!(refused.len(), 4);
    assert!(refused.iter().all(|(_, fields)| fields[3] == b"bad_credit"), "{refused:?}");
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(1));
}

/// I3: a customer was alerted at 4,000 of 5,000. Neither a credit nor a second crossing of 4,000 repeats the alert, not
/// even by a new worker.
#[tokio::test]
async fn a_credit_takes_no_alert_back_and_lets_none_be_raised_twice() {
    let partition = Partition::without_worker();
    let worker = partition.start_worker().await;
    let move_by = async |field: &str, units: &str| {
        partition.add(&[(b"subject", b"alice"), (field.as_bytes(), units.as_bytes())]).await;
        partition.caught_up().await;
    };
    move_by("units", "4000").await;
    assert_eq!(partition.raised("alice").await, [(80, 4000)]);
    move_by("credit", "1500").await;
    assert_eq!(partition.raised("alice").await, [(80, 4000)]);
    move_by("units", "1600").await;
    // Above and below again in one batch.
    partition.add_at_once(&[&["subject", "alice", "credit", "2000"], &["subject", "alice", "units", "2000"]]).await;
    partition.caught_up().await;
    worker.end().await;
    partition.start_worker().await;
    move_by("credit", "4000").await;
    move_by("units", "4200").await;
    assert_eq!(partition.raised("alice").await, [(80, 4000)]);
    move_by("units", "1000").await;
    assert_eq!(partition.raised("alice").await, [(80, 4000), (100, 5000)]);
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(5300));
}

/// I3: a threshold that was reached only for a moment was reached, whatever was credited later.
#[tokio::test]
async fn a_threshold_that_a_credit_leaves_in_the_same_batch_is_raised() {
    let partition = Partition::with_worker().await;
    partition
        .add_at_once(&[
            &["subject", "alice", "units", "4100"],
            &["subject", "alice", "credit", "4000"],
            &["subject", "alice", "units", "50"],
        ])
        .await;
    partition.caught_up().await;
    assert_eq!(partition.raised("alice").await, [(80, 4000)]);
    let told = partition.facts().await;
    assert_eq!((told[0].used_before, told[0].used), (0, 4100));
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(150));
}
