//! The wrapper of `lease.lua`: one holder per key, for a limited time.
//!
//! Needs one small key, and a call for each renewal: the shorter the lease, the sooner another holder takes over and
//! the more calls. It saves work that two would do at once. It never proves that nobody else acts: a paused holder
//! believes in a lease that has ended. If that would do harm, compare and set.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

use crate::bounds::{ms, stored_key};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lease.lua")));

/// One holder per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    holder: String,
    ttl: Duration,
}

/// The holder of a lease after [`Lease::acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseDecision {
    /// The caller, for the TTL from now.
    Acquired,
    /// Another holder.
    HeldByOther {
        /// Minimum time until the lease is free, by the server's clock. The holder may renew it.
        expires_in: Duration,
    },
}

impl Lease {
    /// Leases of one holder with this TTL. No two holders may share a name.
    #[must_use]
    pub fn new(holder: impl Into<String>, ttl: Duration) -> Self {
        Self { holder: holder.into(), ttl }
    }

    /// Time after which a lease ends unless it is renewed.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Acquires the lease of `key` if it is free, or renews it. Repeatable.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection. After a broken connection the caller may hold the lease.
    pub async fn acquire<C: ConnectionLike>(&self, connection: &mut C, key: &str) -> RedisResult<LeaseDecision> {
        self.acquire_from_dead(connection, key, "").await
    }

    /// As [`Self::acquire`], and also takes the lease from a holder whose name begins with `dead`: the caller knows
    /// that such a holder is dead.
    ///
    /// # Errors
    ///
    /// As [`Self::acquire`].
    pub async fn acquire_from_dead<C: ConnectionLike>(
        &self,
        connection: &mut C,
        key: &str,
        dead: &str,
    ) -> RedisResult<LeaseDecision> {
        let mut call = SCRIPT.key(&*stored_key(key));
        call.arg("hold").arg(&self.holder).arg(ms(self.ttl)).arg(dead);
        let (answer, left_ms): (String, u64) = call.invoke_async(connection).await?;
        Ok(match answer.as_str() {
            "held" => LeaseDecision::Acquired,
            _ => LeaseDecision::HeldByOther { expires_in: Duration::from_millis(left_ms) },
        })
    }

    /// Releases the lease of `key` if the caller holds it, so that another need not wait for its end. Repeatable.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection; the lease then ends by itself.
    pub async fn release<C: ConnectionLike>(&self, connection: &mut C, key: &str) -> RedisResult<()> {
        let mut call = SCRIPT.key(&*stored_key(key));
        let _: Vec<String> = call.arg("release").arg(&self.holder).invoke_async(connection).await?;
        Ok(())
    }
}
