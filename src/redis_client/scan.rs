//! A walk over keys or over the elements of a collection, slice by slice: SCAN, HSCAN and ZSCAN.

use redis::{Cmd, FromRedisValue, RedisResult};

use super::RedisClient;

/// Keys or elements that one call looks at.
const SLICE_COUNT: usize = 1000;

/// A walk. What is there from its beginning to its end is found, possibly more than once.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The command, and the key of a collection.
    command: Vec<String>,
    pattern: Option<String>,
    /// Where it goes on; `None` at the end.
    cursor: Option<u64>,
}

impl Scan {
    /// The keys that match, of the one server that is asked. SCAN names no key: in a cluster each primary is to be
    /// asked for its own.
    pub fn keys(pattern: impl Into<String>) -> Self {
        Self::new(&["SCAN"]).matching(pattern)
    }

    /// Fields and values of a hash, as pairs.
    pub fn hash(key: &str) -> Self {
        Self::new(&["HSCAN", key])
    }

    /// Members and scores of a sorted set, as pairs.
    pub fn sorted_set(key: &str) -> Self {
        Self::new(&["ZSCAN", key])
    }

    fn new(command: &[&str]) -> Self {
        Self { command: command.iter().map(|&word| word.to_owned()).collect(), pattern: None, cursor: Some(0) }
    }

    /// Only what matches.
    #[must_use]
    pub fn matching(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// The next slice, which may be empty although more follow; `None` behind the last one.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; the next call reads the same slice.
    pub async fn next<T: FromRedisValue>(&mut self, client: &RedisClient) -> RedisResult<Option<Vec<T>>> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut command = Cmd::new();
        command.arg(&self.command).arg(cursor);
        if let Some(pattern) = &self.pattern {
            command.arg("MATCH").arg(pattern);
        }
        let (next, slice): (u64, Vec<T>) = client.query(command.arg("COUNT").arg(SLICE_COUNT)).await?;
        self.cursor = (next != 0).then_some(next);
        Ok(Some(slice))
    }
}
