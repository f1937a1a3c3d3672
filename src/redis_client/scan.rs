//! Iterates over keys, or over the elements of a collection, with SCAN, HSCAN and ZSCAN.

use redis::{Cmd, FromRedisValue, RedisResult};

use super::RedisClient;

/// Number of keys or elements per call (COUNT).
const SLICE_COUNT: usize = 1000;

/// An iteration. It returns everything that exists from its start to its end, possibly more than once.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The command, and the key of a collection.
    command: Vec<String>,
    pattern: Option<String>,
    /// The cursor of the next call; `None` at the end.
    cursor: Option<u64>,
}

impl Scan {
    /// The matching keys of one server. SCAN names no key: in a cluster the caller asks each primary.
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

    /// Returns only elements that match.
    #[must_use]
    pub fn matching(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// The next slice, which may be empty although more follow; `None` at the end.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection; the next call reads the same slice again.
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

    /// Everything that is left.
    ///
    /// # Errors
    ///
    /// As [`Self::next`].
    pub async fn all<T: FromRedisValue>(mut self, client: &RedisClient) -> RedisResult<Vec<T>> {
        let mut all = Vec::new();
        while let Some(slice) = self.next(client).await? {
            all.extend(slice);
        }
        Ok(all)
    }
}
