//! The metrics of a day, as far as they bound new ones: whoever invents a name for each event would make counters
//! without end, and days that are never archived.
//!
//! A metric that its subject has a limit for is always counted: names that somebody invents must not keep those out
//! that limits are about.

use std::collections::{BTreeMap, HashSet};

use crate::types::{Day, Metric};

/// Maximum number of held days, unless one load has more: events that arrive at one time are of fewer days.
const DAYS_MAX: usize = 16;

/// The metrics of a partition by day.
#[derive(Debug, Default)]
pub struct DayMetrics {
    /// The most metrics of a day; `None`: any number.
    metrics_max: Option<usize>,
    days: BTreeMap<Day, HashSet<Metric>>,
}

/// Whether an event of a metric may be counted on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricAdmission {
    /// It is, or becomes, one of the day's metrics.
    Admitted,
    /// The day has as many as it may have.
    Full {
        /// The setting.
        metrics_max: usize,
    },
    /// The metrics of the day have to be read first.
    NotHeld,
}

impl DayMetrics {
    /// No day is held. A day has at most so many metrics.
    pub(super) const fn new(metrics_max: usize) -> Self {
        Self { metrics_max: Some(metrics_max), days: BTreeMap::new() }
    }

    /// Whether the metrics of a day are held.
    pub(super) fn holds(&self, day: Day) -> bool {
        self.days.contains_key(&day)
    }

    /// Takes the sets of days that one load has read, and releases the oldest of the other days if there are too many.
    /// Entries may need all days of the load at once: without one of them they would wait for ever.
    pub(super) fn insert(&mut self, days: &[Day], metrics: Vec<Vec<Metric>>) {
        while self.days.len() + days.len() > DAYS_MAX && self.days.pop_first().is_some() {}
        self.days.extend(days.iter().copied().zip(metrics.into_iter().map(HashSet::from_iter)));
    }

    /// Judges a metric, and keeps a new one that is admitted.
    /// The name was checked.
    pub(super) fn admit(&mut self, day: Day, name: &str, has_limit: impl FnOnce(&Metric) -> bool) -> MetricAdmission {
        let Some(metrics_max) = self.metrics_max else { return MetricAdmission::Admitted };
        let Some(metrics) = self.days.get_mut(&day) else { return MetricAdmission::NotHeld };
        if !metrics.contains(name) {
            let metric = Metric::parse(name.as_bytes()).expect("the event's metric was checked");
            if metrics.len() >= metrics_max && !has_limit(&metric) {
                return MetricAdmission::Full { metrics_max };
            }
            metrics.insert(metric);
        }
        MetricAdmission::Admitted
    }
}
