//! Reading what a worker does not hold yet: counters, and records of raised alerts, many at once.
//!
//! They may be read at any moment: had somebody else committed in between, the commit that builds on them would answer `stale`. But a
//! failover may take that other commit back, and the checkpoint with it. So each reading tells which checkpoint was stored then.

use std::collections::HashMap;

use redis::{Pipeline, RedisError, RedisResult};

use crate::types::units::UNITS_MAX;
use crate::types::{Keys, Percent, RaisedRecord, StreamId, Subject};
use crate::wire::{ErrorKind, RedisClient, error_kind};

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

/// What was read, in the order of the queries.
#[derive(Debug, Clone)]
pub struct ReadAsOf<T> {
    /// The values.
    pub values: Vec<T>,
    /// The checkpoint that was stored when they had been read; `None` where nothing was asked.
    pub checkpoint: Option<StreamId>,
}

/// What was raised of a counter, by percentage.
pub type RaisedRecords = HashMap<Percent, RaisedRecord>;

/// Reads counters; those of one hash should follow one another. An absent one is 0.
///
/// # Errors
///
/// What Redis or the connection said; [`ErrorKind::WrongType`] names a key of another type and a counter that is no number.
pub async fn read_counters(
    client: &RedisClient,
    keys: &Keys,
    queries: &[CounterQuery<'_>],
) -> RedisResult<ReadAsOf<u64>> {
    if queries.is_empty() {
        return Ok(ReadAsOf { values: Vec::new(), checkpoint: None });
    }
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    let groups: Vec<&[CounterQuery<'_>]> = queries.chunk_by(|a, b| a.bucket == b.bucket && a.of == b.of).collect();
    for group in &groups {
        pipeline.cmd("HMGET").arg(key_of(keys, &group[0]));
        for query in *group {
            pipeline.arg(query.subject.as_str());
        }
    }
    let (replies, checkpoint) = as_of(client, keys, pipeline).await?;
    let mut totals = Vec::with_capacity(queries.len());
    for (group, reply) in groups.into_iter().zip(replies) {
        let key = || key_of(keys, &group[0]);
        let values = reply.map_err(|error| named(error, &key()))?;
        for (query, value) in group.iter().zip(values) {
            let units = value.map_or(Some(0), |text| counter_of(&text));
            totals.push(units.ok_or_else(|| wrong_type(&key(), &format!("no count in field {}", query.subject)))?);
        }
    }
    Ok(ReadAsOf { values: totals, checkpoint: Some(checkpoint) })
}

/// Reads records of raised alerts. One that can't be read counts as none: the flag still keeps an alert from being raised twice.
///
/// # Errors
///
/// What Redis or the connection said; [`ErrorKind::WrongType`] names a key of another type.
pub async fn read_records(
    client: &RedisClient,
    keys: &Keys,
    queries: &[RecordQuery<'_>],
) -> RedisResult<ReadAsOf<RaisedRecords>> {
    if queries.is_empty() {
        return Ok(ReadAsOf { values: Vec::new(), checkpoint: None });
    }
    let key_of =
        |query: &RecordQuery<'_>| keys.raised(&query.counter.of.metric, query.counter.of.period, query.counter.bucket);
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for query in queries {
        pipeline.cmd("HMGET").arg(key_of(query));
        for percent in query.percents {
            pipeline.arg(Keys::raised_field(*percent, query.counter.subject));
        }
    }
    let (replies, checkpoint) = as_of(client, keys, pipeline).await?;
    let records = |(query, reply): (&RecordQuery<'_>, RedisResult<Vec<Option<String>>>)| {
        let values = reply.map_err(|error| named(error, &key_of(query)))?;
        let record = |(percent, text): (&Percent, Option<String>)| Some((*percent, serde_json::from_str(&text?).ok()?));
        Ok(query.percents.iter().zip(values).filter_map(record).collect())
    };
    let values: RedisResult<Vec<RaisedRecords>> = queries.iter().zip(replies).map(records).collect();
    Ok(ReadAsOf { values: values?, checkpoint: Some(checkpoint) })
}

/// Fields of a hash.
type HashReply = RedisResult<Vec<Option<String>>>;

/// Runs commands that read hashes, and then asks for the checkpoint: all on one connection, one after the other.
async fn as_of(client: &RedisClient, keys: &Keys, mut pipeline: Pipeline) -> RedisResult<(Vec<HashReply>, StreamId)> {
    pipeline.cmd("HMGET").arg(keys.checkpoint()).arg("id");
    let mut replies: Vec<HashReply> = client.pipe(&pipeline).await?;
    let id = replies.pop().ok_or_else(|| wrong_type(&keys.checkpoint(), "no answer"))??.into_iter().flatten().next();
    Ok((replies, StreamId::from_stored(id.as_deref())))
}

fn key_of(keys: &Keys, query: &CounterQuery<'_>) -> String {
    keys.usage(&query.of.metric, query.of.period, query.bucket)
}

/// A count as a commit writes it.
fn counter_of(text: &str) -> Option<u64> {
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
