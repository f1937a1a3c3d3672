//! The wrapper of `expiring_set.lua`: holds at most n members; each expires by itself.
//!
//! Needs a member of a sorted set for each that is alive, its name included. The key lives as long as the longest of
//! them. Use it for few members with names and TTLs of their own, and [`crate::Gcra`] for many calls without either.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

use crate::bounds::{MEMBERS_MAX, TooManyMembers, ms, stored_key};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("expiring_set.lua")));

/// A set with a maximum number of members, each with its own TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiringSet {
    members_max: u64,
}

/// Whether a member was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiringSetDecision {
    /// The member is alive: added now, or added before and not expired.
    Added {
        /// Number of members that could be added now.
        remaining: u64,
    },
    /// The set is full: the member was not added.
    Full {
        /// Time until enough members have expired, by the server's clock.
        retry_after: Duration,
    },
}

impl ExpiringSet {
    /// A set of at most `members_max` members. They are in Redis, under the key of each call.
    ///
    /// # Errors
    ///
    /// More than [`MEMBERS_MAX`].
    pub const fn new(members_max: u32) -> Result<Self, TooManyMembers> {
        let members_max = members_max as u64;
        if members_max > MEMBERS_MAX { Err(TooManyMembers { limit: members_max }) } else { Ok(Self { members_max }) }
    }

    /// Adds a member to the set of `key` for `ttl`, if there is room. Repeatable: a member that is alive keeps its TTL,
    /// and the reply is the same.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    ///
    /// # Panics
    ///
    /// If the member has no name.
    pub async fn add<C: ConnectionLike>(
        &self,
        connection: &mut C,
        key: &str,
        member: &str,
        ttl: Duration,
    ) -> RedisResult<ExpiringSetDecision> {
        assert!(!member.is_empty(), "a member has a name");
        let (added, alive, retry_ms) = self.call(connection, key, member, ttl).await?;
        Ok(match added {
            1 => ExpiringSetDecision::Added { remaining: self.members_max.saturating_sub(alive) },
            _ => ExpiringSetDecision::Full { retry_after: Duration::from_millis(retry_ms) },
        })
    }

    /// Time until a member with this `ttl` would be added to the set of `key`, by the server's clock; zero if there is
    /// room now. Adds none.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn wait<C: ConnectionLike>(&self, connection: &mut C, key: &str, ttl: Duration) -> RedisResult<Duration> {
        let (_, _, retry_ms) = self.call(connection, key, "", ttl).await?;
        Ok(Duration::from_millis(retry_ms))
    }

    async fn call<C: ConnectionLike>(
        &self,
        connection: &mut C,
        key: &str,
        member: &str,
        ttl: Duration,
    ) -> RedisResult<(i64, u64, u64)> {
        let mut call = SCRIPT.key(&*stored_key(key));
        call.arg(self.members_max).arg(ms(ttl)).arg(member).invoke_async(connection).await
    }
}
