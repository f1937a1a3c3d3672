//! The wrapper of `cooldown.lua`: one call per interval.
//!
//! Costs one small key while it holds. Knows only the last call that came through: where a few in a row are fine, take
//! [`super::Gcra`].

use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{RedisClient, Script};
use crate::types::nonce;

use super::bounds::{bounded, ms};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("cooldown.lua")));

/// One call per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown {
    interval: Duration,
}

/// Whether a call came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CooldownDecision {
    /// It did; the next one does after the interval.
    Started,
    /// Another did, not long enough ago.
    Active {
        /// How long until the next call comes through, by server time.
        retry_after: Duration,
    },
}

impl Cooldown {
    /// A cooldown of this length. Holds nothing; who came through stands under the key of each call.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval }
    }

    /// Lets this call through if none came through under `key` within the interval. Not repeatable: each call is one of
    /// its own.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; where that is a broken connection, the call may have come through.
    pub async fn try_start(&self, client: &RedisClient, key: &str) -> RedisResult<CooldownDecision> {
        let nonce = nonce();
        let call = SCRIPT.call().key(bounded(key)).arg(ms(self.interval)).arg(&nonce);
        let (through, left_ms): (i64, u64) = call.run(client).await?;
        Ok(match through {
            1 => CooldownDecision::Started,
            _ => CooldownDecision::Active { retry_after: Duration::from_millis(left_ms) },
        })
    }
}
