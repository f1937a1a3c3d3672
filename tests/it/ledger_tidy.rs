//! The cleanup after a commit on a real server: the group's position, trimming, ids of past windows; and the dry run of
//! all.

use std::collections::HashMap;

use crate::support::ledger::{Change, Ledger, settings};
use quotabell::ledger::audit::{AuditFinding, audit};
use quotabell::ledger::commit_settings::TrimPolicy;
use quotabell::ledger::dry_run::{DryRunError, dry_run};
use quotabell::ledger::trim::{TrimWarning, tidy};
use quotabell::types::StreamId;

const ALICE: Change<'_> = Change { subject: "alice", before: 0, total: 1 };

async fn tidied(ledger: &Ledger, past: &[u64]) -> Vec<TrimWarning> {
    tidy(&ledger.client, &ledger.keys, TrimPolicy::Consumed, past).await.expect("redis answers")
}

/// Tools that know consumer groups show the correct lag, also for entries trimmed before the first commit.
#[tokio::test]
async fn the_group_shows_a_true_lag() {
    let ledger = Ledger::open();
    ledger.add("trimmed").await;
    ledger.run::<u64>(&["XTRIM", "usage", "MAXLEN", "0"]).await;
    assert_eq!(audited(&ledger, StreamId::ZERO).await, AuditFinding::Even);
    let batch = ledger.batch(StreamId::ZERO, ALICE).await;
    ledger.add("unread").await;
    ledger.committed(&batch).await;
    // Twice: the group is created, then moved.
    for _ in 0..2 {
        assert_eq!(tidied(&ledger, &[]).await, []);
        let groups: Vec<HashMap<String, redis::Value>> = ledger.run(&["XINFO", "GROUPS", "usage"]).await;
        assert_eq!(groups[0]["name"], redis::Value::BulkString(b"quotabell".to_vec()));
        assert_eq!(groups[0]["lag"], redis::Value::Int(1));
        assert_eq!(groups[0]["entries-read"], redis::Value::Int(2));
    }
}

/// A group ahead of the checkpoint would tell autoscalers that nothing is left to do.
#[tokio::test]
async fn the_group_stands_at_the_checkpoint() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, ALICE).await;
    ledger.add("unread").await;
    ledger.committed(&batch).await;
    for _ in 0..2 {
        assert_eq!(tidied(&ledger, &[]).await, []);
        let groups: Vec<HashMap<String, redis::Value>> = ledger.run(&["XINFO", "GROUPS", "usage"]).await;
        let at = redis::Value::BulkString(batch.to.to_string().into_bytes());
        assert_eq!(groups[0]["last-delivered-id"], at);
    }
}

/// Ids are numbers: as text, entry 10 of a millisecond comes before entry 9, and entries that another group needs would
/// be trimmed.
#[tokio::test]
async fn trimming_knows_that_entry_9_comes_before_entry_10() {
    for (needed, last) in [("1700000000000-9", "1700000000000-10"), ("999999999999-0", "1000000000000-0")] {
        let ledger = Ledger::open_with(&["--save", "", "--stream-node-max-entries", "1"]);
        let first = ledger.run::<String>(&["XADD", "usage", "1-1", "subject", "alice"]).await;
        for id in [needed, last] {
            ledger.run::<String>(&["XADD", "usage", id, "subject", "alice"]).await;
        }
        ledger.run::<String>(&["XGROUP", "CREATE", "usage", "billing", &first]).await;
        ledger
            .run::<redis::Value>(&["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "usage", ">"])
            .await;
        let to = last.parse().expect("an id");
        ledger.committed(&ledger.batch_to(StreamId::ZERO, to, &[ALICE]).await).await;
        assert_eq!(tidied(&ledger, &[]).await, [TrimWarning::TrimHeld("billing".into())]);
        let left: Vec<(String, Vec<String>)> = ledger.run(&["XRANGE", "usage", "-", "+"]).await;
        assert_eq!(left.iter().map(|entry| entry.0.as_str()).collect::<Vec<_>>(), [needed, last]);
    }
}

/// Before the first commit there is nothing to clean up; trimming would lose unread entries.
#[tokio::test]
async fn nothing_is_tidied_before_the_first_commit() {
    let ledger = Ledger::open();
    assert_eq!(tidied(&ledger, &[]).await, []);
    ledger.add("alice").await;
    ledger.run::<u64>(&["HSET", &ledger.keys.checkpoint(), "instance", "x"]).await;
    let before = ledger.dump().await;
    assert_eq!(tidied(&ledger, &[]).await, []);
    assert_eq!(ledger.dump().await, before);
}

/// Another consumer of the stream must find every entry that it has not received or not acknowledged.
#[tokio::test]
async fn trimming_stops_at_what_another_group_needs() {
    let ledger = Ledger::open_with(&["--save", "", "--stream-node-max-entries", "1"]);
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(ledger.add(&format!("s{n}")).await);
    }
    ledger.run::<String>(&["XGROUP", "CREATE", "usage", "billing", "0"]).await;
    ledger.run::<redis::Value>(&["XREADGROUP", "GROUP", "billing", "c", "COUNT", "4", "STREAMS", "usage", ">"]).await;
    ledger.run::<u64>(&["XACK", "usage", "billing", &ids[0].to_string()]).await;
    ledger.committed(&ledger.batch_to(StreamId::ZERO, ids[4], &[ALICE]).await).await;
    assert_eq!(tidied(&ledger, &[]).await, [TrimWarning::TrimHeld("billing".into())]);
    let left = || async { ledger.run::<Vec<(String, Vec<String>)>>(&["XRANGE", "usage", "-", "+"]).await };
    assert_eq!(left().await[0].0, ids[1].to_string(), "entry 2 is pending for billing, entry 1 is acknowledged");
    ledger.run::<u64>(&["XGROUP", "DESTROY", "usage", "billing"]).await;
    let never = tidy(&ledger.client, &ledger.keys, TrimPolicy::Never, &[]).await;
    assert_eq!(never.expect("redis answers"), []);
    assert_eq!(left().await.len(), 5, "nothing is trimmed where the setting says never");
    assert_eq!(tidied(&ledger, &[]).await, []);
    let kept: Vec<String> = left().await.into_iter().map(|entry| entry.0).collect();
    assert_eq!(kept, [ids[4].to_string(), ids[5].to_string()], "the checkpoint's entry stays, and what is unread");
}

/// A recreated stream may have entries before the checkpoint: if they were trimmed as counted, they would be lost
/// silently.
#[tokio::test]
async fn a_stream_that_was_made_again_is_left_alone() {
    let ledger = Ledger::open_with(&["--save", "", "--stream-node-max-entries", "1"]);
    ledger.committed(&ledger.batch(StreamId::ZERO, ALICE).await).await;
    for last in ["1700000000001-0", "*"] {
        ledger.run::<u64>(&["DEL", "usage"]).await;
        ledger.run::<String>(&["XADD", "usage", "1700000000000-0", "subject", "bob"]).await;
        ledger.run::<String>(&["XADD", "usage", last, "subject", "bob"]).await;
        assert_eq!(tidied(&ledger, &[]).await, []);
        assert_eq!(ledger.run::<u64>(&["XLEN", "usage"]).await, 2, "below the checkpoint, and on both sides");
    }
}

/// Ids of past windows would otherwise occupy memory for two weeks.
#[tokio::test]
async fn lists_of_windows_that_are_past_are_removed() {
    let ledger = Ledger::open();
    ledger.committed(&ledger.batch(StreamId::ZERO, ALICE).await).await;
    for window in 1..=3 {
        ledger.run::<u64>(&["RPUSH", &ledger.keys.event_ids(window), "0123456789abcdef"]).await;
    }
    assert_eq!(tidied(&ledger, &[1, 2]).await, []);
    let left: Vec<String> = ledger.run(&["KEYS", "quota_seen:*"]).await;
    assert_eq!(left, [ledger.keys.event_ids(3)]);
}

/// A command without its right is reported, and the others are run.
#[tokio::test]
async fn a_right_that_is_missing_is_named_and_the_rest_is_done() {
    let ledger = Ledger::open_with(&["--save", "", "--stream-node-max-entries", "1"]);
    let (_, last) = (ledger.add("s").await, ledger.add("s").await);
    ledger.committed(&ledger.batch_to(StreamId::ZERO, last, &[ALICE]).await).await;
    ledger.run::<u64>(&["RPUSH", &ledger.keys.event_ids(1), "0123456789abcdef"]).await;
    for (command, named) in [("xgroup", "group"), ("xtrim", "trim"), ("unlink", "unlink")] {
        ledger.run::<String>(&["ACL", "SETUSER", "default", &format!("-{command}")]).await;
        let warnings = tidied(&ledger, &[1]).await;
        let named =
            |warning: &TrimWarning| matches!(warning, TrimWarning::CommandRefused { what, .. } if what == named);
        assert!(warnings.len() == 1 && named(&warnings[0]), "{command}: {warnings:?}");
        ledger.run::<String>(&["ACL", "SETUSER", "default", "+@all"]).await;
    }
    assert_eq!(ledger.run::<u64>(&["XLEN", "usage"]).await, 1);
}

/// A full server must recover: this cleanup makes room.
#[tokio::test]
async fn a_full_server_is_tidied() {
    let ledger = Ledger::open_with(&["--save", "", "--stream-node-max-entries", "1"]);
    let (_, last) = (ledger.add("s").await, ledger.add("s").await);
    ledger.committed(&ledger.batch_to(StreamId::ZERO, last, &[ALICE]).await).await;
    ledger.run::<String>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(tidied(&ledger, &[]).await, []);
    assert_eq!(ledger.run::<u64>(&["XLEN", "usage"]).await, 1);
}

/// The dry run passes on a healthy server, leaves nothing, and names missing rights.
#[tokio::test]
async fn the_dry_run_leaves_nothing_and_finds_missing_permissions() {
    let ledger = Ledger::open();
    let dry_run = |nonce: &'static str| dry_run(&ledger.client, &ledger.keys, ledger.committer.settings(), nonce);
    dry_run("t1").await.expect("healthy");
    assert_eq!(ledger.dump().await, []);

    ledger.run::<String>(&["ACL", "SETUSER", "default", "-xtrim"]).await;
    let error = dry_run("t2").await.expect_err("no xtrim");
    assert!(error.to_string().contains("trim was refused"), "{error}");
    for command in ["hset", "rpush", "sadd", "set", "xadd", "hincrby", "expire"] {
        ledger.run::<String>(&["ACL", "SETUSER", "default", "+@all", &format!("-{command}")]).await;
        let error = dry_run(command).await.expect_err(command);
        assert!(matches!(error, DryRunError::Redis { .. } | DryRunError::Lease { .. }), "{error}");
    }
    for command in ["get", "set", "pttl", "del"] {
        ledger.run::<String>(&["ACL", "SETUSER", "default", "+@all", &format!("-{command}")]).await;
        let error = dry_run(command).await.expect_err(command);
        assert!(matches!(error, DryRunError::Lease { .. }), "no {command}: {error}");
    }
}

/// A daemon that starts on a full server must get as far as freeing memory.
#[tokio::test]
async fn the_dry_run_passes_on_a_full_server() {
    let ledger = Ledger::open();
    ledger.run::<String>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    dry_run(&ledger.client, &ledger.keys, &settings(), "full").await.expect("flags=allow-oom");
}

/// Reads the arguments of an audit.
async fn audited(ledger: &Ledger, at: StreamId) -> AuditFinding {
    audit(&ledger.client, &ledger.keys, at, 100).await.expect("redis answers")
}

/// If a producer trims uncounted entries, the operator must learn how many.
#[tokio::test]
async fn unread_entries_that_are_trimmed_are_counted_once() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, ALICE).await;
    for _ in 0..3 {
        ledger.add("unread").await;
    }
    ledger.committed(&batch).await;
    assert_eq!(tidied(&ledger, &[]).await, []);
    ledger.run::<u64>(&["XTRIM", "usage", "MAXLEN", "0"]).await;
    assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Gap(3));
    assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Even);
    // The group's lag must not count entries that are gone.
    let groups: Vec<HashMap<String, redis::Value>> = ledger.run(&["XINFO", "GROUPS", "usage"]).await;
    assert_eq!((&groups[0]["entries-read"], &groups[0]["lag"]), (&redis::Value::Int(4), &redis::Value::Int(0)));
}

/// A recreated stream starts with the removals that happened before: they must not be reported as lost.
#[tokio::test]
async fn what_had_gone_from_a_stream_that_was_made_again_is_no_loss() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, ALICE).await;
    ledger.committed(&batch).await;
    ledger.run::<u64>(&["DEL", "usage"]).await;
    for id in ["1-1", "1-2"] {
        ledger.run::<String>(&["XADD", "usage", id, "subject", "alice"]).await;
    }
    ledger.run::<u64>(&["XTRIM", "usage", "MAXLEN", "1"]).await;
    assert_eq!(
        audited(&ledger, StreamId::ZERO).await,
        AuditFinding::Stale(batch.to),
        "of a reader that stands elsewhere"
    );
    assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Recreated);
    let read = async || ledger.run::<u64>(&["HGET", &ledger.keys.checkpoint(), "entries_read"]).await;
    assert_eq!(read().await, 1);
    let last = "1-2".parse().expect("an id");
    let change = Change { subject: "alice", before: 1, total: 2 };
    ledger.committed(&ledger.batch_to(StreamId::ZERO, last, &[change]).await).await;
    assert_eq!(audited(&ledger, last).await, AuditFinding::Even);
    assert_eq!(read().await, 2);
}

/// A limit stated in docs/guarantees.md: for this loss there is no report.
#[tokio::test]
async fn a_stream_that_was_away_between_two_looks_leaves_no_trace() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, ALICE).await;
    ledger.committed(&batch).await;
    assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Even);
    for _ in 0..2 {
        ledger.run::<()>(&["RENAME", "usage", "away"]).await;
        ledger.add("alice").await;
        ledger.run::<()>(&["RENAME", "away", "usage"]).await;
        assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Even);
    }
}

/// Producers that trim (MAXLEN) and manual deletions rarely remove the newest entry: reading the entries behind a gap
/// must not hide it.
#[tokio::test]
async fn unread_entries_that_are_removed_before_others_are_read_are_counted_once() {
    for is_trimmed in [false, true] {
        for is_first in [false, true] {
            let ledger = Ledger::open();
            let (mut from, mut total) = (StreamId::ZERO, 0);
            assert_eq!(audited(&ledger, from).await, AuditFinding::Even);
            if !is_first {
                let batch = ledger.batch(from, ALICE).await;
                ledger.committed(&batch).await;
                (from, total) = (batch.to, 1);
                assert_eq!(audited(&ledger, from).await, AuditFinding::Even);
            }
            // Read and counted, so that there is something before the removed entries.
            let read = ledger.batch(from, Change { subject: "alice", before: total, total: total + 1 }).await;
            ledger.committed(&read).await;
            let unread = [ledger.add("unread").await.to_string(), ledger.add("unread").await.to_string()];
            let next = ledger.batch(read.to, Change { subject: "alice", before: total + 1, total: total + 2 }).await;
            match is_trimmed {
                true => ledger.run::<u64>(&["XTRIM", "usage", "MAXLEN", "1"]).await,
                false => ledger.run::<u64>(&["XDEL", "usage", &unread[0], &unread[1]]).await,
            };
            ledger.committed(&next).await;
            let what = format!("trimmed: {is_trimmed}, first commits: {is_first}");
            assert_eq!(audited(&ledger, next.to).await, AuditFinding::Gap(2), "{what}");
            assert_eq!(audited(&ledger, next.to).await, AuditFinding::Even, "{what}");
        }
    }
}

/// If the first start ends before its first commit, later removals are losses.
#[tokio::test]
async fn entries_that_are_removed_before_the_first_commit_are_counted() {
    let ledger = Ledger::open();
    ledger.add("trimmed").await;
    ledger.run::<u64>(&["XTRIM", "usage", "MAXLEN", "0"]).await;
    let unread = ledger.add("unread").await.to_string();
    assert_eq!(audited(&ledger, StreamId::ZERO).await, AuditFinding::Even);
    ledger.run::<u64>(&["XDEL", "usage", &unread]).await;
    assert_eq!(audited(&ledger, StreamId::ZERO).await, AuditFinding::Even);
    let batch = ledger.batch(StreamId::ZERO, ALICE).await;
    ledger.committed(&batch).await;
    assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Gap(1));
}

/// Entries read before the first commit are counted, so deleting them is neither a loss nor a recreated stream.
#[tokio::test]
async fn an_entry_that_is_deleted_before_the_first_commit_is_no_loss() {
    let ledger = Ledger::open();
    assert_eq!(audited(&ledger, StreamId::ZERO).await, AuditFinding::Even);
    let [first, last] = [ledger.add("alice").await, ledger.add("alice").await];
    let mut batch = ledger.batch_to(StreamId::ZERO, last, &[ALICE]).await;
    batch.entries = 2;
    ledger.run::<u64>(&["XDEL", "usage", &first.to_string()]).await;
    ledger.committed(&batch).await;
    for _ in 0..2 {
        assert_eq!(audited(&ledger, last).await, AuditFinding::Even);
    }
}

/// If a cleaning job deletes the stream with uncounted events, the operator must get their number.
#[tokio::test]
async fn unread_entries_that_go_with_their_stream_are_counted_once() {
    for gone in [&["DEL", "usage"][..], &["RENAME", "usage", "kept"]] {
        // While nothing can be committed, nothing is cleaned up: each new session audits by itself.
        for (is_made_again, is_tidied) in [(false, true), (true, true), (false, false), (true, false)] {
            let ledger = Ledger::open();
            let batch = ledger.batch(StreamId::ZERO, ALICE).await;
            for _ in 0..300 {
                ledger.add("unread").await;
            }
            ledger.committed(&batch).await;
            if is_tidied {
                tidied(&ledger, &[]).await;
            } else {
                assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Unread);
            }
            ledger.run::<redis::Value>(gone).await;
            if is_made_again {
                ledger.add("new").await;
            }
            let what = format!("{gone:?}, made again: {is_made_again}, tidied: {is_tidied}");
            assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Gap(300), "{what}");
            let next = audited(&ledger, batch.to).await;
            assert_eq!(next, if is_made_again { AuditFinding::Unread } else { AuditFinding::Even }, "{what}");
        }
    }
}

/// A number that an operator set by hand is no loss; a false alarm would discredit the next one.
#[tokio::test]
async fn a_count_that_was_set_is_no_loss() {
    let ledger = Ledger::open();
    assert_eq!(audited(&ledger, StreamId::ZERO).await, AuditFinding::Even);
    // The deletion of a read entry says nothing about later ones.
    let deleted = ledger.batch(StreamId::ZERO, Change { subject: "alice", before: 0, total: 1 }).await;
    ledger.committed(&deleted).await;
    let mut at = deleted.to;
    let deleted = at.to_string();
    ledger.run::<u64>(&["XDEL", "usage", &deleted]).await;
    assert_eq!(audited(&ledger, at).await, AuditFinding::Even);
    let set = async |last: StreamId, added: &str| {
        let last = last.to_string();
        ledger.run::<String>(&["XSETID", "usage", &last, "ENTRIESADDED", added, "MAXDELETEDID", &deleted]).await;
    };
    // First between two events, then without events.
    for (n, added) in [(1, "2000"), (2, "5000")] {
        let batch = ledger.batch(at, Change { subject: "alice", before: n, total: n + 1 }).await;
        set(batch.to, added).await;
        ledger.committed(&batch).await;
        at = batch.to;
        assert_eq!(audited(&ledger, at).await, AuditFinding::Even);
    }
    for added in ["9000", "5", "2"] {
        set(at, added).await;
        for _ in 0..2 {
            let found = audited(&ledger, at).await;
            assert!(!matches!(found, AuditFinding::Gap(_)), "{added}: {found:?}");
            tidied(&ledger, &[]).await;
        }
    }
    // Also with an id at which nothing was ever added.
    let above = StreamId { ms: at.ms + 1_000_000, seq: 0 };
    for added in ["20000", "30000"] {
        set(above, added).await;
        for _ in 0..2 {
            assert_eq!(audited(&ledger, at).await, AuditFinding::Even, "{added}");
            tidied(&ledger, &[]).await;
        }
    }
    // Later removals are losses, by id or by trimming.
    let unread = ledger.add("unread").await.to_string();
    ledger.run::<u64>(&["XDEL", "usage", &unread]).await;
    assert_eq!(audited(&ledger, at).await, AuditFinding::Gap(1));
    for _ in 0..2 {
        ledger.add("unread").await;
        ledger.run::<u64>(&["XTRIM", "usage", "MAXLEN", "0"]).await;
        assert_eq!(audited(&ledger, at).await, AuditFinding::Gap(1));
    }
}

/// Redis may restore entries before the checkpoint, where nobody reads them. The daemon must report counts that are too
/// low.
#[tokio::test]
async fn entries_that_return_below_the_checkpoint_are_found() {
    for has_unread in [false, true] {
        let ledger = Ledger::open();
        let batch = ledger.batch(StreamId::ZERO, ALICE).await;
        ledger.committed(&batch).await;
        assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Even);
        if has_unread {
            ledger.add("unread").await;
        }
        let stream: Vec<(String, Vec<String>)> = ledger.run(&["XRANGE", "usage", "-", "+"]).await;
        for id in ["1-1", "1-2", "1-3"] {
            ledger.run::<String>(&["XADD", "damaged", id, "subject", "alice"]).await;
        }
        for (id, fields) in &stream {
            ledger.run::<String>(&["XADD", "damaged", id, &fields[0], &fields[1]]).await;
        }
        ledger.run::<String>(&["RENAME", "damaged", "usage"]).await;
        assert_eq!(audited(&ledger, batch.to).await, AuditFinding::Returned(3), "unread: {has_unread}");
        let next = audited(&ledger, batch.to).await;
        assert_eq!(next, if has_unread { AuditFinding::Unread } else { AuditFinding::Even }, "said once");
    }
}
