//! Which alerts a batch may raise, and what they say. Pure. Read next: [`commit`](super::commit), which names them to the script.

use crate::types::{Alert, AlertId, Percent, UnixMs};

use super::batch::Batch;

/// A threshold that a row of a batch reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// Position of the row in the batch.
    pub(super) row: usize,
    pub(super) percent: Percent,
}

/// The thresholds that rows will reach if their counters stand where the reader believes. Naming these with the first call saves a
/// second one; the script judges by the counters themselves.
pub(super) fn foreseen(batch: &Batch) -> Vec<Reached> {
    let mut foreseen = Vec::new();
    for (at, row) in batch.rows.iter().enumerate() {
        let Some(of) = row.ladder.and_then(|ladder| batch.ladders.get(ladder as usize)) else { continue };
        let reached = row.believed..=row.believed.saturating_add(row.sum);
        let steps =
            of.ladder.steps.iter().filter(|step| step.units > *reached.start() && reached.contains(&step.units));
        foreseen.extend(steps.map(|step| Reached { row: at, percent: step.percent }));
    }
    foreseen
}

/// The alert that a row raises at a threshold; count and time are added by the script.
pub(super) fn alert_of(batch: &Batch, of: Reached) -> Option<Alert> {
    let row = batch.rows.get(of.row)?;
    let page = &batch.pages[row.page as usize];
    let ladder = batch.ladders.get(row.ladder? as usize)?;
    Some(Alert {
        id: AlertId::of(&row.subject, &page.metric, of.percent, page.day),
        subject: row.subject.clone(),
        metric: page.metric.clone(),
        threshold_percent: of.percent,
        limit: ladder.limit,
        plan: ladder.plan.to_string(),
        day: page.day,
        timezone: ladder.timezone.to_owned(),
        resets_at_ms: ladder.ladder.day_end,
        used: 0,
        raised_at_ms: UnixMs(0),
    })
}
