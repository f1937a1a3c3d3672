//! Any of the limiters that count units in a window, chosen by a setting.

use crate::redis_client::script::ScriptFunction;
use crate::types::Rate;

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
    algorithm: Algorithm,
    rate: Rate,
}

/// The limiters as functions of another script.
pub(crate) const FUNCTIONS: [ScriptFunction; 3] =
    [function_of(Algorithm::Fixed), function_of(Algorithm::Sliding), function_of(Algorithm::Gcra)];

const fn function_of(algorithm: Algorithm) -> ScriptFunction {
    match algorithm {
        Algorithm::Fixed => ScriptFunction { name: "fixed_window", source: fixed_window::SOURCE },
        Algorithm::Sliding => ScriptFunction { name: "sliding_window", source: sliding_window::SOURCE },
        Algorithm::Gcra => ScriptFunction { name: "gcra", source: gcra::SOURCE },
    }
}

impl Limiter {
    /// The limiter of this kind for this rate.
    pub fn new(algorithm: Algorithm, rate: Rate) -> Result<Self, TooManyMembers> {
        if algorithm == Algorithm::Sliding {
            SlidingWindow::new(rate)?;
        }
        Ok(Self { algorithm, rate })
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Its kind.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Name of the Lua function in [`FUNCTIONS`].
    pub(crate) const fn function(&self) -> &'static str {
        function_of(self.algorithm).name
    }

    /// ARGV of the function. What is to be taken stands from the third on; zeros there ask and take nothing.
    pub(crate) fn arguments(&self, units: u64) -> Vec<u64> {
        let rate = self.rate;
        match self.algorithm {
            Algorithm::Fixed => FixedWindow { rate }.arguments(units).to_vec(),
            Algorithm::Sliding => SlidingWindow { rate }.arguments(units).to_vec(),
            Algorithm::Gcra => Gcra { rate }.arguments(units).to_vec(),
        }
    }

    /// What the function's reply to a call for so many units means; `None` for one that is not its own.
    pub(crate) fn decision(&self, reply: &[i64], units: u64) -> Option<RateDecision> {
        let rate = self.rate;
        let whole = |number: i64| u64::try_from(number).ok();
        Some(match (self.algorithm, reply) {
            (Algorithm::Fixed, &[admitted, used, left_ms]) => {
                FixedWindow { rate }.decision((admitted, whole(used)?, whole(left_ms)?), units)
            }
            (Algorithm::Sliding, &[admitted, used, reset_us, retry_us]) => {
                SlidingWindow { rate }.decision((admitted, whole(used)?, whole(reset_us)?, retry_us), units)
            }
            (Algorithm::Gcra, &[admitted, ahead_us, rest]) => {
                Gcra { rate }.decision((admitted, whole(ahead_us)?, whole(rest)?), units)
            }
            _ => return None,
        })
    }
}
