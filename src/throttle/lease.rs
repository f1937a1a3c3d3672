//! The wrapper of `lease.lua`: one holder per key among all who ask, for a limited time.
//!
//! Costs one small key, and a call for each renewal: the shorter a lease, the sooner another takes over and the more
//! calls. It saves work that two would do at once. It never proves that nobody else acts: a holder that was paused
//! believes in a lease that ran out. Where that would hurt, compare and set.

use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;

use crate::redis_client::{RedisClient, Script};

use super::bounds::{bounded, ms};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lease.lua")));

/// One holder per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    holder: String,
    ttl: Duration,
}

/// Who holds a lease after [`Lease::acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseDecision {
    /// The caller, from now on for as long as the lease lasts.
    Acquired,
    /// Another.
    HeldByOther {
        /// How long at least until it is free, unless it is renewed; by server time.
        expires_in: Duration,
    },
}

impl Lease {
    /// Leases that last this long, for one holder; no two holders may share a name. Holds nothing yet.
    #[must_use]
    pub fn new(holder: impl Into<String>, ttl: Duration) -> Self {
        Self { holder: holder.into(), ttl }
    }

    /// How long a lease lasts unless it is renewed.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Takes the lease of `key` if it is free, or renews it. Repeatable.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; where that is a broken connection, the lease may be ours.
    pub async fn acquire(&self, client: &RedisClient, key: &str) -> RedisResult<LeaseDecision> {
        self.acquire_from_dead(client, key, "").await
    }

    /// As [`Self::acquire`], and takes the lease also from a holder whose name begins with `dead`, which the caller
    /// knows can't live any more.
    ///
    /// # Errors
    ///
    /// As [`Self::acquire`].
    pub async fn acquire_from_dead(&self, client: &RedisClient, key: &str, dead: &str) -> RedisResult<LeaseDecision> {
        let call = SCRIPT.call().key(bounded(key)).arg("hold").arg(&self.holder).arg(ms(self.ttl)).arg(dead);
        let (answer, left_ms): (String, u64) = call.run(client).await?;
        Ok(if answer == "held" {
            LeaseDecision::Acquired
        } else {
            LeaseDecision::HeldByOther { expires_in: Duration::from_millis(left_ms) }
        })
    }

    /// Lets the lease of `key` go, if it is ours, so that another need not wait for its end. Repeatable.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said; the lease then ends by itself.
    pub async fn release(&self, client: &RedisClient, key: &str) -> RedisResult<()> {
        let _: Vec<String> = SCRIPT.call().key(bounded(key)).arg("release").arg(&self.holder).run(client).await?;
        Ok(())
    }
}
