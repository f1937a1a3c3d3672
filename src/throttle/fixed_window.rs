//! The wrapper of `fixed_window.lua`: n units per window, where a window begins with the first call.
//!
//! Costs one small key. Admits up to 2n across a boundary: n at the end of one window and n at the begin of the next.
//! Where that hurts, take [`super::SlidingWindow`] or [`super::Gcra`].

use std::sync::LazyLock;
use std::time::Duration;

use crate::redis_client::Script;
use crate::types::Rate;

use super::bounds::ms;
use super::decision::rate_calls;
use super::{Admission, RateDecision};

/// The source, for scripts that call it as a function.
pub(crate) const SOURCE: &str = include_str!("fixed_window.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// At most so many units from the first call of a window to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    pub(super) rate: Rate,
}

/// What `fixed_window.lua` answers: admitted, units used, ms left.
pub(crate) type FixedWindowReply = (i64, u64, u64);

rate_calls!(FixedWindow);

impl FixedWindow {
    /// A limiter of this rate. Holds nothing; what it counts stands under the key of each call.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate }
    }

    /// ARGV of the script.
    pub(crate) fn arguments(&self, units: u64) -> [u64; 3] {
        [self.rate.limit().get(), ms(self.rate.window()), units]
    }

    /// What the script's reply to a call for so many units means.
    pub(crate) fn decision(&self, (admitted, used, left_ms): FixedWindowReply, units: u64) -> RateDecision {
        let limit = self.rate.limit();
        let reset = Duration::from_millis(left_ms);
        let admission = match admitted {
            1 => Admission::Admitted,
            _ => Admission::Rejected { retry_after: (units <= limit.get()).then_some(reset) },
        };
        RateDecision { admission, limit, remaining: limit.get().saturating_sub(used), reset }
    }
}
