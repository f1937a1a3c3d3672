//! A migration that is repeated or undone: the target ends with the source's current data, or with nothing.

use std::cell::RefCell;

use quotabell::migration::{Migration, MigrationError};
use quotabell::redis_client::{Partition, RedisClient};
use quotabell::types::Subject;

use crate::e2e_migrate::{SUBJECTS, counted, events, is_balanced, migrate, refused, refused_to_start};
use crate::support::binary::quotabell;
use crate::support::outbox::{Outbox, subject};
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};

async fn run<T: redis::FromRedisValue>(client: &RedisClient, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    client.query(command.arg(&words[1..])).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// As if the last run had been killed just before its end.
async fn is_unfinished(target: &Streams) {
    for Partition { client, keys } in target.partitions.iter() {
        let checkpoint = keys.checkpoint();
        let mark: String = run(client, &["HGET", &checkpoint, "migration"]).await;
        let unfinished = mark.replace("done ", "copying ");
        let _: u64 = run(client, &["HSET", &checkpoint, "migration", &unfinished]).await;
    }
}

fn on_server(url: &str, partitions: u32, words: &[&str]) -> String {
    let partitions = partitions.to_string();
    quotabell(words.iter().copied()).redis(url).env("QUOTABELL__STREAM__PARTITIONS", &partitions).run().expect_done()
}

/// An erased subject, a cancelled delivery and deleted settings used to return with the second run: the erased customer
/// got messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_between_two_runs_is_removed_at_the_target() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let source = counted(&old, 2, SUBJECTS * LIMIT).await;
    let Partition { client, keys } = source.partitions.first();
    for subject in ["s:1", "s:2"] {
        let _: u64 = run(client, &["HSET", &format!("quota_subject:{subject}"), "plan", "free"]).await;
    }
    migrate(&old.url(), &new.url(), "3").expect_done();
    let target = source.moved_to(&new.url(), 3).await;
    is_unfinished(&target).await;

    on_server(&old.url(), 2, &["subject", "remove", "--everything", "s:1"]);
    let _: u64 = run(client, &["DEL", "quota_subject:s:2"]).await;
    let pending: Vec<String> = run(client, &["ZRANGE", &keys.pending(), "0", "0"]).await;
    let told = on_server(&old.url(), 2, &["deliveries", "cancel", &pending[0]]);
    assert!(told.contains("cancelled"), "{told}");
    migrate(&old.url(), &new.url(), "3").expect_done();

    is_balanced(&target).await;
    let owner: String = run(client, &["HGET", &format!("{}{}", keys.delivery_prefix(), pending[0]), "subject"]).await;
    let at = target.partitions.partition_of(&owner.parse::<Subject>().expect("legal"));
    let state: String =
        run(&at.client, &["HGET", &format!("{}{}", at.keys.delivery_prefix(), pending[0]), "state"]).await;
    assert_eq!(state, "cancelled");
    let at = target.partitions.partition_of(&subject("s:1"));
    let keys_there: Vec<String> = run(&at.client, &["KEYS", "*"]).await;
    let mut of_erased = Vec::new();
    for key in keys_there {
        let kind: String = run(&at.client, &["TYPE", &key]).await;
        let content: Vec<u8> = match kind.as_str() {
            "hash" => run::<Vec<Vec<u8>>>(&at.client, &["HGETALL", &key]).await.concat(),
            "zset" => run::<Vec<Vec<u8>>>(&at.client, &["ZRANGE", &key, "0", "-1"]).await.concat(),
            "stream" => {
                format!("{:?}", run::<redis::Value>(&at.client, &["XRANGE", &key, "-", "+"]).await).into_bytes()
            }
            _ => Vec::new(),
        };
        // No other subject's name begins like this and continues without a digit.
        let named = [key.as_bytes(), b"|", &content].concat();
        let is_named = named.windows(4).any(|four| four.starts_with(b"s:1") && !four[3].is_ascii_digit());
        if is_named {
            of_erased.push(key);
        }
    }
    assert_eq!(of_erased, [""; 0]);
    let left: u64 = run(&new.client(), &["EXISTS", "quota_subject:s:1", "quota_subject:s:2"]).await;
    assert_eq!(left, 0);
    // Nothing of it differs in a comparison.
    is_unfinished(&target).await;
    migrate(&old.url(), &new.url(), "3").expect_done();
}

/// Data of an interrupted run that the source does not have is removed: a subject's count, a field of a subject.
#[tokio::test]
async fn what_only_the_target_has_is_removed() {
    let (old, new) = (RedisServer::start(), Outbox::start());
    let source = counted(&old, 1, SUBJECTS).await;
    let _: u64 = run(&source.partitions.first().client, &["HSET", "quota_subject:s:1", "plan", "free"]).await;
    migrate(&old.url(), &new.server.url(), "1").expect_done();
    is_unfinished(&source.moved_to(&new.server.url(), 1).await).await;
    let _: u64 = run(&new.client, &["HSET", "quota_subject:s:1", "muted", "true"]).await;
    let _: u64 = run(&new.client, &["HSET", "quota_subject:unknown", "muted", "true"]).await;
    let counters: Vec<String> = run(&new.client, &["KEYS", "quota_usage:*"]).await;
    let _: u64 = run(&new.client, &["HSET", &counters[0], "nobody", "5"]).await;
    migrate(&old.url(), &new.server.url(), "1").expect_done();
    let left: Vec<String> = run(&new.client, &["HKEYS", "quota_subject:s:1"]).await;
    assert_eq!(left, ["plan"]);
    assert_eq!(run::<Option<String>>(&new.client, &["HGET", &counters[0], "nobody"]).await, None);
    assert_eq!(run::<u64>(&new.client, &["EXISTS", "quota_subject:unknown"]).await, 0);
}

/// The comparison must find another writer's data in the target: keys, fields, members, values, entries and settings
/// that the source does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_target_has_beyond_the_source_is_a_difference() {
    let old = RedisServer::start();
    let mut source = counted(&old, 1, SUBJECTS * LIMIT).await;
    source.send_with_ids(events(SUBJECTS), 1).await;
    let Partition { client, keys } = source.partitions.first();
    let mut refused = ["XADD", &keys.refused(), "*", "entry", "1-1", "reason", "bad_units", "subject", "s:1"];
    for entry in ["1-1", "1-2"] {
        refused[4] = entry;
        let _: String = run(client, &refused).await;
    }
    let pending: Vec<String> = run(client, &["ZRANGE", &keys.pending(), "0", "0"]).await;
    let seen = keys.event_ids(7);
    let _: u64 = run(client, &["RPUSH", &seen, "0123456789abcdef"]).await;
    let metrics: String = format!("quota_metrics:{{usage}}:{}", source.day());
    let one_more: [(&[&str], &str); 8] = [
        (&["HSET", "quota_subject:other", "plan", "free"], "quota_subject:other"),
        (&["HSET", "quota_usage:{usage}:requests:2026-11-21:00", "nobody", "5"], "quota_usage:{usage}:requests:2026"),
        (&["SADD", &metrics, "tokens"], &metrics),
        (&["RPUSH", &seen, "fedcba9876543210"], &seen),
        (&["SET", "quota_alert:{usage}:s:1:requests:90:2026-11-21:9", "x"], "quota_alert:{usage}:s:1:requests:90"),
        (&["ZADD", "quota_dead:{usage}", "1", &pending[0]], "quota_dead:{usage}"),
        (&["HSET", "quota_delivery:{usage}:unknown", "state", "pending"], "quota_delivery:{usage}:unknown"),
        (&["XADD", "quota_refused:{usage}", "*", "entry", "1-3"], "entries of refused"),
    ];
    let new = RedisServer::start();
    let target = source.moved_to(&new.url(), 1).await;
    let to_shown = format!("redis://127.0.0.1:{}/0", new.port());
    let migration = Migration { from: &source.partitions, to: &target.partitions, to_shown: &to_shown };
    for (command, named) in one_more {
        let writer = RefCell::new(new.sync_client().get_connection().expect("connected"));
        let compared = migration.run(|step| {
            if step == "comparing" {
                let mut written = redis::cmd(command[0]);
                let _: redis::Value = written.arg(&command[1..]).query(&mut *writer.borrow_mut()).expect("written");
            }
        });
        match compared.await {
            Err(MigrationError::Differs { named: differing, .. }) => {
                assert!(differing.contains(named), "{command:?}: {differing}");
            }
            other => panic!("{command:?}: {other:?}"),
        }
    }
    // Each run has removed the data that was written into the previous one.
    migration.run(|_| {}).await.expect("nothing differs");
}

/// The same number of entries is not enough: a lost event must be found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_in_place_of_another_is_found() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = counted(&old, 1, SUBJECTS).await;
    source.send(events(SUBJECTS)).await;
    migrate(&old.url(), &new.url(), "1").expect_done();
    let target = source.moved_to(&new.url(), 1).await;
    is_unfinished(&target).await;
    let Partition { client, keys } = target.partitions.first();
    let entries: Vec<(String, Vec<String>)> = run(client, &["XRANGE", keys.stream(), "-", "+"]).await;
    let _: u64 = run(client, &["XDEL", keys.stream(), &entries[0].0]).await;
    let mut instead = redis::cmd("XADD");
    let _: String = client.query(instead.arg(keys.stream()).arg("*").arg(&entries[1].1)).await.expect("appended");
    refused(&migrate(&old.url(), &new.url(), "1"), 1, &["differs from the source", "entries of usage"]);
}

fn undo(from: &str, to: &str, partitions: &str) -> crate::support::binary::Finished {
    quotabell(["migrate", "--from", from, "--to", to, "--partitions", partitions, "--undo", "--json"]).run()
}

/// To give up a migration, an operator used to have to delete hundreds of keys by hand, and daemons started on neither
/// side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_not_complete_is_undone_by_one_command() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = counted(&old, 2, SUBJECTS * LIMIT / 2).await;
    source.send(events(SUBJECTS)).await;
    let here = &source.partitions.first().client;
    let _: u64 = run(here, &["HSET", "quota_subject:s:1", "plan", "free"]).await;
    // Data of another stream and of another program.
    for other in ["quota_usage:{other}:requests:2026-11-21:00", "mine"] {
        let _: u64 = run(&new.client(), &["HSET", other, "alice", "7"]).await;
    }
    migrate(&old.url(), &new.url(), "3").expect_done();
    refused(&undo(&old.url(), &new.url(), "3"), 1, &["the move is complete"]);
    let target = source.moved_to(&new.url(), 3).await;
    is_unfinished(&target).await;
    refused_to_start(&source, "was moved to").await;

    refused(&undo(&old.url(), &new.url(), "4"), 1, &["was moved to"]);
    let to = &target.partitions.first();
    let own: String = run(&to.client, &["XADD", to.keys.stream(), "*", "subject", "bob"]).await;
    refused(&undo(&old.url(), &new.url(), "3"), 1, &["1 event that a producer has written is at the target"]);
    let _: u64 = run(&to.client, &["XDEL", to.keys.stream(), &own]).await;

    let undone = undo(&old.url(), &new.url(), "3").expect_json();
    assert!(undone[0]["removed"].as_u64().is_some_and(|keys| keys > 50), "{undone:?}");
    let mut left: Vec<String> = run(&new.client(), &["KEYS", "*"]).await;
    left.sort();
    assert_eq!(left, ["mine", "quota_usage:{other}:requests:2026-11-21:00"]);
    assert_eq!(undo(&old.url(), &new.url(), "3").expect_json()[0]["removed"], 0, "once more it finds nothing");
    let daemon = source.daemon().start().await;
    source.agree().await;
    daemon.drain().await;
    migrate(&old.url(), &new.url(), "4").expect_done();
}

/// An event that was copied and later counted by the source would be counted by the target too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_was_counted_on_between_two_runs_is_refused() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut source = counted(&old, 1, SUBJECTS).await;
    source.send(events(SUBJECTS)).await;
    migrate(&old.url(), &new.url(), "1").expect_done();
    let Partition { client, keys } = source.partitions.first();
    let _: u64 = run(client, &["HDEL", &keys.checkpoint(), "moved_to"]).await;
    refused(&migrate(&old.url(), &new.url(), "1"), 1, &["is not marked any more"]);
    let daemon = source.daemon().start().await;
    source.agree().await;
    daemon.drain().await;
    is_unfinished(&source.moved_to(&new.url(), 1).await).await;
    refused(&migrate(&old.url(), &new.url(), "1"), 1, &["has counted events since", "--undo"]);
}
