//! Reads counters and records of raised alerts that a worker has not cached, many at once.
//!
//! They may be read at any time: if somebody else commits in between, a commit that builds on them returns `stale`. But
//! a failover may undo that other commit together with its checkpoint. So each read also returns the stored checkpoint.

use std::collections::HashMap;

use redis::{FromRedisValue, Pipeline, RedisError, RedisResult, Value};

use crate::redis_client::{ErrorKind, error_kind};
use crate::types::units::UNITS_MAX;
use crate::types::{Day, Keys, Metric, RaisedRecord, StreamId, Subject, Threshold};

use super::batch::MetricPeriod;

/// A counter to read.
#[derive(Debug, Clone)]
pub struct CounterQuery<'a> {
    /// Metric and period.
    pub of: &'a MetricPeriod,
    /// CRC-16 of the subject modulo 256.
    pub bucket: u8,
    /// The subject.
    pub subject: &'a Subject,
}

/// The records of a counter to read.
#[derive(Debug, Clone)]
pub struct RecordQuery<'a> {
    /// The counter.
    pub counter: CounterQuery<'a>,
    /// The thresholds.
    pub thresholds: &'a [Threshold],
}

/// The raised alerts of a counter, by threshold.
pub type RaisedRecords = HashMap<Threshold, RaisedRecord>;

/// The replies to a pipeline that ignores errors, in order.
pub type Replies = std::vec::IntoIter<RedisResult<Value>>;

/// Adds the commands that read counters; queries for the same hash should be adjacent.
pub fn ask_counters(pipeline: &mut Pipeline, keys: &Keys, queries: &[CounterQuery<'_>]) {
    for group in by_hash(queries) {
        pipeline.cmd("HMGET").arg(key_of(keys, &group[0]));
        for query in group {
            pipeline.arg(query.subject.as_str());
        }
    }
}

/// The counter values, from the replies to [`ask_counters`] for the same queries. A missing counter is 0.
///
/// # Errors
///
/// The error of Redis; [`ErrorKind::WrongType`] names a key of another type, or a counter that is not a number.
pub fn counters_from(replies: &mut Replies, keys: &Keys, queries: &[CounterQuery<'_>]) -> RedisResult<Vec<u64>> {
    let mut totals = Vec::with_capacity(queries.len());
    for group in by_hash(queries) {
        let key = || key_of(keys, &group[0]);
        let values: Vec<Option<String>> = next_of(replies).map_err(|error| named(error, &key()))?;
        for (query, value) in group.iter().zip(values) {
            let units = value.map_or(Some(0), |text| counter_of(&text));
            totals.push(units.ok_or_else(|| no_count(&key(), query.subject))?);
        }
    }
    Ok(totals)
}

fn by_hash<'a, 'b>(queries: &'b [CounterQuery<'a>]) -> impl Iterator<Item = &'b [CounterQuery<'a>]> {
    queries.chunk_by(|a, b| a.bucket == b.bucket && a.of == b.of)
}

/// Adds the commands that read records of raised alerts.
pub fn ask_records(pipeline: &mut Pipeline, keys: &Keys, queries: &[RecordQuery<'_>]) {
    for query in queries {
        pipeline.cmd("HMGET").arg(records_key_of(keys, query));
        for threshold in query.thresholds {
            pipeline.arg(Keys::raised_field(*threshold, query.counter.subject));
        }
    }
}

/// The raised alerts, from the replies to [`ask_records`] for the same queries. An unreadable record counts as missing:
/// the flag still prevents a second alert.
///
/// # Errors
///
/// The error of Redis; [`ErrorKind::WrongType`] names a key of another type.
pub fn records_from(
    replies: &mut Replies,
    keys: &Keys,
    queries: &[RecordQuery<'_>],
) -> RedisResult<Vec<RaisedRecords>> {
    let records = |query: &RecordQuery<'_>| {
        let values: Vec<Option<String>> =
            next_of(replies).map_err(|error| named(error, &records_key_of(keys, query)))?;
        let record =
            |(threshold, text): (&Threshold, Option<String>)| Some((*threshold, serde_json::from_str(&text?).ok()?));
        Ok(query.thresholds.iter().zip(values).filter_map(record).collect())
    };
    queries.iter().map(records).collect()
}

/// Adds the commands that read the metrics of days.
pub fn ask_metrics(pipeline: &mut Pipeline, keys: &Keys, days: &[Day]) {
    days.iter().for_each(|day| {
        pipeline.cmd("SMEMBERS").arg(keys.metrics(*day));
    });
}

/// The metrics of each day, from the answers to [`ask_metrics`] for the same days.
///
/// # Errors
///
/// The error of Redis.
pub fn metrics_from(replies: &mut Replies, days: &[Day]) -> RedisResult<Vec<Vec<Metric>>> {
    let metrics = |names: Vec<String>| names.iter().filter_map(|name| name.parse().ok()).collect();
    days.iter().map(|_| next_of(replies).map(metrics)).collect()
}

/// Adds the command that reads the checkpoint, behind the others on the same connection.
pub fn ask_checkpoint(pipeline: &mut Pipeline, keys: &Keys) {
    pipeline.cmd("HGET").arg(keys.checkpoint()).arg("id");
}

/// The checkpoint at the time of the replies before [`ask_checkpoint`].
///
/// # Errors
///
/// The error of Redis.
pub fn checkpoint_from(replies: &mut Replies) -> RedisResult<StreamId> {
    let id: Option<String> = next_of(replies)?;
    Ok(StreamId::from_stored(id.as_deref()))
}

/// The next reply.
///
/// # Errors
///
/// The error of Redis, or the reply has another type.
pub fn next_of<T: FromRedisValue>(replies: &mut Replies) -> RedisResult<T> {
    let missing = || RedisError::from((redis::ErrorKind::UnexpectedReturnType, "fewer answers than commands"));
    Ok(T::from_redis_value(replies.next().ok_or_else(missing)??)?)
}

fn records_key_of(keys: &Keys, query: &RecordQuery<'_>) -> String {
    keys.raised(&query.counter.of.metric, query.counter.of.period, query.counter.bucket)
}

fn key_of(keys: &Keys, query: &CounterQuery<'_>) -> String {
    keys.usage(&query.of.metric, query.of.period, query.bucket)
}

/// The error for a field that is not a count.
pub(super) fn no_count(key: &str, subject: &Subject) -> RedisError {
    wrong_type(key, &format!("no count in field {subject}"))
}

/// A count in the exact form that a commit writes.
pub(super) fn counter_of(text: &str) -> Option<u64> {
    // Exact text, because the commit compares it with the stored text.
    text.parse().ok().filter(|units: &u64| units.to_string() == text && *units <= UNITS_MAX)
}

/// Adds the key, which the server's error does not name.
fn named(error: RedisError, key: &str) -> RedisError {
    if error_kind(&error) == ErrorKind::WrongType { wrong_type(key, "something other than a hash") } else { error }
}

pub(super) fn wrong_type(key: &str, what: &str) -> RedisError {
    redis::make_extension_error("WRONGTYPE".to_owned(), Some(format!("{key} holds {what}")))
}
