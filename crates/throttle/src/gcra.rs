//! The wrapper of `gcra.lua`: a bucket of n units that drains steadily, the whole of it once a window.
//!
//! Needs one small key for any limit and has no boundary: it never admits more than n units at once. A window that
//! begins with an empty bucket admits n units at once, and afterwards as many as have drained.

use std::time::Duration;

use crate::bounds::us;
use crate::decision::rate_limiter;
use crate::{Admission, Rate, RateDecision};

/// Admits at most the limit at once, and the same again as the window passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    rate: Rate,
}

/// A time in parts of 1/limit us: exact, and within 128 bits for any rate.
type Parts = u128;

rate_limiter!(Gcra, include_str!("gcra.lua"));

impl Gcra {
    /// A limiter of this rate. The bucket is in Redis, under the key of each call.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate }
    }

    /// ARGV of the script. Any number of units above the limit costs more than the bucket holds.
    #[must_use]
    pub fn arguments(&self, units: u64) -> [u64; 4] {
        let limit = self.rate.limit();
        let cost = self.cost(units.min(limit + 1));
        let whole = |parts: Parts| u64::try_from(parts).expect("a window and its parts fit into 64 bits");
        [limit, us(self.rate.window()), whole(cost / Parts::from(limit)), whole(cost % Parts::from(limit))]
    }

    /// Converts the script's reply to a call for these units; `None` if the reply has another form.
    #[must_use]
    pub fn decision(&self, reply: &[i64], units: u64) -> Option<RateDecision> {
        let &[admitted, ahead_us, rest] = reply else { return None };
        let limit = self.rate.limit();
        let parts = Parts::from(limit);
        let full = Parts::from(us(self.rate.window())) * parts;
        let ahead = Parts::try_from(ahead_us).ok()? * parts + Parts::try_from(rest).ok()?;
        let free = full.saturating_sub(ahead);
        // A unit costs `window` parts: the window times the limit, by the limit.
        let remaining = u64::try_from(free / self.cost(1)).unwrap_or(u64::MAX).min(limit);
        let until =
            |parts_of: Parts| Duration::from_micros(u64::try_from(parts_of.div_ceil(parts)).unwrap_or(u64::MAX));
        // A call for nothing asks for one unit. The script does not know the cost of one, so it is judged here.
        let admitted = if units == 0 { remaining > 0 } else { admitted == 1 };
        let admission = match admitted {
            true => Admission::Admitted,
            _ if units > limit => Admission::Rejected { retry_after: None },
            _ => Admission::Rejected { retry_after: Some(until(self.cost(units.max(1)).saturating_sub(free))) },
        };
        Some(RateDecision { admission, limit, remaining, reset: until(ahead) })
    }

    /// Time in which these units drain.
    fn cost(&self, units: u64) -> Parts {
        Parts::from(units) * Parts::from(us(self.rate.window()))
    }
}
