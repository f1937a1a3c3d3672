//! The limiters of `quotabell-throttle` that count units in a window: a setting chooses one of them, and `check.lua`
//! calls it as a function.

use quotabell_throttle::{FixedWindow, Gcra, RateDecision, SlidingWindow, TooManyMembers};

use crate::redis_client::ScriptFunction;
use crate::types::Rate;
use crate::types::text_form::text_enum;

text_enum! {
    /// Which limiter judges a rate.
    #[derive(Default)]
    pub enum Algorithm {
        /// [`FixedWindow`]: one small key; up to twice the limit across a boundary.
        #[default]
        Fixed = "fixed",
        /// [`SlidingWindow`]: exact; a member for each admitted call, so at most 100,000 units.
        Sliding = "sliding",
        /// [`Gcra`]: one small key, no boundaries.
        Gcra = "gcra",
    }
}

/// The limiter of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named like the algorithms")]
pub enum Limiter {
    Fixed(FixedWindow),
    Sliding(SlidingWindow),
    Gcra(Gcra),
}

/// The limiters as functions of another script.
pub const FUNCTIONS: [ScriptFunction; 3] = [
    ScriptFunction { name: "fixed_window", source: FixedWindow::SOURCE },
    ScriptFunction { name: "sliding_window", source: SlidingWindow::SOURCE },
    ScriptFunction { name: "gcra", source: Gcra::SOURCE },
];

impl Limiter {
    /// The limiter of this algorithm for this rate.
    ///
    /// # Errors
    ///
    /// The sliding window cannot hold the limit.
    pub fn new(algorithm: Algorithm, rate: Rate) -> Result<Self, TooManyMembers> {
        Ok(match algorithm {
            Algorithm::Fixed => Self::Fixed(FixedWindow::new(rate.into())),
            Algorithm::Sliding => Self::Sliding(SlidingWindow::new(rate.into())?),
            Algorithm::Gcra => Self::Gcra(Gcra::new(rate.into())),
        })
    }

    /// Limit and window.
    #[must_use]
    pub const fn rate(&self) -> quotabell_throttle::Rate {
        match self {
            Self::Fixed(limiter) => limiter.rate(),
            Self::Sliding(limiter) => limiter.rate(),
            Self::Gcra(limiter) => limiter.rate(),
        }
    }

    /// Its algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Fixed(_) => Algorithm::Fixed,
            Self::Sliding(_) => Algorithm::Sliding,
            Self::Gcra(_) => Algorithm::Gcra,
        }
    }

    /// Name of the Lua function in [`FUNCTIONS`].
    #[must_use]
    pub const fn function(&self) -> &'static str {
        FUNCTIONS[self.algorithm() as usize].name
    }

    /// ARGV of the function. The units to take begin at the third; zeros there ask and take nothing.
    #[must_use]
    pub fn arguments(&self, units: u64) -> Vec<u64> {
        match self {
            Self::Fixed(limiter) => limiter.arguments(units).to_vec(),
            Self::Sliding(limiter) => limiter.arguments(units).to_vec(),
            Self::Gcra(limiter) => limiter.arguments(units).to_vec(),
        }
    }

    /// Converts the function's reply to a call for these units; `None` if the reply has another form.
    #[must_use]
    pub fn decision(&self, reply: &[i64], units: u64) -> Option<RateDecision> {
        match self {
            Self::Fixed(limiter) => limiter.decision(reply, units),
            Self::Sliding(limiter) => limiter.decision(reply, units),
            Self::Gcra(limiter) => limiter.decision(reply, units),
        }
    }
}
