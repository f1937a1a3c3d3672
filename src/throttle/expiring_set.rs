//! The wrapper of `expiring_set.lua`: at most n members alive, each of which leaves by itself.
//!
//! Costs a member of a sorted set for each that is alive, its name included, and the key lives as long as the longest
//! of them. For few things that have names and lives of their own; for many calls without either there is
//! [`super::Gcra`].

use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{RedisClient, Script};

use super::bounds::{MEMBERS_MAX, TooManyMembers, bounded, ms};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("expiring_set.lua")));

/// A set with at most so many members, each with a life of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiringSet {
    most: u64,
}

/// What became of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiringSetDecision {
    /// It is alive: added now, or before and not run out yet.
    Added {
        /// How many more could be added now.
        remaining: u64,
    },
    /// As many as may be are alive: it was not added.
    Full {
        /// How long until enough of them have left, by server time.
        retry_after: Duration,
    },
}

impl ExpiringSet {
    /// A set of at most `most` members, of which it may have [`MEMBERS_MAX`]. Holds nothing; the members stand under
    /// the key of each call.
    pub const fn new(most: u32) -> Result<Self, TooManyMembers> {
        let most = most as u64;
        if most > MEMBERS_MAX { Err(TooManyMembers { limit: most }) } else { Ok(Self { most }) }
    }

    /// Adds a member to the set of `key` for `ttl`, where there is room. Repeatable: a member that is
    /// alive keeps its time and answers the same.
    ///
    /// # Panics
    ///
    /// For a member without a name.
    pub async fn add(
        &self,
        client: &RedisClient,
        key: &str,
        member: &str,
        ttl: Duration,
    ) -> RedisResult<ExpiringSetDecision> {
        assert!(!member.is_empty(), "a member has a name");
        let call = SCRIPT.call().key(bounded(key)).arg(self.most).arg(ms(ttl)).arg(member);
        let (added, alive, retry_ms): (i64, u64, u64) = call.run(client).await?;
        Ok(match added {
            1 => ExpiringSetDecision::Added { remaining: self.most.saturating_sub(alive) },
            _ => ExpiringSetDecision::Full { retry_after: Duration::from_millis(retry_ms) },
        })
    }

    /// How long until a member with this `ttl` would be added to the set of `key`, by server time; nothing where
    /// there is room now. Adds none.
    pub async fn wait(&self, client: &RedisClient, key: &str, ttl: Duration) -> RedisResult<Duration> {
        let call = SCRIPT.call().key(bounded(key)).arg(self.most).arg(ms(ttl)).arg("");
        let (_, _, retry_ms): (i64, u64, u64) = call.run(client).await?;
        Ok(Duration::from_millis(retry_ms))
    }
}
