//! The wrapper of `gcra.lua`: a bucket of n units that drains steadily, the whole of it once a window.
//!
//! One small key whatever the limit, and no doubled burst at a boundary, because there is none: at no moment are more
//! than n units let through at once. Seen over time the rate is that of the limit; a window that begins with an empty
//! bucket lets n units through at once and what drains meanwhile after them.

use std::sync::LazyLock;
use std::time::Duration;

use crate::redis_client::Script;
use crate::types::Rate;

use super::bounds::us;
use super::decision::rate_calls;
use super::{Admission, RateDecision};

/// The source, for scripts that call it as a function.
pub(crate) const SOURCE: &str = include_str!("gcra.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// At most so many units at once, and the same again as the window passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    pub(super) rate: Rate,
}

/// What `gcra.lua` answers: admitted, whole us ahead, parts of 1/limit us.
pub(crate) type GcraReply = (i64, u64, u64);

/// A stretch of time in parts of 1/limit us: exact, and within 128 bits for any rate.
type Parts = u128;

rate_calls!(Gcra);

impl Gcra {
    /// A limiter of this rate. Holds nothing; what it counts stands under the key of each call.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate }
    }

    /// ARGV of the script. More units than the limit cost more than the bucket holds, however many they are.
    pub(crate) fn arguments(&self, units: u64) -> [u64; 4] {
        let limit = self.rate.limit().get();
        let cost = self.cost(units.min(limit + 1));
        let whole = |parts: Parts| u64::try_from(parts).expect("a window and its parts fit into 64 bits");
        let parts = Parts::from(limit);
        [limit, us(self.rate.window()), whole(cost / parts), whole(cost % parts)]
    }

    /// What the script's reply to a call for so many units means.
    pub(crate) fn decision(&self, (admitted, ahead_us, rest): GcraReply, units: u64) -> RateDecision {
        let limit = self.rate.limit();
        let parts = Parts::from(limit.get());
        let full = Parts::from(us(self.rate.window())) * parts;
        let ahead = Parts::from(ahead_us) * parts + Parts::from(rest);
        let free = full.saturating_sub(ahead);
        // A unit costs `window` parts: the window times the limit, by the limit.
        let remaining = u64::try_from(free / self.cost(1)).unwrap_or(u64::MAX).min(limit.get());
        let until =
            |parts_of: Parts| Duration::from_micros(u64::try_from(parts_of.div_ceil(parts)).unwrap_or(u64::MAX));
        // A call for nothing asks for one unit, which only we can weigh: the script does not know what one costs.
        let admitted = if units == 0 { remaining > 0 } else { admitted == 1 };
        let admission = match admitted {
            true => Admission::Admitted,
            _ if units > limit.get() => Admission::Rejected { retry_after: None },
            _ => Admission::Rejected { retry_after: Some(until(self.cost(units.max(1)).saturating_sub(free))) },
        };
        RateDecision { admission, limit, remaining, reset: until(ahead) }
    }

    /// How long so many units take to drain.
    fn cost(&self, units: u64) -> Parts {
        Parts::from(units) * Parts::from(us(self.rate.window()))
    }
}
