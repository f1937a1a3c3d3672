//! Wakes deliveries that wait for a contact when their subject's settings change.

use tokio_util::sync::CancellationToken;

use super::error::OutboxError;
use super::new_deliveries::NewDeliveries;
use super::redis_outage::RedisOutage;
use super::wake::{wake_all, wake_subject};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::Subject;
use crate::wire::{Partition, Partitions};

/// Turns changes of subjects into due deliveries. What it misses comes due by itself within a minute.
#[derive(Debug)]
pub struct Waker {
    partitions: Partitions,
    changes: ChangeFeed,
    new_deliveries: NewDeliveries,
}

impl Waker {
    /// A waker that does nothing until it runs.
    #[must_use]
    pub const fn new(partitions: Partitions, changes: ChangeFeed, new_deliveries: NewDeliveries) -> Self {
        Self { partitions, changes, new_deliveries }
    }

    /// Wakes what changes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut outage = RedisOutage::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changes.arrived() => {}
            }
            match self.wake(self.changes.take()).await {
                Ok(()) => outage.worked(),
                Err(error) => {
                    let wait = outage.failed(&error);
                    let _ = tokio::time::timeout(wait, stop.cancelled()).await;
                }
            }
        }
    }

    async fn wake(&self, change: SubjectChanges) -> Result<(), OutboxError> {
        let subjects = match change {
            SubjectChanges::Any => {
                for partition in self.partitions.iter() {
                    let woken = wake_all(&partition.client, &partition.keys).await?;
                    self.woken(partition, woken);
                }
                return Ok(());
            }
            SubjectChanges::Of(subjects) => subjects,
        };
        for subject in subjects.iter().filter_map(|bytes| Subject::parse(bytes).ok()) {
            let partition = self.partitions.of(&subject);
            let woken = wake_subject(&partition.client, &partition.keys, &subject).await?;
            self.woken(partition, woken);
        }
        Ok(())
    }

    fn woken(&self, partition: &Partition, deliveries: u64) {
        if deliveries > 0 {
            self.new_deliveries.of(partition.number()).notify_one();
        }
    }
}
