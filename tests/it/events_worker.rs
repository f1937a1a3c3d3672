//! The worker on a real server: every entry is counted or refused once, whatever the stream contains.

use std::collections::BTreeMap;

use crate::support::eventually::eventually;
use crate::support::partition::{Pair, Partition, WorkerSettings};
use quotabell::events::{DaemonName, PartitionLease};
use quotabell::types::{Day, UnixMs};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;

/// A hash of counts: subject to units.
type Counts = BTreeMap<String, u64>;

/// I8: every rule of the event table is broken in every way that a client can, and the stream continues.
#[tokio::test]
async fn every_broken_rule_is_refused_with_its_reason_and_the_stream_goes_on() {
    let partition = Partition::with_worker().await;
    let long = vec![b'x'; 257];
    let long_id = vec![b'i'; 129];
    let long_metric = vec![b'm'; 65];
    let mut cases: Vec<(&str, Vec<Pair<'_>>)> = vec![
        ("missing_subject", vec![(b"units", b"1")]),
        ("missing_subject", vec![(b"Subject", b"alice")]),
        ("bad_subject", vec![(b"subject", b"")]),
        ("bad_subject", vec![(b"subject", &long)]),
        ("bad_subject", vec![(b"subject", b"\xff\xfe")]),
        ("bad_subject", vec![(b"subject", b"a\x00b")]),
        ("bad_subject", vec![(b"subject", b"a\nb")]),
        ("bad_metric", vec![(b"subject", b"alice"), (b"metric", &long_metric)]),
        ("bad_id", vec![(b"subject", b"alice"), (b"id", b"")]),
        ("bad_id", vec![(b"subject", b"alice"), (b"id", &long_id)]),
    ];
    let huge = "9".repeat(31);
    for units in ["", "0", "-1", "+1", "1.5", "1e3", "0x10", " 5", "5 ", "9007199254740992", &huge, "NaN"] {
        cases.push(("bad_units", vec![(b"subject", b"alice"), (b"units", units.as_bytes())]));
    }
    for metric in ["", "Requests", "a b", "a:b", "\u{e9}"] {
        cases.push(("bad_metric", vec![(b"subject", b"alice"), (b"metric", metric.as_bytes())]));
    }
    let seconds = "1795250000";
    for ts in ["", "tomorrow", "2026-02-30T00:00:00Z", "2026-11-21T10:00:00", "-5", "99999999999999999999", seconds] {
        cases.push(("bad_ts", vec![(b"subject", b"alice"), (b"ts", ts.as_bytes())]));
    }
    let now = partition.now().await;
    let (late, ahead) = (now.plus(-3 * 86_400_000).0.to_string(), now.plus(600_000).0.to_string());
    cases.push(("too_late", vec![(b"subject", b"alice"), (b"ts", late.as_bytes())]));
    cases.push(("too_far_ahead", vec![(b"subject", b"alice"), (b"ts", ahead.as_bytes())]));
    let extra: Vec<Pair<'_>> = vec![(b"note", b"x"); 1_000];
    cases.push(("too_many_fields", [&extra[..], &[(b"subject", b"")]].concat()));
    // The order of the table decides, not the order in the entry.
    cases.push(("bad_subject", vec![(b"ts", b"x"), (b"units", b"-1"), (b"subject", b"")]));

    let mut expected = Vec::new();
    for (reason, fields) in &cases {
        expected.push((partition.add(fields).await, (*reason).to_owned()));
    }
    partition.add(&[(b"subject", b"alice"), (b"units", b"7")]).await;
    partition.caught_up().await;
    let seen: Vec<(String, String)> = partition
        .refused()
        .await
        .into_iter()
        .map(|(_, f)| (String::from_utf8_lossy(&f[1]).into_owned(), String::from_utf8_lossy(&f[3]).into_owned()))
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(7));
    let totals: Counts = partition.run(&["HGETALL", &partition.keys.totals()]).await;
    assert_eq!((totals["counted"], totals["refused"]), (1, cases.len() as u64));
}

/// Subjects are opaque: colons, braces, spaces and emoji are ordinary characters.
#[tokio::test]
async fn odd_subjects_are_counted_apart() {
    let partition = Partition::with_worker().await;
    let subjects = ["a:b", "a", "{usage}", "}{", "*", "with space", "🦀🔔", "80:alice", "alice", &"y".repeat(256)];
    for (n, subject) in subjects.iter().enumerate() {
        let units = (n + 1).to_string();
        partition.add(&[(b"subject", subject.as_bytes()), (b"units", units.as_bytes()), (b"other", b"field")]).await;
    }
    partition.caught_up().await;
    for (n, subject) in subjects.iter().enumerate() {
        assert_eq!(
            partition.count(subject, "requests", partition.today().await).await,
            Some(n as u64 + 1),
            "{subject}"
        );
    }
}

/// A producer that repeats an event because a reply was lost is counted once: in one batch, across batches, across
/// workers.
#[tokio::test]
async fn an_event_id_counts_once() {
    let partition = Partition::without_worker();
    for (subject, metric, id) in
        [("a", "requests", "1"), ("a", "requests", "1"), ("a", "tokens", "1"), ("b", "requests", "1")]
    {
        partition
            .add(&[(b"subject", subject.as_bytes()), (b"metric", metric.as_bytes()), (b"id", id.as_bytes())])
            .await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    partition.add(&[(b"subject", b"a"), (b"id", b"1")]).await;
    partition.add(&[(b"subject", b"a"), (b"id", b"2")]).await;
    partition.add(&[(b"subject", b"a")]).await;
    partition.caught_up().await;
    let today = partition.today().await;
    assert_eq!(partition.count("a", "requests", today).await, Some(3));
    assert_eq!(partition.count("a", "tokens", today).await, Some(1));
    assert_eq!(partition.count("b", "requests", today).await, Some(1));
    let totals: Counts = partition.run(&["HGETALL", &partition.keys.totals()]).await;
    assert_eq!(totals["duplicates"], 2);
}

/// Ids protect for 10 to 20 minutes of stream time, also across an outage, and independent of the reader's clock.
#[tokio::test]
async fn event_ids_protect_in_stream_time() {
    let partition = Partition::without_worker();
    let minute = 60_000;
    let entries = [(0, "x"), (9, "x"), (19, "x"), (20, "x"), (41, "x")];
    for (minutes, id) in entries {
        let entry = format!("{}-1", 1_000_000 * 600_000_u64 + minutes * minute);
        partition.run::<String>(&["XADD", "usage", &entry, "subject", "a", "id", id]).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    // Counted at 0, 20 and 41: 9 and 19 are in the same and the next window.
    let day = Day::in_utc(UnixMs(1_000_000 * 600_000)).expect("a day");
    assert_eq!(partition.count("a", "requests", day).await, Some(3));
}

/// A limit, a zone or a plan written with HSET takes effect at once, also for an active subject.
#[tokio::test]
async fn a_plain_hset_takes_effect_within_a_second() {
    let partition = Partition::with_worker().await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"10")]).await;
    partition.caught_up().await;
    assert_eq!(partition.alerts().await, []);
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "12"]).await;
    eventually("the new limit is applied to the next event", || async {
        partition.add(&[(b"subject", b"alice")]).await;
        partition.caught_up().await;
        (!partition.alerts().await.is_empty()).then_some(())
    })
    .await;
    assert_eq!(partition.alerts().await[0], ("alice".to_owned(), 80));
}

/// An unreadable setting must not become a default: the subject is counted but not judged, and judged again after the
/// fix.
#[tokio::test]
async fn a_subject_with_an_unreadable_setting_is_counted_and_not_judged() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "plan", "gold"]).await;
    partition.start_worker().await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"6000")]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(6000));
    assert_eq!(partition.alerts().await, []);
    partition.run::<u64>(&["HSET", "quota_subject:alice", "plan", "free"]).await;
    eventually("the alerts are raised once the plan is mended", || async {
        partition.add(&[(b"subject", b"alice")]).await;
        (partition.alerts().await.len() == 2).then_some(())
    })
    .await;
}

/// A subject whose key became a string keeps all its settings: the default plan would alert it at a wrong limit.
#[tokio::test]
async fn a_subject_whose_key_is_no_hash_any_more_keeps_its_last_settings() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "100000"]).await;
    partition.start_worker().await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
    partition.run::<String>(&["SET", "quota_subject:alice", "mine"]).await;
    // Changes are noticed in order: when this one is, the earlier one is too.
    partition.run::<u64>(&["HSET", "quota_subject:bob", "limit:requests", "1", "thresholds", "100"]).await;
    eventually("the change of alice was noticed", || async {
        partition.add(&[(b"subject", b"bob")]).await;
        partition.caught_up().await;
        (!partition.alerts().await.is_empty()).then_some(())
    })
    .await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"6000")]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(6001));
    assert_eq!(partition.alerts().await, [("bob".to_owned(), 100)]);
}

/// A platform may constantly write its own fields to a subject's hash: that must not stop counting.
#[tokio::test]
async fn a_subject_that_is_written_all_the_time_is_counted() {
    let partition = Partition::with_worker().await;
    let (stop, client) = (partition.stop.clone(), partition.server.client());
    tokio::spawn(async move {
        let mut writes = redis::pipe();
        for n in 0..2000 {
            writes.cmd("HSET").arg("quota_subject:alice").arg("last_seen").arg(n).ignore();
        }
        while !stop.is_cancelled() {
            let () = client.pipe(&writes).await.expect("written");
        }
    });
    for n in 1..=20 {
        partition.add(&[(b"subject", b"alice")]).await;
        partition.caught_up().await;
        assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(n));
    }
}

/// I8: a day before 1970 ends at a negative instant, which the commit must handle.
#[tokio::test]
async fn an_event_of_the_last_day_of_1969_is_counted_and_judged() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "timezone", "Asia/Dubai"]).await;
    let event = ["subject", "alice", "units", "5000", "ts", "1969-12-31T19:00:00Z"];
    partition.run::<String>(&[&["XADD", "usage", "1-1"], event.as_slice()].concat()).await;
    partition.add(&[(b"subject", b"bob")]).await;
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", Day::parse("1969-12-31").expect("a date")).await, Some(5000));
    assert_eq!(partition.alerts().await, [("alice".to_owned(), 80), ("alice".to_owned(), 100)]);
}

/// I8: entries too large for the first read are read in smaller reads. Here the server closes the connection at a reply
/// above 1 MB, like a slow network at the deadline.
#[tokio::test]
async fn entries_too_large_for_one_reading_are_read_in_smaller_ones() {
    let partition = Partition::without_worker();
    partition.run::<String>(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0"]).await;
    let large = vec![b'x'; 100_000];
    for _ in 0..64 {
        partition.add(&[(b"subject", b"alice"), (b"payload", &large)]).await;
    }
    partition.start_worker().await;
    eventually("all are counted", || async {
        (partition.count("alice", "requests", partition.today().await).await == Some(64)).then_some(())
    })
    .await;
}

/// I7: the same instant is on different days in different zones.
#[tokio::test]
async fn days_lie_in_the_subjects_zone() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:kiri", "timezone", "Pacific/Kiritimati"]).await;
    partition.run::<u64>(&["HSET", "quota_subject:pago", "timezone", "Pacific/Pago_Pago"]).await;
    let noon = "1700000000000-0"; // 2023-11-14T22:13:20Z
    partition.run::<String>(&["XADD", "usage", noon, "subject", "kiri"]).await;
    partition.run::<String>(&["XADD", "usage", "1700000000000-1", "subject", "pago"]).await;
    partition.start_worker().await;
    partition.caught_up().await;
    let day = |text: &str| Day::parse(text).expect("a date");
    assert_eq!(partition.count("kiri", "requests", day("2023-11-15")).await, Some(1));
    assert_eq!(partition.count("pago", "requests", day("2023-11-14")).await, Some(1));
}

/// Near 2^53 - 1 each event is counted or refused separately, in the order of the stream.
#[tokio::test]
async fn events_that_do_not_fit_a_full_counter_are_refused_one_by_one() {
    let partition = Partition::without_worker();
    let most = "9007199254740991";
    for units in ["9007199254740981", most, "4", "7", "6", "1"] {
        partition.add(&[(b"subject", b"alice"), (b"units", units.as_bytes())]).await;
    }
    partition.add(&[(b"subject", b"bob")]).await;
    partition.start_worker().await;
    partition.caught_up().await;
    let today = partition.today().await;
    assert_eq!(partition.count("alice", "requests", today).await, Some(9_007_199_254_740_991));
    assert_eq!(partition.count("bob", "requests", today).await, Some(1));
    let reasons: Vec<_> = partition.refused().await.into_iter().map(|(_, f)| (f[3].clone(), f[9].clone())).collect();
    let overflow = b"counter_overflow".to_vec();
    assert_eq!(reasons, [most, "7", "1"].map(|units| (overflow.clone(), units.as_bytes().to_vec())));
}

/// Three workers without a lease race for every batch: each entry counts once, each alert is raised once.
#[tokio::test]
async fn racing_workers_count_every_entry_once() {
    let partition = Partition::with_worker().await;
    partition.start_worker().await;
    partition.start_worker().await;
    for n in 0..3000_u64 {
        let subject = format!("s{}", n % 7);
        let units = (1 + n % 3 * 10).to_string();
        partition.add(&[(b"subject", subject.as_bytes()), (b"units", units.as_bytes())]).await;
    }
    partition.caught_up().await;
    let today = partition.today().await;
    let mut expected = Counts::new();
    for n in 0..3000_u64 {
        *expected.entry(format!("s{}", n % 7)).or_default() += 1 + n % 3 * 10;
    }
    for (subject, units) in &expected {
        assert_eq!(partition.count(subject, "requests", today).await, Some(*units), "{subject}");
    }
    let mut alerts = partition.alerts().await;
    alerts.sort();
    let due: Vec<(String, u64)> = expected
        .iter()
        .flat_map(|(subject, units)| {
            [(80, 4000), (100, 5000)]
                .into_iter()
                .filter(move |(_, at)| *units >= *at)
                .map(|(p, _)| (subject.clone(), p))
        })
        .collect();
    assert_eq!(alerts, due);
    let totals: Counts = partition.run(&["HGETALL", &partition.keys.totals()]).await;
    assert_eq!(totals["counted"], 3000);
}

/// After a race for a nearly full counter a worker must forget the units of its own failed commit: otherwise it would
/// refuse events that fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_for_full_counters_refuses_only_what_does_not_fit() {
    const COUNT_MAX: u64 = (1 << 53) - 1;
    const UNITS_LEFT: u64 = 2_000;
    const SUBJECTS: u64 = 12;
    const EVENTS: u64 = 6_000;
    let seed =
        std::env::var("QUOTABELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("QUOTABELL_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut counts, mut refused) = (Counts::new(), 0_u64);
    let mut pipeline = redis::pipe();
    let mut add = |subject: String, units: u64| {
        pipeline.cmd("XADD").arg("usage").arg("*").arg("subject").arg(&subject).arg("units").arg(units).ignore();
        let count = counts.entry(subject).or_default();
        if *count + units > COUNT_MAX {
            refused += 1;
        } else {
            *count += units;
        }
    };
    for number in 0..SUBJECTS {
        add(format!("s{number}"), COUNT_MAX - UNITS_LEFT);
    }
    for _ in 0..EVENTS {
        let bits = random.random_range(0..9);
        add(format!("s{}", random.random_range(0..SUBJECTS)), 1 << bits);
    }
    let partition = Partition::without_worker();
    // Small batches, many commits, many races.
    for _ in 0..2 {
        partition.start_worker_with(WorkerSettings { batch_entries: 5, ..WorkerSettings::default() }).await;
    }
    let () = partition.client.pipe(&pipeline).await.expect("they are added");
    partition.caught_up().await;
    let today = partition.today().await;
    for (subject, units) in &counts {
        assert_eq!(partition.count(subject, "requests", today).await, Some(*units), "{subject}");
    }
    let totals: Counts = partition.run(&["HGETALL", &partition.keys.totals()]).await;
    assert_eq!((totals["counted"], totals["refused"]), (SUBJECTS + EVENTS - refused, refused));
}

/// Two containers with the same host name and inner address: each takes the other for its own dead predecessor. If they
/// believed it repeatedly, they would take the lease from each other forever.
#[tokio::test]
async fn two_workers_at_the_same_address_do_not_take_the_lease_from_each_other() {
    let partition = Partition::without_worker();
    let key = partition.keys.lease();
    let mut holders: Vec<String> = Vec::new();
    for _ in 0..2 {
        let name = DaemonName::new("box", "0.0.0.0:9464".parse().expect("an address"));
        let lease = PartitionLease::new(&partition.keys, &name, watch::Sender::new(true).subscribe());
        partition.start_worker_with(WorkerSettings { lease: Some(lease), ..WorkerSettings::default() }).await;
        let holder = eventually("the new one holds the lease", || async {
            let holder: Option<String> = partition.run(&["GET", &key]).await;
            holder.filter(|holder| !holders.contains(holder))
        })
        .await;
        holders.push(holder);
    }
    // Nothing else asks for a TTL: the first daemon has noticed, and keeps asking.
    eventually("the first stands by", || async {
        assert_eq!(partition.run::<String>(&["GET", &key]).await, holders[1]);
        let stats: String = partition.run(&["INFO", "commandstats"]).await;
        let calls: Option<u64> = stats.split("cmdstat_pttl:calls=").nth(1)?.split(',').next()?.parse().ok();
        calls.filter(|calls| *calls >= 4)
    })
    .await;
    partition.add(&[(b"subject", b"alice")]).await;
    partition.caught_up().await;
}

/// A foreign value in one of our keys stops the partition until it is fixed; then nothing is missing.
#[tokio::test]
async fn a_key_of_another_type_stops_counting_until_it_is_mended() {
    let partition = Partition::with_worker().await;
    partition.run::<String>(&["SET", &partition.keys.outbox(), "mine"]).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"5000")]).await;
    eventually("the server has refused a commit", || async {
        let stats: String = partition.run(&["INFO", "errorstats"]).await;
        stats.contains("errorstat_WRONGTYPE").then_some(())
    })
    .await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, None);
    partition.run::<u64>(&["DEL", &partition.keys.outbox()]).await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", partition.today().await).await, Some(5000));
    assert_eq!(partition.alerts().await.len(), 2);
}
