//! Failovers that lose a tail, in the middle of traffic: what survived is counted and raised exactly once.

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::redis_server::RedisServer;
use crate::support::switch::Switch;
use quotabell::types::Keys;
use quotabell::wire::RedisClient;
use redis::streams::StreamRangeReply;
use redis::{FromRedisValue, Value};

const SUBJECTS: u64 = 7;
/// Units a day; the events of one round carry every subject past both thresholds sooner or later.
const LIMIT: u64 = 60;
const ROUNDS: u64 = 4;
/// So many entries at least are committed on the old primary and lost with it.
const TAIL: u64 = 40;

async fn run<T: FromRedisValue>(client: &RedisClient, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Adds one event on this server; the number tells whose.
async fn add(client: &RedisClient, number: u64) {
    let subject = format!("s-{}", number % SUBJECTS);
    let _: String = run(client, &["XADD", "usage", "*", "subject", &subject]).await;
}

/// What all commits counted that this server knows of.
async fn counted(client: &RedisClient) -> u64 {
    run::<Option<u64>>(client, &["HGET", &Keys::new("usage").totals(), "counted"]).await.unwrap_or(0)
}

async fn length(client: &RedisClient) -> u64 {
    run(client, &["XLEN", "usage"]).await
}

/// Everything that this server's stream holds is counted.
async fn all_counted(client: &RedisClient) {
    eventually("what survived is counted", || async { (counted(client).await == length(client).await).then_some(()) })
        .await;
}

/// Replication is asynchronous: a replica that takes over lacks what the primary had not sent. The worker has read, and even
/// committed, entries that are gone then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_that_lose_a_tail_leave_counts_and_alerts_of_what_survived() {
    let mut servers = [RedisServer::start_to_be_followed(), RedisServer::start_to_be_followed()];
    let switch = Switch::to(servers[0].port()).await;
    let mut daemon = DaemonSetup::on(&format!("redis://127.0.0.1:{}", switch.port()))
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
        .env("QUOTABELL__STREAM__BATCH_ENTRIES", "4")
        .start()
        .await;
    let mut lost = 0;
    for round in 0..ROUNDS {
        let [primary, replica] = [0, 1].map(|at| servers[at].client());
        let port = servers[0].port().to_string();
        let _: String = run(&replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        eventually("the replica follows", || async {
            run::<String>(&replica, &["INFO", "replication"]).await.contains("master_link_status:up").then_some(())
        })
        .await;
        // The tail begins at the promotion; the daemon goes on with the old primary and commits some of it.
        for number in 0..60 {
            add(&primary, number * 3 + round).await;
        }
        let sent = length(&primary).await;
        eventually("the replica has it all", || async { (length(&replica).await == sent).then_some(()) }).await;
        let _: String = run(&replica, &["REPLICAOF", "NO", "ONE"]).await;
        for number in 0.. {
            add(&primary, number).await;
            if counted(&primary).await > sent + TAIL {
                break;
            }
        }
        lost += length(&primary).await - sent;
        switch.turn(servers[1].port());
        for number in 0..20 {
            add(&replica, number * 5).await;
        }
        all_counted(&replica).await;
        agrees(&replica).await;
        servers.swap(0, 1);
    }
    println!("{ROUNDS} failovers, {lost} entries lost with them, {} survived", length(&servers[0].client()).await);
    assert!(lost > ROUNDS * TAIL, "a tail is lost each time");
    still_works(&mut daemon).await;
    daemon.drain().await;
}

/// Counters, records, flags and deliveries of this server are those of its own stream.
async fn agrees(client: &RedisClient) {
    let entries: StreamRangeReply = run(client, &["XRANGE", "usage", "-", "+"]).await;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &entries.ids {
        *expected.entry(entry.get("subject").expect("a subject")).or_default() += 1;
    }
    let names = Keys::new("usage");
    let (mut counts, mut records, mut flags) = (BTreeMap::new(), Vec::new(), 0);
    for key in run::<Vec<String>>(client, &["KEYS", "quota_*"]).await {
        if key.starts_with("quota_usage:") {
            counts.extend(run::<HashMap<String, u64>>(client, &["HGETALL", &key]).await);
        } else if key.starts_with("quota_raised:") {
            records.extend(run::<Vec<String>>(client, &["HKEYS", &key]).await);
        } else if key.starts_with("quota_alert:") {
            flags += 1;
        }
    }
    assert_eq!(counts, expected);
    let mut due: Vec<String> = Vec::new();
    for (subject, used) in &expected {
        due.extend([80, 100].iter().filter(|n| used * 100 >= LIMIT * **n).map(|n| format!("{n}:{subject}")));
    }
    due.sort();
    records.sort();
    assert_eq!(records, due);
    assert_eq!(flags, due.len(), "a flag for each record, on one day");
    // Nobody has a contact: each alert becomes one delivery that waits.
    eventually("every alert has its delivery, once", || async {
        let totals: HashMap<String, Value> = run(client, &["HGETALL", &names.totals()]).await;
        let total = |name: &str| totals.get(name).and_then(|value| u64::from_redis_value_ref(value).ok()).unwrap_or(0);
        assert!(total("made") <= due.len() as u64);
        (total("raised") == due.len() as u64 && total("made") == due.len() as u64).then_some(())
    })
    .await;
    let deliveries: u64 = run(client, &["ZCARD", &names.deliveries()]).await;
    assert_eq!(deliveries, due.len() as u64);
}

async fn still_works(daemon: &mut Daemon) {
    assert_eq!(daemon.get("/readyz").await.status, 200);
}
