//! Whether counts, records, flags and deliveries are those of the stream that survived.

use std::collections::{BTreeMap, HashMap};

use quotabell::types::Keys;
use quotabell::wire::RedisClient;
use redis::streams::StreamRangeReply;
use redis::{FromRedisValue, Value};

use super::eventually::eventually;

/// Runs a command: all words at once.
pub async fn run<T: FromRedisValue>(client: &RedisClient, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// What all commits counted that this server knows of.
pub async fn counted(client: &RedisClient) -> u64 {
    run::<Option<u64>>(client, &["HGET", &Keys::new("usage").totals(), "counted"]).await.unwrap_or(0)
}

pub async fn length(client: &RedisClient) -> u64 {
    run(client, &["XLEN", "usage"]).await
}

/// Everything that this server's stream holds is counted. Nothing of it was trimmed.
pub async fn all_counted(client: &RedisClient) {
    eventually("what survived is counted", || async { (counted(client).await == length(client).await).then_some(()) })
        .await;
}

/// Counters, records, flags and deliveries of this server are those of its own stream, with thresholds of 80 and 100 percent of
/// `limit`.
pub async fn agrees(client: &RedisClient, limit: u64) {
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
        due.extend([80, 100].iter().filter(|n| used * 100 >= limit * **n).map(|n| format!("{n}:{subject}")));
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
