//! Which alerts a batch may raise, and what they say. Pure. Read next: [`commit`](super::commit), which names them to the script.

use crate::types::{Alert, AlertId, Percent, UnixMs};

use super::batch::Batch;

/// A threshold that a row of a batch reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReachedThreshold {
    /// Position of the row in the batch.
    pub(super) row: usize,
    pub(super) percent: Percent,
}

/// The thresholds that rows will reach if their counters stand where the reader believes. Naming these with the first call saves a
/// second one; the script judges by the counters themselves.
pub(super) fn foreseen(batch: &Batch) -> Vec<ReachedThreshold> {
    let mut foreseen = Vec::new();
    for (at, row) in batch.rows.iter().enumerate() {
        let Some(limit) = row.limit.and_then(|limit| batch.limits.get(limit as usize)) else { continue };
        let reached = row.expected_before..=row.expected_before.saturating_add(row.sum);
        let thresholds = limit
            .thresholds
            .ascending
            .iter()
            .filter(|threshold| threshold.units > *reached.start() && reached.contains(&threshold.units));
        foreseen.extend(thresholds.map(|threshold| ReachedThreshold { row: at, percent: threshold.percent }));
    }
    foreseen
}

/// The alert that a row raises at a threshold; count and time are added by the script.
pub(super) fn alert_of(batch: &Batch, of: ReachedThreshold) -> Option<Alert> {
    let row = batch.rows.get(of.row)?;
    let metric_day = &batch.metric_days[row.metric_day as usize];
    let applied = batch.limits.get(row.limit? as usize)?;
    Some(Alert {
        id: AlertId::of(&row.subject, &metric_day.metric, of.percent, metric_day.day),
        subject: row.subject.clone(),
        metric: metric_day.metric.clone(),
        threshold_percent: of.percent,
        limit: applied.limit,
        plan: applied.plan.to_string(),
        day: metric_day.day,
        timezone: applied.timezone.to_owned(),
        resets_at_ms: applied.thresholds.day_end,
        used: 0,
        raised_at_ms: UnixMs(0),
    })
}
