//! The wrapper of `sliding_window.lua`: n units in any window, wherever it begins.
//!
//! Exact, and the dearest: a member of a sorted set for each call that was admitted, 35 bytes, above 128 of them 118,
//! until the window has passed.
//! So the limit is at most [`MEMBERS_MAX`]; for more there is [`super::Gcra`].

use std::sync::LazyLock;
use std::time::Duration;

use crate::redis_client::Script;
use crate::types::Rate;

use super::bounds::{MEMBERS_MAX, TooManyMembers, us};
use super::decision::rate_calls;
use super::{Admission, RateDecision};

/// The source, for scripts that call it as a function.
pub(crate) const SOURCE: &str = include_str!("sliding_window.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// At most so many units in any stretch of time as long as the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    pub(super) rate: Rate,
}

/// What `sliding_window.lua` answers: admitted, units used, us until the reset, us until a retry or -1.
pub(crate) type SlidingWindowReply = (i64, u64, u64, i64);

rate_calls!(SlidingWindow);

impl SlidingWindow {
    /// A limiter of this rate. Holds nothing; what it counts stands under the key of each call.
    pub fn new(rate: Rate) -> Result<Self, TooManyMembers> {
        if rate.limit().get() > MEMBERS_MAX {
            return Err(TooManyMembers { limit: rate.limit().get() });
        }
        Ok(Self { rate })
    }

    /// ARGV of the script.
    pub(crate) fn arguments(&self, units: u64) -> [u64; 3] {
        [self.rate.limit().get(), us(self.rate.window()), units]
    }

    /// What the script's reply means, for however many units.
    pub(crate) fn decision(
        &self,
        (admitted, used, reset_us, retry_us): SlidingWindowReply,
        _units: u64,
    ) -> RateDecision {
        let limit = self.rate.limit();
        let admission = match admitted {
            1 => Admission::Admitted,
            _ => Admission::Rejected { retry_after: u64::try_from(retry_us).ok().map(Duration::from_micros) },
        };
        let remaining = limit.get().saturating_sub(used);
        RateDecision { admission, limit, remaining, reset: Duration::from_micros(reset_us) }
    }
}
