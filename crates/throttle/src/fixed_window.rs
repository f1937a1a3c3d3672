//! The wrapper of `fixed_window.lua`: n units per window; the first call opens the window.
//!
//! Needs one small key. Admits up to 2n across a boundary: n at the end of one window and n at the start of the next.
//! If that is too much, use [`crate::SlidingWindow`] or [`crate::Gcra`].

use std::time::Duration;

use crate::bounds::ms;
use crate::decision::rate_limiter;
use crate::{Admission, Rate, RateDecision};

/// Admits at most the limit from the first call of a window to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    rate: Rate,
}

rate_limiter!(FixedWindow, include_str!("fixed_window.lua"));

impl FixedWindow {
    /// A limiter of this rate. The counts are in Redis, under the key of each call.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate }
    }

    /// ARGV of the script.
    #[must_use]
    pub fn arguments(&self, units: u64) -> [u64; 3] {
        [self.rate.limit(), ms(self.rate.window()), units]
    }

    /// Converts the script's reply to a call for these units; `None` if the reply has another form.
    #[must_use]
    pub fn decision(&self, reply: &[i64], units: u64) -> Option<RateDecision> {
        let &[admitted, used, left_ms] = reply else { return None };
        let limit = self.rate.limit();
        let reset = Duration::from_millis(left_ms.try_into().ok()?);
        let admission = match admitted {
            1 => Admission::Admitted,
            _ => Admission::Rejected { retry_after: (units <= limit).then_some(reset) },
        };
        Some(RateDecision { admission, limit, remaining: limit.saturating_sub(used.try_into().ok()?), reset })
    }
}
