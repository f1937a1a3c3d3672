//! Threshold arithmetic: which counts raise which alerts. Pure.

use crate::types::units::UNITS_MAX;
use crate::types::{Alert, LimitUnits, RaisedRecord, Threshold, Window};

/// No threshold is left to reach.
pub const NO_THRESHOLD: u64 = u64::MAX;

/// Maximum number of times that a higher limit lets one threshold be raised again in one period. The record of the
/// alert holds them all, about 500 B each. Prepaid units are topped up by higher limits, so longer windows have more.
const fn raised_again_max(window: Window) -> usize {
    match window {
        Window::Hour | Window::Day | Window::Week | Window::Month => 10,
        Window::Quarter | Window::Year => 100,
        Window::Total => 1_000,
    }
}

/// One threshold of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitThreshold {
    /// The smallest count that reaches it.
    pub units: u64,
    /// The threshold.
    pub threshold: Threshold,
}

/// Whether a period has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodState {
    /// The period lasts. The count alone decides, because a limit may have been lowered below it.
    Open,
    /// The period is over. Only a crossing decides.
    Over,
}

/// How a commit changes a counter relative to a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThresholdTransition {
    /// The counter stays below the threshold.
    NotReached,
    /// The counter crosses the threshold.
    Crossed,
    /// The counter had reached the threshold before.
    ReachedBefore,
}

/// The reachable thresholds of a limit, ascending. Omits thresholds above 2^53 - 1 units, which no counter can reach,
/// and those that are never due under this limit: all of them if it is 0.
pub fn thresholds_of(limit: impl Into<LimitUnits>, thresholds: &[Threshold]) -> Vec<LimitThreshold> {
    let limit = limit.into();
    let mut ascending: Vec<LimitThreshold> = thresholds
        .iter()
        .filter_map(|threshold| {
            let units = u64::try_from(threshold.units_of(limit)?).ok().filter(|units| *units <= UNITS_MAX)?;
            Some(LimitThreshold { units, threshold: *threshold })
        })
        .collect();
    ascending.sort_by_key(|of| (of.units, of.threshold));
    ascending
}

impl LimitThreshold {
    /// Whether a commit with this movement raises an alert for the threshold. `before` holds the alerts that were
    /// raised for it in the period.
    ///
    /// The first alert is raised when the threshold is reached; in a past period only by a crossing. A further alert is
    /// raised only by a crossing under a higher limit than at the last one, at most [`raised_again_max`] times.
    pub fn is_raised_by(
        &self,
        transition: ThresholdTransition,
        period: PeriodState,
        before: Option<&RaisedRecord>,
    ) -> bool {
        match (transition, before) {
            (ThresholdTransition::NotReached, _) | (ThresholdTransition::ReachedBefore, Some(_)) => false,
            (ThresholdTransition::ReachedBefore, None) => period == PeriodState::Open,
            (ThresholdTransition::Crossed, None) => true,
            (ThresholdTransition::Crossed, Some(record)) => self.may_follow(&record.alert, record.earlier.len()),
        }
    }

    /// Whether another crossing raises an alert again, after this alert, which had `raised_before` predecessors.
    pub const fn may_follow(&self, alert: &Alert, raised_before: usize) -> bool {
        self.units > alert.threshold_units && raised_before < raised_again_max(alert.window)
    }

    /// Whether a counter of `total` units is below this threshold, and reaching it may raise an alert.
    fn is_ahead(&self, total: u64, before: Option<&RaisedRecord>) -> bool {
        let may_follow = |record: &RaisedRecord| self.may_follow(&record.alert, record.earlier.len());
        self.units > total && before.is_none_or(may_follow)
    }
}

/// The smallest count at which any threshold must be judged, for a counter of `total`; [`NO_THRESHOLD`] if none.
/// `before` returns the raised alerts of a threshold.
pub fn next_threshold<'a>(
    thresholds: &[LimitThreshold],
    total: u64,
    before: impl Fn(Threshold) -> Option<&'a RaisedRecord>,
) -> u64 {
    let ahead = thresholds.iter().filter(|of| of.is_ahead(total, before(of.threshold)));
    ahead.map(|of| of.units).min().unwrap_or(NO_THRESHOLD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{AlertId, Metric, MetricUnit, Period, StreamId, Subject, Units, UnixMs};

    fn read(text: &str) -> Threshold {
        text.parse().expect("legal")
    }

    fn record(units: u64, earlier: usize) -> RaisedRecord {
        let alert = Alert {
            id: AlertId::from_stored("alert_x"),
            subject: Subject::parse(b"alice").expect("legal"),
            metric: Metric::default(),
            window: Window::Day,
            period: Period::parse("2026-11-21").expect("legal"),
            threshold: read("80"),
            threshold_units: units,
            limit: units,
            plan: "free".into(),
            timezone: "UTC".into(),
            resets_at: None,
            used_before: 0,
            used: units,
            first_entry: StreamId::ZERO,
            last_entry: StreamId::ZERO,
            raised_at_ms: UnixMs(0),
            higher_thresholds: Vec::new(),
            largest: Vec::new(),
            traceparent: None,
            status: None,
            unit: MetricUnit::default(),
        };
        (0..earlier).fold(RaisedRecord::after(None, alert.clone()), |record, _| {
            RaisedRecord::after(Some(record), alert.clone())
        })
    }

    /// A limit of 1 gives 80 % and 100 % the same count: the first unit raises both alerts, the lower one first.
    #[test]
    fn thresholds_ascend_also_where_they_coincide() {
        let ascending = thresholds_of(Units::ONE, &["used:1", "100", "80"].map(read));
        let shown: Vec<(u64, String)> = ascending.iter().map(|of| (of.units, of.threshold.to_string())).collect();
        assert_eq!(shown, [(1, "80"), (1, "100"), (1, "used:1")].map(|(units, text)| (units, text.to_owned())));
    }

    /// 1000 % of a huge limit exceeds every counter; using it would compare rounded numbers.
    #[test]
    fn a_threshold_beyond_every_counter_is_left_out() {
        let limit = Units::new(UNITS_MAX).expect("in range");
        assert_eq!(thresholds_of(limit, &[read("1000")]), []);
        assert_eq!(thresholds_of(limit, &[read("100")]).len(), 1);
    }

    /// A count of 0 would reach what shall remain of a smaller limit: every period would begin with an alert.
    #[test]
    fn what_remains_is_due_only_below_the_limit() {
        let due = |limit: u64, text| {
            let limit = Units::new(limit).expect("in range");
            thresholds_of(limit, &[read(text)]).first().map(|of| of.units)
        };
        assert_eq!(
            [999, 1000, 1001, 20_000].map(|limit| due(limit, "remaining:1000")),
            [None, None, Some(1), Some(19_000)]
        );
        assert_eq!([999, 20_000].map(|limit| due(limit, "used:1000")), [Some(1000), Some(1000)]);
    }

    /// A top-up moves what remains, so the customer must hear of it again; the units that it used are the same.
    #[test]
    fn a_higher_limit_arms_what_remains_again_and_not_what_is_used() {
        let again = |text, before| {
            let of = thresholds_of(Units::new(2000).expect("in range"), &[read(text)]);
            of[0].is_raised_by(ThresholdTransition::Crossed, PeriodState::Open, Some(&record(before, 0)))
        };
        assert!(again("remaining:200", 800) && !again("used:800", 800));
    }

    /// I3: while the period lasts the count decides, afterwards a crossing; after the first alert only a higher limit
    /// raises another one.
    #[test]
    fn a_threshold_is_raised_when_it_is_reached_and_again_by_a_higher_limit_only() {
        use PeriodState::{Open, Over};
        use ThresholdTransition::{Crossed, NotReached, ReachedBefore};
        let threshold = LimitThreshold { units: 80, threshold: read("80") };
        let raised = |reach, period, before: Option<&RaisedRecord>| threshold.is_raised_by(reach, period, before);
        assert!(raised(Crossed, Open, None) && raised(Crossed, Over, None));
        assert!(!raised(NotReached, Open, None));
        assert!(raised(ReachedBefore, Open, None), "a limit that was lowered");
        assert!(!raised(ReachedBefore, Over, None));
        assert!(!raised(Crossed, Open, Some(&record(80, 0))), "the same limit");
        assert!(!raised(Crossed, Open, Some(&record(100, 0))), "a lower one");
        assert!(raised(Crossed, Open, Some(&record(40, 0))), "a higher one");
        assert!(!raised(ReachedBefore, Open, Some(&record(40, 0))), "a higher one, but no crossing");
        assert!(raised(Crossed, Open, Some(&record(40, 9))));
        assert!(!raised(Crossed, Open, Some(&record(40, 10))), "too often");
    }

    /// Thresholds between the counter and the next one must not be skipped, and finished ones must not be judged
    /// forever.
    #[test]
    fn the_next_threshold_is_the_smallest_that_may_still_be_raised() {
        let thresholds = thresholds_of(Units::new(100).expect("in range"), &[read("80"), read("100")]);
        assert_eq!([0, 85, 100].map(|total| next_threshold(&thresholds, total, |_| None)), [80, 100, NO_THRESHOLD]);
        let raised = record(80, 0);
        let first = |wanted: Threshold| (wanted == read("80")).then_some(&raised);
        assert_eq!(next_threshold(&thresholds, 79, first), 100);
        assert_eq!(next_threshold(&thresholds, 100, first), NO_THRESHOLD);
    }
}
