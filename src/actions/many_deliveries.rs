//! Applies an action to many deliveries: those of some ids, or all that pass a filter.

use std::time::{Duration, Instant};

use super::deliveries::act;
use crate::outbox::action::ACTION_MAX;
use crate::outbox::{ActionReply, DeliveryAction, NewDeliveries, Operation, OutboxError};
use crate::redis_client::{Partition, Partitions};
use crate::types::{DeliveryId, DeliveryState};
use crate::views::deliveries::{DeliveryScan, of_ids};
use crate::views::{DeliveryFilter, DeliveryView};

/// What is meant: deliveries that an action accepts.
#[derive(Debug, Clone, Default)]
pub struct DeliverySelection {
    /// Only these; empty for all that pass the filter.
    pub ids: Vec<DeliveryId>,
    pub filter: DeliveryFilter,
}

/// When a run stops.
#[derive(Debug, Clone, Copy)]
pub struct RunBound {
    /// Maximum number of changed deliveries.
    pub changed_max: u64,
    pub time: Duration,
}

/// What became of the deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOutcome {
    /// Number of those to which the action was applied.
    pub done: u64,
    /// Those that were being attempted: not changed.
    pub leased: u64,
    /// Those that had another state by then, or were gone: not changed.
    pub others: u64,
    /// Whether the run stopped at its bound, although more may follow.
    pub is_cut: bool,
}

impl DeliverySelection {
    /// Whether the action is meant for this delivery.
    pub fn takes(&self, action: DeliveryAction, view: &DeliveryView) -> bool {
        self.filter.takes(view) && action.takes().contains(&view.state)
    }
}

/// Applies the action in slices, and returns what became of them, and the failure that ended it early. May be repeated.
pub async fn act_on_many(
    partitions: &Partitions,
    new_deliveries: &NewDeliveries,
    action: DeliveryAction,
    selection: &DeliverySelection,
    bound: RunBound,
) -> (RunOutcome, Option<OutboxError>) {
    let mut run = Run { new_deliveries, action, bound, began: Instant::now(), outcome: RunOutcome::default() };
    let failed = run.all(partitions, selection).await.err();
    (run.outcome, failed)
}

struct Run<'a> {
    new_deliveries: &'a NewDeliveries,
    action: DeliveryAction,
    bound: RunBound,
    began: Instant,
    outcome: RunOutcome,
}

impl Run<'_> {
    async fn all(&mut self, partitions: &Partitions, selection: &DeliverySelection) -> Result<(), OutboxError> {
        if selection.ids.is_empty() {
            for partition in partitions.of_subject_or_all(selection.filter.subject.as_ref()) {
                let mut scan = DeliveryScan::begin(partition, &selection.filter).await.map_err(failed(partition))?;
                while let Some(ids) = scan.next().await.map_err(failed(partition))? {
                    if self.is_cut(&ids) {
                        return Ok(());
                    }
                    self.take(partition, &ids).await?;
                }
            }
            return Ok(());
        }
        self.outcome.others = selection.ids.len() as u64;
        for partition in partitions.iter() {
            let mut chosen = of_ids(partition, &selection.ids).await.map_err(failed(partition))?;
            chosen.retain(|view| selection.takes(self.action, view));
            let ids: Vec<DeliveryId> = chosen.into_iter().map(|view| view.id).collect();
            if self.is_cut(&ids) {
                break;
            }
            self.outcome.others -= ids.len() as u64;
            self.take(partition, &ids).await?;
        }
        Ok(())
    }

    /// Whether the bound is reached while there are more.
    fn is_cut(&mut self, ids: &[DeliveryId]) -> bool {
        let RunBound { changed_max, time } = self.bound;
        self.outcome.is_cut |= !ids.is_empty() && (self.outcome.done >= changed_max || self.began.elapsed() > time);
        self.outcome.is_cut
    }

    async fn take(&mut self, partition: &Partition, ids: &[DeliveryId]) -> Result<(), OutboxError> {
        let left = usize::try_from(self.bound.changed_max - self.outcome.done).unwrap_or(usize::MAX);
        self.outcome.is_cut |= ids.len() > left;
        for ids in ids[..ids.len().min(left)].chunks(ACTION_MAX) {
            for changed in act(partition, self.action, ids).await? {
                match changed.reply {
                    ActionReply::Done => self.outcome.done += 1,
                    ActionReply::Leased => self.outcome.leased += 1,
                    ActionReply::Missing | ActionReply::InState(_) => self.outcome.others += 1,
                }
            }
            if self.action.state_after() == DeliveryState::Pending {
                self.new_deliveries.signal_of(partition.number()).notify_one();
            }
        }
        Ok(())
    }
}

fn failed(partition: &Partition) -> impl FnOnce(redis::RedisError) -> OutboxError {
    OutboxError::redis(Operation::Query, partition.keys.stream())
}
