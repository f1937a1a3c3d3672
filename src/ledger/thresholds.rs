//! Threshold arithmetic: which counts raise which alerts. Pure.

use crate::types::units::UNITS_MAX;
use crate::types::{Percent, Units, UnixMs};

/// One threshold of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The smallest count that reaches it: ceil(limit x percent / 100).
    pub units: u64,
    /// The threshold.
    pub percent: Percent,
}

/// The thresholds of one limit on one day, ascending: what `commit.lua` compares a counter with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    /// The day's end. Until then a count at or above a step decides; afterwards only a crossing does.
    pub day_end: UnixMs,
    /// The steps, ascending by units. Never empty.
    pub steps: Vec<Step>,
}

impl Ladder {
    /// The ladder of `limit` with these thresholds; `None` where no threshold can be reached.
    #[must_use]
    pub fn new(limit: Units, thresholds: &[Percent], day_end: UnixMs) -> Option<Self> {
        let steps = steps_of(limit, thresholds);
        if steps.is_empty() { None } else { Some(Self { day_end, steps }) }
    }
}

/// The reachable steps of a limit, ascending. A threshold above 2^53 - 1 units is left out: no counter gets there.
#[must_use]
pub fn steps_of(limit: Units, thresholds: &[Percent]) -> Vec<Step> {
    let mut steps: Vec<Step> = thresholds
        .iter()
        .filter_map(|percent| {
            let units = u64::try_from(percent.threshold_units(limit)).ok().filter(|units| *units <= UNITS_MAX)?;
            Some(Step { units, percent: *percent })
        })
        .collect();
    steps.sort_by_key(|step| (step.units, step.percent));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(n: u16) -> Percent {
        Percent::new(n).expect("in range")
    }

    /// A limit of 1 makes 80 % and 100 % the same count: both alerts are due with the first unit, the lower one first.
    #[test]
    fn steps_ascend_also_where_they_coincide() {
        let steps = steps_of(Units::ONE, &[percent(100), percent(80)]);
        assert_eq!(steps.iter().map(|s| (s.units, s.percent.get())).collect::<Vec<_>>(), [(1, 80), (1, 100)]);
    }

    /// 1000 % of a huge limit lies beyond every counter; passing it to Lua would compare rounded numbers.
    #[test]
    fn a_threshold_beyond_every_counter_is_left_out() {
        let limit = Units::new(UNITS_MAX).expect("in range");
        assert_eq!(steps_of(limit, &[percent(1000)]), []);
        assert_eq!(steps_of(limit, &[percent(100)]).len(), 1);
    }
}
