//! The commit on a real server: atomic, once, after any interruption.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::support::eventually::eventually;
use crate::support::ledger::{Change, Ledger, flag, instance, raising, refused, settings};
use quotabell::ledger::audit::{AuditFinding, audit};
use quotabell::ledger::batch::GROUP_ROWS_MAX;
use quotabell::ledger::commit::Drift;
use quotabell::ledger::{Batch, CommitReply, Committer, EventIdDigest};
use quotabell::redis_client::xread::StreamReader;
use quotabell::redis_client::{ErrorKind, RedisEndpoint, error_kind};
use quotabell::types::{Alert, Metric, RaisedRecord, StreamId, Subject, UnixMs, keys};

/// A counter of this subject that changes from the first count to the second.
fn change(subject: &str, before: u64, total: u64) -> Change<'_> {
    Change { subject, before, total }
}

/// A batch from before Redis was emptied must not be committed into a new deployment: it would get a foreign id and
/// alerts.
#[tokio::test]
async fn a_batch_of_another_deployment_is_not_committed() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, change("alice", 0, 1)).await;
    let () = ledger.run(&["HSET", &ledger.keys.checkpoint(), "instance", "another"]).await;
    assert_eq!(ledger.commit(&batch).await, CommitReply::Stale(StreamId::ZERO));
    assert_eq!(ledger.count(&batch).await, None);
    let () = ledger.run(&["HSET", &ledger.keys.checkpoint(), "instance", instance().as_str()]).await;
    ledger.committed(&batch).await;
}

/// I2, I3: a crossing writes counter, flag, record and outbox together, with the contract's texts and lifetimes.
#[tokio::test]
async fn a_crossing_raises_flag_record_and_outbox_entry_together() {
    let ledger = Ledger::open();
    let batch = raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80);
    let batch = Batch { behind_for: Duration::from_millis(300), ..batch };
    assert_eq!(ledger.committed(&batch).await, [0_usize; 0]);

    let alert = &batch.alerts[0].record.alert;
    let (of, bucket) = (&batch.groups[0].of, batch.groups[0].bucket);
    assert_eq!(flag(&ledger, &batch), format!("quota_alert:{{usage}}:alice:requests:80:{}:8", of.period));
    assert_eq!(ledger.run::<String>(&["GET", &flag(&ledger, &batch)]).await, alert.id.as_str());
    let ttl: u64 = ledger.run(&["TTL", &flag(&ledger, &batch)]).await;
    assert!((107_990..=108_000).contains(&ttl), "{ttl}");

    let record: String = ledger.run(&["HGET", &ledger.records(&batch), "80:alice"]).await;
    assert_eq!(serde_json::from_str::<RaisedRecord>(&record).expect("a record"), batch.alerts[0].record);
    let outbox: Vec<(String, Vec<String>)> = ledger.run(&["XRANGE", &ledger.keys.outbox(), "-", "+"]).await;
    assert_eq!(outbox.len(), 1);
    assert_eq!(
        (outbox[0].1[0].as_str(), serde_json::from_str::<Alert>(&outbox[0].1[1]).ok()),
        ("alert", Some(alert.clone()))
    );

    let expected = 14 * 86_400 + 10 * u64::from(bucket);
    for key in [ledger.counter(&batch), ledger.records(&batch)] {
        let ttl_s: u64 = ledger.run(&["TTL", &key]).await;
        assert!((expected - 5..=expected).contains(&ttl_s), "{key}: {ttl_s}");
    }
    assert_eq!(ledger.count(&batch).await, Some(8));
    assert_eq!(ledger.run::<Vec<String>>(&["SMEMBERS", &ledger.keys.metrics(of.period)]).await, ["requests"]);
    let mut checkpoint: HashMap<String, String> = ledger.run(&["HGETALL", &ledger.keys.checkpoint()]).await;
    let committed_at = checkpoint.remove("committed_at_ms").and_then(|at| at.parse().ok()).map(UnixMs);
    assert!(committed_at.is_some_and(|at| at >= batch.read_at), "{committed_at:?}");
    let expected = [
        ("id", batch.to.to_string()),
        ("behind_ms", "300".to_owned()),
        ("entries_read", "1".to_owned()),
        ("instance", instance().to_string()),
        ("format", "2".to_owned()),
        ("partitions", "1".to_owned()),
        ("separator", String::new()),
        ("fingerprint", settings().plans.fingerprint().to_string()),
    ];
    assert_eq!(checkpoint, expected.map(|(name, value)| (name.to_owned(), value)).into());
    let totals: HashMap<String, u64> = ledger.run(&["HGETALL", &ledger.keys.totals()]).await;
    assert_eq!(totals, [("counted", 1), ("raised", 1)].map(|(name, n)| (name.to_owned(), n)).into());
}

/// I1: a batch that is sent twice (a lost reply, a cluster client that resends) counts once.
#[tokio::test]
async fn a_batch_committed_twice_counts_once() {
    let ledger = Ledger::open();
    let batch = raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80);
    ledger.committed(&batch).await;
    let before = ledger.dump().await;
    assert_eq!(ledger.commit(&batch).await, CommitReply::Stale(batch.to));
    assert_eq!(ledger.dump().await, before);
}

/// I1: one of two workers that read the same entries must read again.
#[tokio::test]
async fn two_racing_workers_count_once() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    let other = Committer::new(ledger.keys.clone(), settings());
    let (a, b) =
        tokio::join!(ledger.commit(&batch), async { other.commit(&ledger.client, &batch).await.expect("answers") });
    assert_eq!(
        [&a, &b].iter().filter(|answer| matches!(answer, CommitReply::Committed { .. })).count(),
        1,
        "{a:?} {b:?}"
    );
    assert_eq!(ledger.count(&batch).await, Some(3));
}

/// The next batch's size depends on it. Only Redis and Valkey 7.2 can't report it.
#[tokio::test]
async fn a_commit_answers_how_long_its_script_ran() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    let began = Instant::now();
    let answer = ledger.commit(&batch).await;
    let round_trip = began.elapsed();
    let CommitReply::Committed { ran: Some(ran), .. } = answer else { panic!("{answer:?}") };
    // Both clocks are precise to a millisecond.
    assert!(ran <= round_trip + Duration::from_millis(1), "{ran:?} of {round_trip:?}");
}

/// A primary that lost its tail must not accept a commit of the tail.
#[tokio::test]
async fn a_batch_whose_last_entry_is_gone_is_lost() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    ledger.run::<u64>(&["XDEL", "usage", &batch.to.to_string()]).await;
    let before = ledger.dump().await;
    assert_eq!(ledger.commit(&batch).await, CommitReply::Lost);
    assert_eq!(ledger.dump().await, before);
}

/// Deleting an entry between its read and its commit has the same effect as deleting it after the commit: it was
/// counted, is not reported as lost, and is not counted twice.
#[tokio::test]
async fn an_entry_that_is_deleted_between_reading_and_commit_counts_once() {
    let ledger = Ledger::open();
    let first = ledger.batch(StreamId::ZERO, change("alice", 0, 1)).await;
    ledger.committed(&first).await;
    let [_, middle, last] = [ledger.add("alice").await, ledger.add("alice").await, ledger.add("alice").await];
    let mut batch = ledger.batch_to(first.to, last, &[change("alice", 1, 4)]).await;
    (batch.entries, batch.counted) = (3, 3);
    ledger.run::<u64>(&["XDEL", "usage", &middle.to_string()]).await;
    ledger.committed(&batch).await;
    assert_eq!(ledger.count(&batch).await, Some(4));
    for _ in 0..2 {
        assert_eq!(audit(&ledger.client, &ledger.keys, last, 0).await.expect("redis answers"), AuditFinding::Even);
        assert_eq!(ledger.run::<u64>(&["HGET", &ledger.keys.checkpoint(), "entries_read"]).await, 4);
    }
}

/// A failover loses entries that were read. If the new primary's clock is behind, or producers choose ids, other
/// entries may get the same ids: the last id then exists and proves nothing about earlier ones.
#[tokio::test]
async fn a_batch_is_not_committed_to_a_server_that_has_other_entries_under_its_ids() {
    let (primary, successor) = (Ledger::open(), Ledger::open());
    for (ledger, subject) in [(&primary, "alice"), (&successor, "bob")] {
        ledger.run::<String>(&["XADD", "usage", "5-1", "subject", subject]).await;
    }
    let last = "5-1".parse().expect("an id");
    let mut batch = primary.batch_to(StreamId::ZERO, last, &[change("alice", 0, 1)]).await;
    batch.server = Some(run_id(&primary).await);
    let before = successor.dump().await;
    let _reader = reader(&successor).await;
    assert_eq!(successor.commit(&batch).await, CommitReply::Replaced);
    assert_eq!(successor.dump().await, before);
    primary.committed(&batch).await;
}

async fn run_id(ledger: &Ledger) -> std::sync::Arc<str> {
    let info: String = ledger.run(&["INFO", "server"]).await;
    info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("it has one").into()
}

async fn reader(ledger: &Ledger) -> StreamReader {
    StreamReader::connect(&RedisEndpoint::local(ledger.server.port()), "usage").await.expect("it reads")
}

/// INFO costs the server as much as several counters per commit. A subscribed reader proves the same; INFO is needed if
/// the reader is gone or the user may not ask.
#[tokio::test]
async fn the_process_is_known_by_its_reader() {
    let ledger = Ledger::open();
    let (mut from, mut reading) = (StreamId::ZERO, Some(reader(&ledger).await));
    for (n, is_there) in [(0, true), (1, false)] {
        let mut batch = ledger.batch(from, change("alice", n, n + 1)).await;
        batch.server = Some(run_id(&ledger).await);
        if !is_there {
            drop(reading.take());
            eventually("the reader has gone", || async {
                ledger.run::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await.is_empty().then_some(())
            })
            .await;
        }
        ledger.run::<String>(&["CONFIG", "RESETSTAT"]).await;
        ledger.committed(&batch).await;
        let stats: String = ledger.run(&["INFO", "commandstats"]).await;
        assert_eq!(stats.contains("cmdstat_info:"), !is_there, "{stats}");
        from = batch.to;
    }
    let mut batch = ledger.batch(from, change("alice", 2, 3)).await;
    batch.server = Some(run_id(&ledger).await);
    ledger.run::<String>(&["ACL", "SETUSER", "default", "-pubsub"]).await;
    ledger.committed(&batch).await;
}

/// Entries read from a primary that the promoted replica lacks must not be counted there, although the replica has the
/// batch's checkpoint: without this rule 1050 were counted and 1000 survived.
#[tokio::test]
async fn a_batch_read_from_a_primary_whose_tail_was_lost_is_lost() {
    let (primary, replica) = (Ledger::open_with(&["--save", "", "--repl-diskless-sync-delay", "0"]), Ledger::open());
    let first = primary.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    primary.committed(&first).await;
    let port = primary.server.port().to_string();
    replica.run::<String>(&["REPLICAOF", "127.0.0.1", &port]).await;
    eventually("the replica has it all", || async { (replica.count(&first).await == Some(3)).then_some(()) }).await;
    replica.run::<String>(&["REPLICAOF", "NO", "ONE"]).await;

    let tail = primary.batch(first.to, change("alice", 3, 8)).await;
    let before = replica.dump().await;
    assert_eq!(replica.commit(&tail).await, CommitReply::Lost);
    assert_eq!(replica.dump().await, before);
    // Entries after the promotion do not change that either.
    let survivor = replica.batch(first.to, change("alice", 3, 4)).await;
    assert_eq!(replica.commit(&tail).await, CommitReply::Lost);
    replica.committed(&survivor).await;
    assert_eq!(replica.count(&first).await, Some(4));
}

/// A worker that was paused would judge by limits that may have changed.
#[tokio::test]
async fn a_batch_read_too_long_ago_is_old() {
    let ledger = Ledger::open();
    let mut batch = ledger.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    batch.read_at = batch.read_at.plus(-5_500);
    let before = ledger.dump().await;
    assert_eq!(ledger.commit(&batch).await, CommitReply::Old);
    assert_eq!(ledger.dump().await, before);
}

/// I1: another program's value in a counter must not be overwritten. The only counter of a hash is always compared, and
/// so is each counter that raises an alert.
#[tokio::test]
async fn a_counter_that_was_changed_by_hand_is_drift_and_nothing_is_written() {
    let ledger = Ledger::open();
    let first = ledger.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    ledger.committed(&first).await;
    let counter = ledger.counter(&first);
    let next = raising(ledger.batch(first.to, change("alice", 3, 8)).await, 80);
    for held in ["4", "0", "03", "", "3.0", "abc"] {
        ledger.run::<u64>(&["HSET", &counter, "alice", held]).await;
        let before = ledger.dump().await;
        let drift = Drift { key: counter.clone(), subject: "alice".into(), held: held.into() };
        assert_eq!(ledger.commit(&next).await, CommitReply::Drift(drift), "{held:?}");
        assert_eq!(ledger.dump().await, before, "{held:?}");
    }
    ledger.run::<u64>(&["HDEL", &counter, "alice"]).await;
    let drift = Drift { key: counter.clone(), subject: "alice".into(), held: "0".into() };
    assert_eq!(ledger.commit(&next).await, CommitReply::Drift(drift), "it has gone");
    ledger.run::<u64>(&["HSET", &counter, "alice", "3"]).await;
    ledger.committed(&next).await;
    assert_eq!(ledger.count(&next).await, Some(8));
}

/// Two subjects whose counters are in one hash.
fn neighbours() -> [String; 2] {
    let names = || (0..).map(|n| format!("s{n}"));
    let first = names().next().expect("one");
    let second = names().skip(1).find(|name| keys::bucket(name) == keys::bucket(&first)).expect("one of 256");
    [first, second]
}

/// Only one row of a hash is compared: if it were always the same, changes of the others would never be noticed.
#[tokio::test]
async fn each_counter_of_a_hash_is_compared_at_some_time() {
    let ledger = Ledger::open();
    let [one, other] = neighbours();
    let mut from = StreamId::ZERO;
    let mut units = 0;
    for changed in [&one, &other] {
        let mut found = false;
        // The chance is one in two: with this number of attempts it is never missed.
        for _ in 0..100 {
            let to = ledger.add("alice").await;
            let batch =
                ledger.batch_to(from, to, &[change(&one, units, units + 1), change(&other, units, units + 1)]).await;
            ledger.run::<u64>(&["HSET", &ledger.counter(&batch), changed, "700"]).await;
            found = matches!(ledger.commit(&batch).await, CommitReply::Drift(drift) if drift.subject == *changed);
            if found {
                ledger.run::<u64>(&["HSET", &ledger.counter(&batch), changed, &units.to_string()]).await;
                break;
            }
            (from, units) = (to, units + 1);
        }
        assert!(found, "{changed} is never compared");
    }
}

/// An alert depends on its counter, so that one is always compared.
#[tokio::test]
async fn a_counter_that_raises_an_alert_is_always_compared() {
    let ledger = Ledger::open();
    let [one, other] = neighbours();
    for _ in 0..30 {
        let to = ledger.add("alice").await;
        let batch = raising(ledger.batch_to(StreamId::ZERO, to, &[change(&one, 0, 8), change(&other, 0, 1)]).await, 80);
        ledger.run::<u64>(&["HSET", &ledger.counter(&batch), &one, "700"]).await;
        assert!(matches!(ledger.commit(&batch).await, CommitReply::Drift(drift) if drift.subject == one));
    }
}

/// I3: an existing flag means that the alert was raised, whatever the worker has read: the caller learns that it was
/// not raised.
#[tokio::test]
async fn an_alert_whose_flag_is_there_is_not_raised() {
    let ledger = Ledger::open();
    let batch = raising(raising(ledger.batch(StreamId::ZERO, change("alice", 0, 10)).await, 80), 100);
    ledger.run::<String>(&["SET", &flag(&ledger, &batch), "alert_x"]).await;
    assert_eq!(ledger.committed(&batch).await, [0]);
    assert_eq!(ledger.run::<Vec<String>>(&["HKEYS", &ledger.records(&batch)]).await, ["100:alice"]);
    assert_eq!(ledger.run::<u64>(&["XLEN", &ledger.keys.outbox()]).await, 1);
    assert_eq!(ledger.run::<u64>(&["HGET", &ledger.keys.totals(), "raised"]).await, 1);
    assert_eq!(ledger.count(&batch).await, Some(10));
}

/// I8: a key of another type stops the partition with the key's name, before anything is written.
#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    let ledger = Ledger::open();
    let batch = with_everything(raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80));
    for key in [
        ledger.keys.outbox(),
        ledger.keys.refused(),
        ledger.keys.totals(),
        ledger.counter(&batch),
        ledger.records(&batch),
        ledger.keys.metrics(batch.groups[0].of.period),
        ledger.keys.event_ids(1),
        ledger.keys.checkpoint(),
    ] {
        ledger.run::<String>(&["SET", &key, "mine"]).await;
        let before = ledger.dump().await;
        let error = ledger.committer.commit(&ledger.client, &batch).await.expect_err("refused");
        assert_eq!(error_kind(&error), ErrorKind::WrongType, "{key}: {error}");
        assert!(error.to_string().contains(&key), "{key}: {error}");
        assert_eq!(ledger.dump().await, before, "{key}");
        ledger.run::<u64>(&["DEL", &key]).await;
    }
    ledger.committed(&batch).await;
}

/// A script that fails midway is not rolled back: its writes would be repeated at each attempt.
#[tokio::test]
async fn a_refused_event_that_no_script_can_append_is_an_error_and_nothing_is_written() {
    let ledger = Ledger::open();
    let mut batch = with_everything(raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80));
    batch.refused[0].fields = vec![b"x".to_vec(); 8_000];
    let before = ledger.dump().await;
    let error = ledger.committer.commit(&ledger.client, &batch).await.expect_err("refused");
    assert!(error.to_string().contains("at most 4000 values"), "{error}");
    assert_eq!(ledger.dump().await, before);
}

/// The batch with a refused event and an event with an id.
fn with_everything(mut batch: Batch) -> Batch {
    batch.refused.push(refused(&batch));
    batch.event_ids.insert(1, id_of("1").as_bytes().to_vec());
    batch.duplicates = 1;
    batch
}

fn id_of(id: &str) -> EventIdDigest {
    EventIdDigest::derive(&Subject::parse(b"alice").expect("legal"), &Metric::default(), id.as_bytes())
}

/// If Redis can't add to a total, the commit would fail midway, with the counters written but not the checkpoint: the
/// batch would be counted again at each attempt.
#[tokio::test]
async fn a_total_that_is_no_number_is_named_and_nothing_is_counted() {
    let ledger = Ledger::open();
    let batch = with_everything(raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80));
    let totals = ledger.keys.totals();
    for field in ["counted", "duplicates", "refused", "raised"] {
        for value in ["", "abc", "1.5", "007", "-0", "99999999999999999999", "9223372036854775807"] {
            ledger.run::<u64>(&["HSET", &totals, field, value]).await;
            let before = ledger.dump().await;
            let error = ledger.committer.commit(&ledger.client, &batch).await.expect_err("refused");
            assert_eq!(error_kind(&error), ErrorKind::WrongType, "{field} {value:?}: {error}");
            assert!(ledger.dump().await == before, "{field} {value:?}");
        }
        ledger.run::<u64>(&["DEL", &totals]).await;
    }
    ledger.committed(&batch).await;
    assert_eq!(ledger.count(&batch).await, Some(8));
}

/// Refused events are stored with reason and fields, ids of counted events in the list of their window.
#[tokio::test]
async fn refusals_and_event_ids_are_written_with_the_batch() {
    let ledger = Ledger::open();
    let mut batch = ledger.batch(StreamId::ZERO, change("alice", 0, 1)).await;
    batch.refused.push(refused(&batch));
    for window in [1, 2] {
        batch.event_ids.insert(window, ["a", "b"].map(|id| id_of(id).as_bytes().to_vec()).concat());
    }
    ledger.committed(&batch).await;
    for window in [1, 2] {
        let list = ledger.keys.event_ids(window);
        let values: Vec<Vec<u8>> = ledger.run(&["LRANGE", &list, "0", "-1"]).await;
        assert_eq!(values, std::slice::from_ref(&batch.event_ids[&window]), "one value a commit, 16 bytes an id");
        assert_eq!(values[0].len(), 32);
        let ttl_s: u64 = ledger.run(&["TTL", &list]).await;
        assert!((14 * 86_400 - 5..=14 * 86_400).contains(&ttl_s), "{ttl_s}");
    }
    let kept: Vec<(String, Vec<Vec<u8>>)> = ledger.run(&["XRANGE", &ledger.keys.refused(), "-", "+"]).await;
    assert_eq!(kept[0].1[1], batch.to.to_string().as_bytes());
    assert_eq!(kept[0].1[3], b"bad_units");
    assert_eq!(kept[0].1[6..], [b"units".to_vec(), b"\xff".to_vec()]);
    let totals: HashMap<String, u64> = ledger.run(&["HGETALL", &ledger.keys.totals()]).await;
    assert_eq!((totals["counted"], totals["refused"]), (1, 1));
}

/// Lua unpacks fewer than 8,000 values: the largest group must fit, and so must many metrics.
#[tokio::test]
async fn the_largest_group_and_thousands_of_metrics_are_written() {
    let ledger = Ledger::open();
    let to = ledger.add("alice").await;
    let mut batch = ledger.batch_to(StreamId::ZERO, to, &[change("s0", 0, 1)]).await;
    let row = batch.groups[0].rows[0].clone();
    let named = |n: usize| format!("s{n}").parse().expect("legal");
    batch.groups[0].rows =
        (0..GROUP_ROWS_MAX).map(|n| quotabell::ledger::Row { subject: named(n), ..row.clone() }).collect();
    let of = batch.groups[0].of.clone();
    let metric = |n: u32| quotabell::ledger::batch::MetricPeriod {
        metric: format!("m{n}").parse().expect("legal"),
        ..of.clone()
    };
    batch.metrics = (0..9_000).map(metric).collect();
    ledger.committed(&batch).await;
    assert_eq!(ledger.run::<usize>(&["HLEN", &ledger.counter(&batch)]).await, GROUP_ROWS_MAX);
    assert_eq!(ledger.run::<u64>(&["SCARD", &ledger.keys.metrics(of.period)]).await, 9_000);
}

/// A full server must recover: commits allow entries to be trimmed.
#[tokio::test]
async fn a_full_server_still_commits() {
    let ledger = Ledger::open();
    let batch = with_everything(raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80));
    ledger.run::<String>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(ledger.committed(&batch).await, [0_usize; 0]);
}

/// The TTL of a key is renewed only once a minute; a key that was deleted meanwhile must not return without one.
#[tokio::test]
async fn a_counter_that_is_made_anew_within_the_minute_has_a_ttl() {
    let ledger = Ledger::open();
    let first = raising(ledger.batch(StreamId::ZERO, change("alice", 0, 8)).await, 80);
    ledger.committed(&first).await;
    for key in [ledger.counter(&first), ledger.records(&first), flag(&ledger, &first)] {
        ledger.run::<u64>(&["DEL", &key]).await;
    }
    let mut next = raising(ledger.batch(first.to, change("alice", 0, 8)).await, 80);
    next.groups[0].ttl_s = None;
    ledger.committed(&next).await;
    let expected = 14 * 86_400 + 10 * u64::from(first.groups[0].bucket);
    for key in [ledger.counter(&first), ledger.records(&first)] {
        let ttl_s: u64 = ledger.run(&["TTL", &key]).await;
        assert!((14 * 86_400 - 5..=expected).contains(&ttl_s), "{key}: {ttl_s}");
    }
}

/// A record written in a minute without renewals must live as long as its counter, not forever; and a counter keeps its
/// TTL.
#[tokio::test]
async fn a_record_that_comes_later_in_the_minute_has_a_ttl() {
    let ledger = Ledger::open();
    let first = ledger.batch(StreamId::ZERO, change("alice", 0, 1)).await;
    ledger.committed(&first).await;
    ledger.run::<u64>(&["EXPIRE", &ledger.counter(&first), "1000000"]).await;
    let mut next = raising(ledger.batch(first.to, change("alice", 1, 8)).await, 80);
    next.groups[0].ttl_s = None;
    ledger.committed(&next).await;
    let expected = 14 * 86_400 + 10 * u64::from(first.groups[0].bucket);
    let ttl_s: u64 = ledger.run(&["TTL", &ledger.records(&first)]).await;
    assert!((expected - 5..=expected).contains(&ttl_s), "{ttl_s}");
    assert!(ledger.run::<u64>(&["TTL", &ledger.counter(&first)]).await <= 1_000_000);
}

/// The TTL of a hash is renewed once a minute: a hash that was deleted and recreated by a new subject in between would
/// live forever.
#[tokio::test]
async fn a_hash_that_has_gone_gets_its_ttl_when_it_is_made_again() {
    let ledger = Ledger::open();
    let mut batch = ledger.batch(StreamId::ZERO, change("alice", 0, 1)).await;
    batch.groups[0].ttl_s = None;
    ledger.committed(&batch).await;
    assert!(ledger.run::<i64>(&["TTL", &ledger.counter(&batch)]).await > 13 * 86_400);
}

/// Refused events of a producer must not fill the server's memory.
#[tokio::test]
async fn no_more_refused_events_are_kept_than_are_to_be() {
    const SCRIPT: &str = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'reason', 'bad_units') end";
    let ledger = Ledger::open();
    let mut batch = ledger.batch(StreamId::ZERO, change("alice", 0, 1)).await;
    ledger.run::<()>(&["EVAL", SCRIPT, "1", &ledger.keys.refused(), "100500"]).await;
    batch.refused.push(refused(&batch));
    ledger.committed(&batch).await;
    // Whole nodes of a hundred are trimmed.
    let kept: u64 = ledger.run(&["XLEN", &ledger.keys.refused()]).await;
    assert!((100_000..100_200).contains(&kept), "{kept}");
}

/// If single entries of a batch did not count as read, tools would show a lag that does not exist.
#[tokio::test]
async fn all_entries_of_a_batch_count_as_read() {
    let ledger = Ledger::open();
    let mut batch = ledger.batch(StreamId::ZERO, change("alice", 0, 3)).await;
    batch.entries = 3;
    ledger.committed(&batch).await;
    let read: u64 = ledger.run(&["HGET", &ledger.keys.checkpoint(), "entries_read"]).await;
    assert_eq!(read, 3);
}
