//! The limiters of `quotabell-throttle` that count units in a window: a setting chooses one of them, and `check.lua`
//! calls it as a function.

use quotabell_throttle::{FixedWindow, Gcra, Rate, RateDecision, SlidingWindow, TooManyMembers};

use crate::redis_client::ScriptFunction;
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
pub struct Limiter {
    algorithm: Algorithm,
    rate: Rate,
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
        if algorithm == Algorithm::Sliding {
            SlidingWindow::new(rate)?;
        }
        Ok(Self { algorithm, rate })
    }

    /// Limit and window.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Its algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Name of the Lua function in [`FUNCTIONS`].
    pub const fn function(&self) -> &'static str {
        FUNCTIONS[self.algorithm as usize].name
    }

    /// ARGV of the function. The units to take begin at the third; zeros there ask and take nothing.
    pub fn arguments(&self, units: u64) -> Vec<u64> {
        match self.algorithm {
            Algorithm::Fixed => FixedWindow::new(self.rate).arguments(units).to_vec(),
            Algorithm::Sliding => sliding(self.rate).arguments(units).to_vec(),
            Algorithm::Gcra => Gcra::new(self.rate).arguments(units).to_vec(),
        }
    }

    /// Converts the function's reply to a call for these units; `None` if the reply has another form.
    pub fn decision(&self, reply: &[i64], units: u64) -> Option<RateDecision> {
        match self.algorithm {
            Algorithm::Fixed => FixedWindow::new(self.rate).decision(reply, units),
            Algorithm::Sliding => sliding(self.rate).decision(reply, units),
            Algorithm::Gcra => Gcra::new(self.rate).decision(reply, units),
        }
    }
}

fn sliding(rate: Rate) -> SlidingWindow {
    SlidingWindow::new(rate).expect("`Limiter::new` has checked it")
}
