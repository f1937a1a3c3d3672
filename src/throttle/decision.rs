//! What a limiter answers.

use std::time::Duration;

use crate::types::Units;

/// Whether a call may proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may; its units are taken.
    Admitted,
    /// It may not; nothing was taken. It would be admitted after this long if nobody else called; `None`: never, since
    /// it asks for more units than the limit.
    Rejected {
        /// By server time.
        retry_after: Option<Duration>,
    },
}

/// The answer of a limiter that counts units in a window. Times are by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDecision {
    /// Whether the call may proceed.
    pub admission: Admission,
    /// Units of a window.
    pub limit: Units,
    /// Units that a call could take now, after this one.
    pub remaining: u64,
    /// How long until the whole limit is free again, if nobody calls.
    pub reset: Duration,
}

impl RateDecision {
    /// Whether the call may proceed.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self.admission, Admission::Admitted)
    }
}

/// How each limiter of a rate is called: by the script of its module, with its arguments, and its reply is a decision.
macro_rules! rate_calls {
    ($limiter:ty) => {
        impl $limiter {
            /// Takes units, if `key` has room for all of them. Not repeatable: a call sent again takes again.
            ///
            /// # Errors
            ///
            /// What Redis or the connection said; where that is a broken connection, the units may have been taken.
            pub async fn take(
                &self,
                client: &$crate::redis_client::RedisClient,
                key: &str,
                units: $crate::types::Units,
            ) -> redis::RedisResult<RateDecision> {
                self.call(client, key, units.get()).await
            }

            /// Asks whether one unit would be admitted now, and takes nothing.
            ///
            /// # Errors
            ///
            /// What Redis or the connection said.
            pub async fn ask(
                &self,
                client: &$crate::redis_client::RedisClient,
                key: &str,
            ) -> redis::RedisResult<RateDecision> {
                self.call(client, key, 0).await
            }

            async fn call(
                &self,
                client: &$crate::redis_client::RedisClient,
                key: &str,
                units: u64,
            ) -> redis::RedisResult<RateDecision> {
                let call = SCRIPT.call().key(super::bounds::bounded(key)).arg(&self.arguments(units)[..]);
                Ok(self.decision(call.run(client).await?, units))
            }
        }
    };
}

pub(super) use rate_calls;
