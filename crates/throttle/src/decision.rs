//! The decision of a limiter that counts units in a window.

use std::time::Duration;

/// Whether a call may proceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The call may proceed; its units are taken.
    Admitted,
    /// The call may not proceed; nothing was taken.
    Rejected {
        /// After this time, by the server's clock, the call is admitted if nobody else calls. `None`: never, because it
        /// asks for more units than the limit.
        retry_after: Option<Duration>,
    },
}

/// The reply of a limiter that counts units in a window. Times are by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDecision {
    /// Whether the call may proceed.
    pub admission: Admission,
    /// Units of a window.
    pub limit: u64,
    /// Units that a call could take now, after this one.
    pub remaining: u64,
    /// Time until the whole limit is free again, if nobody calls.
    pub reset: Duration,
}

impl RateDecision {
    /// Whether the call may proceed.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self.admission, Admission::Admitted)
    }
}

/// The methods that all limiters of a rate have. Each has a script in its module and says what the reply means.
macro_rules! rate_limiter {
    ($limiter:ty, $source:expr) => {
        static SCRIPT: std::sync::LazyLock<redis::Script> =
            std::sync::LazyLock::new(|| redis::Script::new(<$limiter>::SOURCE));

        impl $limiter {
            /// The script, for a script of yours that runs it as a function of KEYS and ARGV.
            pub const SOURCE: &str = $source;

            /// The rate.
            #[must_use]
            pub const fn rate(&self) -> $crate::Rate {
                self.rate
            }

            /// Takes units, if `key` has room for all of them. Not repeatable: a repeated call takes again. A call for
            /// 0 units is [`Self::ask`].
            ///
            /// # Errors
            ///
            /// The error of Redis or of the connection. After a broken connection the units may have been taken.
            pub async fn take<C: redis::aio::ConnectionLike>(
                &self,
                connection: &mut C,
                key: &str,
                units: u64,
            ) -> redis::RedisResult<$crate::RateDecision> {
                let mut call = SCRIPT.key(&*$crate::stored_key(key));
                let reply: Vec<i64> = call.arg(&self.arguments(units)[..]).invoke_async(connection).await?;
                self.decision(&reply, units).ok_or_else(|| {
                    (redis::ErrorKind::UnexpectedReturnType, "a limiter gave an unexpected reply").into()
                })
            }

            /// Asks whether one unit would be admitted now, and takes nothing.
            ///
            /// # Errors
            ///
            /// The error of Redis or of the connection.
            pub async fn ask<C: redis::aio::ConnectionLike>(
                &self,
                connection: &mut C,
                key: &str,
            ) -> redis::RedisResult<$crate::RateDecision> {
                self.take(connection, key, 0).await
            }
        }
    };
}

pub(crate) use rate_limiter;
