//! Any of the limiters that count units in a window, chosen by a setting.

use crate::types::Rate;
use crate::wire::script::ScriptFunction;

use super::bounds::TooManyMembers;
use super::{FixedWindow, Gcra, RateDecision, SlidingWindow, fixed_window, gcra, sliding_window};
use crate::types::text_form::text_enum;

text_enum! {
    /// Which limiter judges a rate.
    #[derive(Default)]
    pub enum Algorithm {
        /// [`FixedWindow`]: one small key; up to twice the limit across a boundary.
        #[default]
        Fixed = "fixed",
        /// [`SlidingWindow`]: exact; a member for each call that was admitted, so at most 100,000 units.
        Sliding = "sliding",
        /// [`Gcra`]: one small key, no boundaries.
        Gcra = "gcra",
    }
}

/// A rate with the limiter that judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limiter {
    rate: Rate,
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Fixed(FixedWindow),
    Sliding(SlidingWindow),
    Gcra(Gcra),
}

/// The limiters as functions of another script, under the names that [`Limiter::function`] gives.
pub(crate) const FUNCTIONS: [ScriptFunction; 3] = [
    ScriptFunction { name: "fixed_window", source: fixed_window::SOURCE },
    ScriptFunction { name: "sliding_window", source: sliding_window::SOURCE },
    ScriptFunction { name: "gcra", source: gcra::SOURCE },
];

impl Limiter {
    /// The limiter of this kind for this rate.
    ///
    /// # Errors
    ///
    /// [`TooManyMembers`] for a sliding window that is too large.
    pub fn new(algorithm: Algorithm, rate: Rate) -> Result<Self, TooManyMembers> {
        let by = match algorithm {
            Algorithm::Fixed => By::Fixed(FixedWindow::new(rate)),
            Algorithm::Sliding => By::Sliding(SlidingWindow::new(rate)?),
            Algorithm::Gcra => By::Gcra(Gcra::new(rate)),
        };
        Ok(Self { rate, by })
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Its kind.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self.by {
            By::Fixed(_) => Algorithm::Fixed,
            By::Sliding(_) => Algorithm::Sliding,
            By::Gcra(_) => Algorithm::Gcra,
        }
    }

    /// The function among [`FUNCTIONS`].
    pub(crate) const fn function(&self) -> &'static str {
        match self.by {
            By::Fixed(_) => FUNCTIONS[0].name,
            By::Sliding(_) => FUNCTIONS[1].name,
            By::Gcra(_) => FUNCTIONS[2].name,
        }
    }

    /// ARGV of the function. What is to be taken stands from the third on; zeros there ask and take nothing.
    pub(crate) fn arguments(&self, units: u64) -> Vec<u64> {
        match &self.by {
            By::Fixed(limiter) => limiter.arguments(units).to_vec(),
            By::Sliding(limiter) => limiter.arguments(units).to_vec(),
            By::Gcra(limiter) => limiter.arguments(units).to_vec(),
        }
    }

    /// What the function's reply to a call for so many units means; `None` for one that is not its own.
    pub(crate) fn decision(&self, reply: &[i64], units: u64) -> Option<RateDecision> {
        let whole = |number: i64| u64::try_from(number).ok();
        Some(match (&self.by, reply) {
            (By::Fixed(limiter), &[admitted, used, left_ms]) => {
                limiter.decision((admitted, whole(used)?, whole(left_ms)?), units)
            }
            (By::Sliding(limiter), &[admitted, used, reset_us, retry_us]) => {
                limiter.decision((admitted, whole(used)?, whole(reset_us)?, retry_us), units)
            }
            (By::Gcra(limiter), &[admitted, ahead_us, rest]) => {
                limiter.decision((admitted, whole(ahead_us)?, whole(rest)?), units)
            }
            _ => return None,
        })
    }
}
