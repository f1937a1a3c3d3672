//! Rights that are withdrawn while a daemon runs: no script is left half done.

use crate::support::ledger::{Change, Ledger, raising, refused};
use quotabell::ledger::audit::audit;
use quotabell::ledger::commit_settings::TrimPolicy;
use quotabell::ledger::trim::tidy;
use quotabell::ledger::{Batch, EventIdDigest};
use quotabell::types::StreamId;

/// Redis does not roll back: a commit that fails midway would be counted again at each attempt.
#[tokio::test]
async fn a_commit_without_one_right_writes_nothing_and_names_it() {
    let ledger = Ledger::open();
    let mut batch = raising(ledger.batch(StreamId::ZERO, Change { subject: "alice", before: 0, total: 8 }).await, 80);
    batch.refused.push(refused(&batch));
    let id = EventIdDigest::derive(&batch.groups[0].rows[0].subject, &batch.groups[0].of.metric, b"1");
    batch.event_ids.insert(1, id.as_bytes().to_vec());
    let before = ledger.dump().await;
    for right in ["-xadd", "-sadd", "-rpush", "-expire", "-hincrby", "-hset", "-set"] {
        for ttl_s in [batch.groups[0].ttl_s, None] {
            let mut tried = batch.clone();
            tried.groups[0].ttl_s = ttl_s;
            ledger.run::<String>(&["ACL", "SETUSER", "default", right]).await;
            let error = ledger.committer.commit(&ledger.client, &tried).await.expect_err(right);
            ledger.run::<String>(&["ACL", "SETUSER", "default", "+@all"]).await;
            let named = right.trim_start_matches('-').to_uppercase();
            assert!(error.to_string().contains(&format!("may not run {named} on ")), "{right}: {error}");
            assert!(ledger.dump().await == before, "{right}: something was written");
        }
    }
    // Keys are rights too: each kind that is written separately.
    for hidden in ["quota_alert", "quota_raised", "quota_usage", "quota_seen", "quota_metrics", "quota_outbox"] {
        let kinds = ["alert", "raised", "usage", "seen", "metrics", "outbox", "refused", "totals", "checkpoint"];
        let mut words = vec!["ACL".to_owned(), "SETUSER".into(), "default".into(), "resetkeys".into(), "~usage".into()];
        let shown = kinds.map(|kind| format!("quota_{kind}")).into_iter().filter(|kind| kind != hidden);
        words.extend(shown.map(|kind| format!("~{kind}:*")));
        ledger.run::<String>(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
        ledger.committer.commit(&ledger.client, &batch).await.expect_err(hidden);
        ledger.run::<String>(&["ACL", "SETUSER", "default", "allkeys"]).await;
        assert!(ledger.dump().await == before, "{hidden}: something was written");
    }
    ledger.committed(&batch).await;
}

/// Most commits write only counters, others only refused events: they need no rights on other kinds of keys.
#[tokio::test]
async fn a_commit_of_one_kind_alone_without_one_right_writes_nothing() {
    let ledger = Ledger::open();
    let mut counters = ledger.batch(StreamId::ZERO, Change { subject: "alice", before: 0, total: 8 }).await;
    counters.metrics.clear();
    let alert = raising(counters.clone(), 80);
    let mut refused_alone = counters.clone();
    refused_alone.groups.clear();
    let mut ids_alone = refused_alone.clone();
    refused_alone.refused.push(refused(&counters));
    let refused_beside = Batch { refused: refused_alone.refused.clone(), ..counters.clone() };
    let id = EventIdDigest::derive(&counters.groups[0].rows[0].subject, &counters.groups[0].of.metric, b"1");
    ids_alone.event_ids.insert(1, id.as_bytes().to_vec());
    let before = ledger.dump().await;
    let kinds = [
        (&counters, &["-expire", "-hincrby", "-hset"][..]),
        (&alert, &["-set", "-xadd"]),
        (&refused_beside, &["-xadd"]),
        (&refused_alone, &["-hincrby", "-hset"]),
        (&ids_alone, &["-rpush", "-expire"]),
    ];
    for (batch, rights) in kinds {
        for right in rights {
            ledger.run::<String>(&["ACL", "SETUSER", "default", right]).await;
            ledger.committer.commit(&ledger.client, batch).await.expect_err(right);
            ledger.run::<String>(&["ACL", "SETUSER", "default", "+@all"]).await;
            assert!(ledger.dump().await == before, "{right}: something was written");
        }
    }
    ledger.committed(&alert).await;
}

/// An audit that can't write its finding must not repeat it, and nothing may be trimmed that could not be recorded.
#[tokio::test]
async fn an_audit_and_a_tidying_without_their_right_write_nothing() {
    let ledger = Ledger::open();
    let batch = ledger.batch(StreamId::ZERO, Change { subject: "alice", before: 0, total: 8 }).await;
    ledger.committed(&batch).await;
    let before = ledger.dump().await;
    ledger.run::<String>(&["ACL", "SETUSER", "default", "-hset"]).await;
    let error = audit(&ledger.client, &ledger.keys, batch.to, 0).await.expect_err("no right");
    assert!(error.to_string().contains("may not run HSET on quota_checkpoint:{usage}"), "{error}");
    let tidied = tidy(&ledger.client, &ledger.keys, TrimPolicy::Consumed, &[]).await;
    let error = tidied.expect_err("no right");
    assert!(error.to_string().contains("may not run HSET on quota_checkpoint:{usage}"), "{error}");
    assert_eq!(ledger.dump().await, before);
}
