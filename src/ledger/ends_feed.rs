//! What the commits tell the loop of ends: whose alerts may have ended, and when periods with new alerts end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::MetricPeriod;
use crate::subjects::watch::ChangeFeed;
use crate::types::{Alert, UnixMs};

/// Filled by the commits and by changes of subjects; the loop of ends empties it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct EndsFeed {
    /// Subjects whose settings or counts have changed.
    pub changes: ChangeFeed,
    period_ends: Arc<Mutex<BTreeSet<(UnixMs, MetricPeriod)>>>,
}

impl EndsFeed {
    /// A feed of these subjects.
    pub fn new(changes: ChangeFeed) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Notes when the period of a new alert ends. Nothing has to be read for it.
    pub fn raised(&self, alert: &Alert) {
        let Some(end) = alert.resets_at else { return };
        let of = MetricPeriod { metric: alert.metric.clone(), period: alert.period };
        self.period_ends.lock().unwrap_or_else(PoisonError::into_inner).insert((end.0, of));
    }

    /// Returns the ends of periods that were noted since the last call.
    pub fn take_period_ends(&self) -> BTreeSet<(UnixMs, MetricPeriod)> {
        std::mem::take(&mut self.period_ends.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
