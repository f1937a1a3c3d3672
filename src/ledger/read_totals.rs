//! Reading what a worker does not hold yet: counters, and records of raised alerts, many at once.
//!
//! They may be read at any moment: had somebody else committed in between, the commit that builds on them would answer
//! `stale`. But a failover may take that other commit back, and the checkpoint with it. So each reading tells which
//! checkpoint was stored then.

use std::collections::HashMap;

use redis::{FromRedisValue, Pipeline, RedisError, RedisResult, Value};

use crate::redis_client::{ErrorKind, error_kind};
use crate::types::units::UNITS_MAX;
use crate::types::{Day, Keys, Metric, Percent, RaisedRecord, StreamId, Subject};

use super::batch::MetricPeriod;

/// A counter that is to be read.
#[derive(Debug, Clone)]
pub struct CounterQuery<'a> {
    /// Metric and period.
    pub of: &'a MetricPeriod,
    /// CRC-16 of the subject modulo 256.
    pub bucket: u8,
    /// Whose.
    pub subject: &'a Subject,
}

/// The records of a counter that are to be read.
#[derive(Debug, Clone)]
pub struct RecordQuery<'a> {
    /// Which counter.
    pub counter: CounterQuery<'a>,
    /// The percentages.
    pub percents: &'a [Percent],
}

/// What was raised of a counter, by percentage.
pub type RaisedRecords = HashMap<Percent, RaisedRecord>;

/// The answers to a pipeline that ignores errors, in their order.
pub type Replies = std::vec::IntoIter<RedisResult<Value>>;

/// Adds the commands that read counters; those of one hash should follow one another.
pub fn ask_counters(pipeline: &mut Pipeline, keys: &Keys, queries: &[CounterQuery<'_>]) {
    for group in by_hash(queries) {
        pipeline.cmd("HMGET").arg(key_of(keys, &group[0]));
        for query in group {
            pipeline.arg(query.subject.as_str());
        }
    }
}

/// What the counters hold, from the answers to [`ask_counters`] for the same queries. An absent one is 0.
///
/// # Errors
///
/// What Redis said; [`ErrorKind::WrongType`] names a key of another type and a counter that is no number.
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
        for percent in query.percents {
            pipeline.arg(Keys::raised_field(*percent, query.counter.subject));
        }
    }
}

/// What was raised, from the answers to [`ask_records`] for the same queries. A record that can't be read counts as
/// none: the flag still keeps an alert from being raised twice.
///
/// # Errors
///
/// What Redis said; [`ErrorKind::WrongType`] names a key of another type.
pub fn records_from(
    replies: &mut Replies,
    keys: &Keys,
    queries: &[RecordQuery<'_>],
) -> RedisResult<Vec<RaisedRecords>> {
    let records = |query: &RecordQuery<'_>| {
        let values: Vec<Option<String>> =
            next_of(replies).map_err(|error| named(error, &records_key_of(keys, query)))?;
        let record = |(percent, text): (&Percent, Option<String>)| Some((*percent, serde_json::from_str(&text?).ok()?));
        Ok(query.percents.iter().zip(values).filter_map(record).collect())
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
/// What Redis said.
pub fn metrics_from(replies: &mut Replies, days: &[Day]) -> RedisResult<Vec<Vec<Metric>>> {
    let metrics = |names: Vec<String>| names.iter().filter_map(|name| name.parse().ok()).collect();
    days.iter().map(|_| next_of(replies).map(metrics)).collect()
}

/// Adds the command that reads the checkpoint: behind the others, on the same connection.
pub fn ask_checkpoint(pipeline: &mut Pipeline, keys: &Keys) {
    pipeline.cmd("HGET").arg(keys.checkpoint()).arg("id");
}

/// The checkpoint that was stored when the commands before [`ask_checkpoint`] had been answered.
///
/// # Errors
///
/// What Redis said.
pub fn checkpoint_from(replies: &mut Replies) -> RedisResult<StreamId> {
    let id: Option<String> = next_of(replies)?;
    Ok(StreamId::from_stored(id.as_deref()))
}

/// The next answer.
///
/// # Errors
///
/// What Redis said, or that it is of another type.
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

/// The error of a field that holds no count.
pub(super) fn no_count(key: &str, subject: &Subject) -> RedisError {
    wrong_type(key, &format!("no count in field {subject}"))
}

/// A count as a commit writes it.
pub(super) fn counter_of(text: &str) -> Option<u64> {
    // Text for text: the commit compares it with what it holds.
    text.parse().ok().filter(|units: &u64| units.to_string() == text && *units <= UNITS_MAX)
}

/// The server does not say which key it means.
fn named(error: RedisError, key: &str) -> RedisError {
    if error_kind(&error) == ErrorKind::WrongType { wrong_type(key, "something else than a hash") } else { error }
}

fn wrong_type(key: &str, what: &str) -> RedisError {
    redis::make_extension_error("WRONGTYPE".to_owned(), Some(format!("{key} holds {what}")))
}
