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
