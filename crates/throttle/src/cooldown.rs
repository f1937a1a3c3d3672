//! The wrapper of `cooldown.lua`: one call per interval.
//!
//! Needs one small key while it lasts. If a few calls in a row are fine, use [`crate::Gcra`].

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

use crate::bounds::{ms, stored_key};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("cooldown.lua")));

/// One call per interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown {
    interval: Duration,
}

/// Whether a call was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CooldownDecision {
    /// The call was admitted; the next one is admitted after the interval.
    Started,
    /// Another call was admitted less than an interval ago.
    Active {
        /// Time until the next call is admitted, by the server's clock.
        retry_after: Duration,
    },
}

impl Cooldown {
    /// A cooldown of this length. Its state is in Redis, under the key of each call.
    #[must_use]
    pub const fn new(interval: Duration) -> Self {
        Self { interval }
    }

    /// Admits this call if none was admitted under `key` within the interval. Not repeatable: each call is a new one.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection. After a broken connection the call may have been admitted.
    pub async fn try_start<C: ConnectionLike>(&self, connection: &mut C, key: &str) -> RedisResult<CooldownDecision> {
        // A connection that sends the call twice must not be refused by its own first call.
        let nonce = format!("{:032x}", rand::random::<u128>());
        let mut call = SCRIPT.key(&*stored_key(key));
        let (admitted, left_ms): (i64, u64) = call.arg(ms(self.interval)).arg(nonce).invoke_async(connection).await?;
        Ok(match admitted {
            1 => CooldownDecision::Started,
            _ => CooldownDecision::Active { retry_after: Duration::from_millis(left_ms) },
        })
    }
}
