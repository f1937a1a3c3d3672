//! Threshold arithmetic: which counts raise which alerts. Pure.

use crate::types::units::UNITS_MAX;
use crate::types::{Percent, Units, UnixMs};

/// One threshold of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// The smallest count that reaches it: ceil(limit x percent / 100).
    pub units: u64,
    /// The percentage of the limit.
    pub percent: Percent,
}

/// The thresholds of one limit on one day, ascending: what `commit.lua` compares a counter with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// The day's end. Until then a count at or above a threshold decides; afterwards only a crossing does.
    pub day_end: UnixMs,
    /// The thresholds, ascending by units. Never empty.
    pub ascending: Vec<Threshold>,
}

impl Thresholds {
    /// The thresholds of `limit` at these percentages; `None` where no threshold can be reached.
    #[must_use]
    pub fn new(limit: Units, thresholds: &[Percent], day_end: UnixMs) -> Option<Self> {
        let ascending = thresholds_of(limit, thresholds);
        if ascending.is_empty() { None } else { Some(Self { day_end, ascending }) }
    }
}

/// The reachable thresholds of a limit, ascending. A threshold above 2^53 - 1 units is left out: no counter gets there.
#[must_use]
pub fn thresholds_of(limit: Units, thresholds: &[Percent]) -> Vec<Threshold> {
    let mut ascending: Vec<Threshold> = thresholds
        .iter()
        .filter_map(|percent| {
            let units = u64::try_from(percent.threshold_units(limit)).ok().filter(|units| *units <= UNITS_MAX)?;
            Some(Threshold { units, percent: *percent })
        })
        .collect();
    ascending.sort_by_key(|threshold| (threshold.units, threshold.percent));
    ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(n: u16) -> Percent {
        Percent::new(n).expect("in range")
    }

    /// A limit of 1 makes 80 % and 100 % the same count: both alerts are due with the first unit, the lower one first.
    #[test]
    fn thresholds_ascend_also_where_they_coincide() {
        let ascending = thresholds_of(Units::ONE, &[percent(100), percent(80)]);
        assert_eq!(ascending.iter().map(|s| (s.units, s.percent.get())).collect::<Vec<_>>(), [(1, 80), (1, 100)]);
    }

    /// 1000 % of a huge limit lies beyond every counter; passing it to Lua would compare rounded numbers.
    #[test]
    fn a_threshold_beyond_every_counter_is_left_out() {
        let limit = Units::new(UNITS_MAX).expect("in range");
        assert_eq!(thresholds_of(limit, &[percent(1000)]), []);
        assert_eq!(thresholds_of(limit, &[percent(100)]).len(), 1);
    }
}
