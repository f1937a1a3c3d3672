//! What the commits tell the loop of ends: whose alerts may have ended, when periods with new alerts end, and at which
//! thresholds there are alerts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::MetricPeriod;
use crate::subjects::watch::ChangeFeed;
use crate::types::{Alert, Threshold, UnixMs};

/// Maximum number of thresholds: as many as a subject may have. Alerts at others are looked at in searches.
const THRESHOLDS_MAX: usize = 100;

/// Filled by the commits and by changes of subjects; the loop of ends empties it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct EndsFeed {
    /// Subjects whose settings or counts have changed.
    pub changes: ChangeFeed,
    raised: Arc<Mutex<RaisedAlerts>>,
}

#[derive(Debug, Default)]
struct RaisedAlerts {
    period_ends: BTreeSet<(UnixMs, MetricPeriod)>,
    thresholds: BTreeSet<Threshold>,
}

impl EndsFeed {
    /// A feed of these subjects.
    pub fn new(changes: ChangeFeed) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Notes the threshold of a new alert, and when its period ends. Nothing has to be read for it.
    pub fn raised(&self, alert: &Alert) {
        self.add_thresholds([alert.threshold]);
        let Some(end) = alert.resets_at else { return };
        let of = MetricPeriod { metric: alert.metric.clone(), period: alert.period };
        self.lock().period_ends.insert((end.0, of));
    }

    /// Adds thresholds of alerts that were found.
    pub fn add_thresholds(&self, found: impl IntoIterator<Item = Threshold>) {
        let thresholds = &mut self.lock().thresholds;
        thresholds.extend(found);
        while thresholds.len() > THRESHOLDS_MAX {
            thresholds.pop_last();
        }
    }

    /// The thresholds at which there are alerts, also those that are in no plan any more.
    pub fn thresholds(&self) -> BTreeSet<Threshold> {
        self.lock().thresholds.clone()
    }

    /// Returns the ends of periods that were noted since the last call.
    pub fn take_period_ends(&self) -> BTreeSet<(UnixMs, MetricPeriod)> {
        std::mem::take(&mut self.lock().period_ends)
    }

    fn lock(&self) -> MutexGuard<'_, RaisedAlerts> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
