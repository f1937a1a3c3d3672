//! The wrapper of `sliding_window.lua`: n units in any window, wherever it begins.
//!
//! Exact, and needs the most memory: a member of a sorted set for each admitted call until the window has passed, 35
//! bytes, above 128 of them 118. Therefore the limit is at most [`MEMBERS_MAX`]; [`crate::Gcra`] has no such bound.

use std::time::Duration;

use crate::bounds::{MEMBERS_MAX, TooManyMembers, us};
use crate::decision::rate_limiter;
use crate::{Admission, Rate, RateDecision};

/// Admits at most the limit in any stretch of time as long as the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    rate: Rate,
}

rate_limiter!(SlidingWindow, include_str!("sliding_window.lua"));

impl SlidingWindow {
    /// A limiter of this rate. The calls are in Redis, under the key of each call.
    ///
    /// # Errors
    ///
    /// The limit is above [`MEMBERS_MAX`].
    pub const fn new(rate: Rate) -> Result<Self, TooManyMembers> {
        if rate.limit() > MEMBERS_MAX { Err(TooManyMembers { limit: rate.limit() }) } else { Ok(Self { rate }) }
    }

    /// ARGV of the script.
    #[must_use]
    pub fn arguments(&self, units: u64) -> [u64; 3] {
        [self.rate.limit(), us(self.rate.window()), units]
    }

    /// Converts the script's reply; `None` if the reply has another form.
    #[must_use]
    pub fn decision(&self, reply: &[i64], _units: u64) -> Option<RateDecision> {
        let &[admitted, used, reset_us, retry_us] = reply else { return None };
        let limit = self.rate.limit();
        let admission = match admitted {
            1 => Admission::Admitted,
            // -1: never.
            _ => Admission::Rejected { retry_after: u64::try_from(retry_us).ok().map(Duration::from_micros) },
        };
        let remaining = limit.saturating_sub(used.try_into().ok()?);
        Some(RateDecision { admission, limit, remaining, reset: Duration::from_micros(reset_us.try_into().ok()?) })
    }
}
