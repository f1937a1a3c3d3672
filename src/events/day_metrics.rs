//! Limits the number of metrics of a day: a producer that invents a name for each event would create endless counters,
//! and days that are never archived.
//!
//! A metric for which the subject or a level above has a limit is always counted, so that invented names do not
//! displace the metrics that matter.

use std::collections::{BTreeMap, HashSet};

use crate::types::{Day, Metric, RefusalReason};

use super::parse::InvalidEvent;

/// Maximum number of days in memory, unless one load needs more. Events that arrive at one time belong to fewer days.
const DAYS_MAX: usize = 16;

/// The metrics of a partition by day.
#[derive(Debug, Default)]
pub struct DayMetrics {
    /// Maximum number of metrics of a day; `None` means unlimited.
    metrics_max: Option<usize>,
    days: BTreeMap<Day, HashSet<Metric>>,
}

impl DayMetrics {
    /// Holds no day yet. Each day has at most `metrics_max` metrics.
    pub(super) const fn new(metrics_max: usize) -> Self {
        Self { metrics_max: Some(metrics_max), days: BTreeMap::new() }
    }

    /// Whether the metrics of a day are in memory.
    pub(super) fn holds(&self, day: Day) -> bool {
        self.days.contains_key(&day)
    }

    /// Takes the days that one load has read, and drops the oldest other days if there are too many. An entry may need
    /// all days of a load at once, and would wait forever if one of them were dropped.
    pub(super) fn insert(&mut self, days: &[Day], metrics: Vec<Vec<Metric>>) {
        while self.days.len() + days.len() > DAYS_MAX && self.days.pop_first().is_some() {}
        self.days.extend(days.iter().copied().zip(metrics.into_iter().map(HashSet::from_iter)));
    }

    /// Judges a metric with a checked name, and stores it if it is new. Returns `false` if the metrics of the day must
    /// be read first.
    ///
    /// # Errors
    ///
    /// The metric is new, and the day has its maximum number of metrics.
    pub(super) fn admit(
        &mut self,
        day: Day,
        name: &str,
        has_limit: impl FnOnce(&Metric) -> bool,
    ) -> Result<bool, InvalidEvent> {
        let Some(metrics_max) = self.metrics_max else { return Ok(true) };
        let Some(metrics) = self.days.get_mut(&day) else { return Ok(false) };
        if !metrics.contains(name) {
            let metric = Metric::parse(name.as_bytes()).expect("the event's metric was checked");
            if metrics.len() >= metrics_max && !has_limit(&metric) {
                let detail = format!("{day} has {metrics_max} metrics already, as many as stream.metrics_max allows");
                return Err(InvalidEvent::new(RefusalReason::TooManyMetrics, detail));
            }
            metrics.insert(metric);
        }
        Ok(true)
    }
}
