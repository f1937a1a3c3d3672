//! Wakes deliveries that wait for a contact when their subject's settings change.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::error::OutboxError;
use super::new_deliveries::NewDeliveries;
use super::redis_outage::RedisOutage;
use super::wake::{wake_subjects, wake_waiting};
use crate::contacts::resolver::ContactResolver;
use crate::redis_client::{Partition, Partitions};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::Subject;

/// Makes waiting deliveries due when their subject changes. If changes may have been missed, for example at a start, it
/// checks every subject with waiting deliveries.
#[derive(Debug)]
pub struct ContactChangeListener {
    /// Redis.
    pub partitions: Partitions,
    /// Finds the contacts of subjects.
    pub contacts: Arc<ContactResolver>,
    /// The changes of subjects.
    pub changes: ChangeFeed,
    /// Notifies the dispatchers of woken deliveries.
    pub new_deliveries: NewDeliveries,
}

impl ContactChangeListener {
    /// Wakes deliveries of changed subjects until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut outage = RedisOutage::new("wake");
        // Retried, because nothing else would wake these deliveries.
        let mut failed: Option<SubjectChanges> = None;
        while !stop.is_cancelled() {
            let change = match failed.take() {
                Some(change) => change,
                None => tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.changes.arrived() => self.changes.take_changes(),
                },
            };
            match self.wake(&change).await {
                Ok(()) => outage.worked(),
                Err(error) => {
                    outage.failed(&error, &stop).await;
                    failed = Some(change);
                }
            }
        }
    }

    async fn wake(&self, change: &SubjectChanges) -> Result<(), OutboxError> {
        let subjects = match change {
            SubjectChanges::Any => {
                for partition in self.partitions.iter() {
                    let woken = |deliveries| self.woken(partition, deliveries);
                    wake_waiting(&partition.client, &partition.keys, &self.contacts, woken).await?;
                }
                return Ok(());
            }
            SubjectChanges::Of(subjects) => subjects,
        };
        // All changes since the last round are processed together, so an import with many changes needs few rounds.
        let mut changed: Vec<Vec<Subject>> = self.partitions.iter().map(|_| Vec::new()).collect();
        for subject in subjects.iter().filter_map(|bytes| Subject::parse(bytes).ok()) {
            changed[self.partitions.partition_of(&subject).number().get() as usize].push(subject);
        }
        for (partition, subjects) in self.partitions.iter().zip(&changed).filter(|(_, subjects)| !subjects.is_empty()) {
            let woken = wake_subjects(&partition.client, &partition.keys, subjects).await?;
            self.woken(partition, woken);
        }
        Ok(())
    }

    fn woken(&self, partition: &Partition, deliveries: u64) {
        if deliveries > 0 {
            self.new_deliveries.signal_of(partition.number()).notify_one();
        }
    }
}
