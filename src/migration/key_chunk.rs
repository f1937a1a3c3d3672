//! Pieces of what is stored: as they are read from one deployment, and written to or compared with another.

use std::collections::{BTreeMap, HashMap};

use redis::{Pipeline, RedisResult, Value, from_redis_value};

/// A part of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyChunk {
    /// The key, as it is called at the target.
    pub(super) key: String,
    /// What belongs into it.
    pub(super) content: Elements,
    /// When the key expires, Unix ms; `None` for never.
    pub(super) expires_at_ms: Option<i64>,
}

/// Elements of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Elements {
    /// A string.
    Text(Vec<u8>),
    /// Fields and values of a hash that has no others.
    Fields(Vec<(Vec<u8>, Vec<u8>)>),
    /// Some of the fields and values of a hash, each in one chunk.
    SomeFields(Vec<(Vec<u8>, Vec<u8>)>),
    /// Scores and members of a sorted set.
    Scores(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members of a set.
    Members(Vec<Vec<u8>>),
    /// Values of a list, which may have others.
    Values(Vec<Vec<u8>>),
}

impl KeyChunk {
    /// Adds the commands that write it to a target that was cleared before. Several chunks of one key are merged, and
    /// keep the latest end of any.
    pub(super) fn write(&self, pipeline: &mut Pipeline) {
        let key = &self.key;
        match &self.content {
            Elements::Text(text) => pipeline.cmd("SET").arg(key).arg(text).ignore(),
            Elements::Fields(fields) => {
                // Settings of subjects are not cleared before, and may have fewer fields now.
                pipeline.cmd("DEL").arg(key).ignore();
                pipeline.cmd("HSET").arg(key).arg(fields).ignore()
            }
            Elements::SomeFields(fields) => pipeline.cmd("HSET").arg(key).arg(fields).ignore(),
            // Of what several partitions share, the highest score.
            Elements::Scores(scores) => pipeline.cmd("ZADD").arg(key).arg("GT").arg(scores).ignore(),
            Elements::Members(members) => pipeline.cmd("SADD").arg(key).arg(members).ignore(),
            Elements::Values(values) => pipeline.cmd("RPUSH").arg(key).arg(values).ignore(),
        };
        if let Some(at) = self.expires_at_ms {
            pipeline.cmd("PEXPIREAT").arg(key).arg(at).arg("NX").ignore();
            pipeline.cmd("PEXPIREAT").arg(key).arg(at).arg("GT").ignore();
        }
    }

    /// Adds the two commands that [`Self::is_as_read`] judges.
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

    /// Whether the target has it, and not for a shorter time. What it has beyond that is
    /// [`super::surplus`]'s to find.
    pub(super) fn is_as_read(&self, content: Value, expires_at_ms: i64) -> RedisResult<bool> {
        let is_kept = self.expires_at_ms.is_none_or(|at| expires_at_ms >= at);
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

    /// How many elements it has.
    pub(super) fn len(&self) -> u64 {
        let elements = match &self.content {
            Elements::Text(_) => 1,
            Elements::Fields(pairs) | Elements::SomeFields(pairs) | Elements::Scores(pairs) => pairs.len(),
            Elements::Members(values) | Elements::Values(values) => values.len(),
        };
        elements as u64
    }

    /// What tells its elements from others of the key, where there is such a thing: fields and members.
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
