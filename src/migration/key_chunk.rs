//! Chunks of stored data, read from one deployment and written to or compared with another.

use std::collections::{BTreeMap, HashMap};

use redis::{Pipeline, RedisResult, Value, from_redis_value};

/// A part of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyChunk {
    /// The key's name in the target.
    pub(super) key: String,
    /// Its content.
    pub(super) content: Elements,
    /// When the key expires, Unix ms; `None` for never.
    pub(super) expires_at_ms: Option<i64>,
}

/// Elements of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Elements {
    /// A string.
    Text(Vec<u8>),
    /// All fields and values of a hash.
    Fields(Vec<(Vec<u8>, Vec<u8>)>),
    /// Some fields and values of a hash; each is in one chunk.
    SomeFields(Vec<(Vec<u8>, Vec<u8>)>),
    /// Scores and members of a sorted set.
    Scores(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members of a set.
    Members(Vec<Vec<u8>>),
    /// Values of a list, which may have more.
    Values(Vec<Vec<u8>>),
}

impl KeyChunk {
    /// Adds the commands that write the chunk to a cleared target. Chunks of one key are merged, and the latest expiry
    /// counts.
    pub(super) fn write(&self, pipeline: &mut Pipeline) {
        let key = &self.key;
        match &self.content {
            Elements::Text(text) => pipeline.cmd("SET").arg(key).arg(text).ignore(),
            Elements::Fields(fields) => {
                // Settings of subjects are not cleared in advance and may have fewer fields now.
                pipeline.cmd("DEL").arg(key).ignore();
                pipeline.cmd("HSET").arg(key).arg(fields).ignore()
            }
            Elements::SomeFields(fields) => pipeline.cmd("HSET").arg(key).arg(fields).ignore(),
            // The highest score, if several partitions share a member.
            Elements::Scores(scores) => pipeline.cmd("ZADD").arg(key).arg("GT").arg(scores).ignore(),
            Elements::Members(members) => pipeline.cmd("SADD").arg(key).arg(members).ignore(),
            Elements::Values(values) => pipeline.cmd("RPUSH").arg(key).arg(values).ignore(),
        };
        if let Some(at) = self.expires_at_ms {
            pipeline.cmd("PEXPIREAT").arg(key).arg(at).arg("NX").ignore();
            pipeline.cmd("PEXPIREAT").arg(key).arg(at).arg("GT").ignore();
        }
    }

    /// Adds the two commands whose replies [`Self::is_as_read`] checks.
    pub(super) fn read(&self, pipeline: &mut Pipeline) {
        let key = &self.key;
        let members_of =
            |pairs: &[(Vec<u8>, Vec<u8>)]| pairs.iter().map(|(_, member)| member.clone()).collect::<Vec<_>>();
        match &self.content {
            Elements::Text(_) => pipeline.cmd("GET").arg(key),
            Elements::Fields(_) => pipeline.cmd("HGETALL").arg(key),
            Elements::SomeFields(fields) => {
                pipeline.cmd("HMGET").arg(key).arg(fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())
            }
            Elements::Scores(scores) => pipeline.cmd("ZMSCORE").arg(key).arg(members_of(scores)),
            Elements::Members(members) => pipeline.cmd("SMISMEMBER").arg(key).arg(members),
            Elements::Values(_) => pipeline.cmd("LRANGE").arg(key).arg(0).arg(-1),
        };
        pipeline.cmd("PEXPIRETIME").arg(key);
    }

    /// Whether the target has the content with at least the same lifetime; `i64::MAX` means that it never expires.
    /// [`super::surplus`] finds further content.
    pub(super) fn is_as_read(&self, content: Value, expires_at_ms: i64) -> RedisResult<bool> {
        let is_kept = expires_at_ms >= self.expires_at_ms.unwrap_or(i64::MAX);
        let is_same = match &self.content {
            Elements::Text(text) => from_redis_value::<Option<Vec<u8>>>(content)?.as_ref() == Some(text),
            Elements::Fields(pairs) => {
                let found: BTreeMap<Vec<u8>, Vec<u8>> = from_redis_value(content)?;
                found == pairs.iter().cloned().collect()
            }
            Elements::SomeFields(pairs) => {
                let found: Vec<Option<Vec<u8>>> = from_redis_value(content)?;
                found.into_iter().eq(pairs.iter().map(|(_, value)| Some(value.clone())))
            }
            Elements::Scores(pairs) => {
                let found: Vec<Option<f64>> = from_redis_value(content)?;
                let number = |score: &[u8]| std::str::from_utf8(score).ok().and_then(|score| score.parse::<f64>().ok());
                found.len() == pairs.len()
                    && found.into_iter().zip(pairs).all(|(found, (score, _))| found.is_some() && found >= number(score))
            }
            Elements::Members(_) => from_redis_value::<Vec<i64>>(content)?.iter().all(|is| *is == 1),
            Elements::Values(values) => {
                let mut lacking: HashMap<&[u8], i64> = HashMap::new();
                values.iter().for_each(|value| *lacking.entry(value).or_default() += 1);
                for value in from_redis_value::<Vec<Vec<u8>>>(content)? {
                    if let Some(times) = lacking.get_mut(value.as_slice()) {
                        *times -= 1;
                    }
                }
                lacking.values().all(|times| *times <= 0)
            }
        };
        Ok(is_kept && is_same)
    }

    /// Number of its elements.
    pub(super) fn len(&self) -> u64 {
        let elements = match &self.content {
            Elements::Text(_) => 1,
            Elements::Fields(pairs) | Elements::SomeFields(pairs) | Elements::Scores(pairs) => pairs.len(),
            Elements::Members(values) | Elements::Values(values) => values.len(),
        };
        elements as u64
    }

    /// The names of its elements (fields and members), if elements have names.
    pub(super) fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        let (pairs, members): (&[_], &[_]) = match &self.content {
            Elements::Fields(pairs) | Elements::SomeFields(pairs) => (pairs, &[]),
            Elements::Scores(pairs) => (pairs, &[]),
            Elements::Members(members) => (&[], members),
            Elements::Text(_) | Elements::Values(_) => (&[], &[]),
        };
        let is_scored = matches!(self.content, Elements::Scores(_));
        pairs.iter().map(move |(first, second)| if is_scored { second } else { first }).chain(members)
    }
}
