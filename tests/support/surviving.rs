//! Checks counts, records, flags and deliveries against the stream that survived a failure.

use quotabell::redis_client::RedisClient;
use quotabell::types::Keys;
use redis::FromRedisValue;

use super::checker::{compare, enter_stream};
use super::eventually::eventually;
use super::stream_model::StreamModel;

/// Runs a command given by its words.
pub async fn run<T: FromRedisValue>(client: &RedisClient, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The number of counted events that this server knows.
pub async fn counted(client: &RedisClient) -> u64 {
    run::<Option<u64>>(client, &["HGET", &Keys::new("usage").totals(), "counted"]).await.unwrap_or(0)
}

pub async fn length(client: &RedisClient) -> u64 {
    run(client, &["XLEN", "usage"]).await
}

/// Waits until all entries of this server's stream are counted. Nothing of it was trimmed.
pub async fn all_counted(client: &RedisClient) {
    eventually("what survived is counted", || async { (counted(client).await == length(client).await).then_some(()) })
        .await;
}

/// Checks everything on this server against its own stream, with `limit` as the daily limit of `requests` for every
/// subject.
pub async fn agrees(client: &RedisClient, limit: u64) {
    let keys = Keys::new("usage");
    let mut model = StreamModel::new(&[], limit);
    enter_stream(client, keys.stream(), &mut model).await;
    all_fanned_out(client, &keys).await;
    compare(client, &keys, &model).await.findings.expect_none();
}

/// Waits until the outbox is empty.
pub async fn all_fanned_out(client: &RedisClient, keys: &Keys) {
    eventually("every alert is fanned out", || async {
        (run::<u64>(client, &["XLEN", &keys.outbox()]).await == 0).then_some(())
    })
    .await;
}
