//! Notifies the dispatchers of this process of created or woken deliveries, so that they lease them at once.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::types::PartitionNumber;

/// One signal per partition. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NewDeliveries(Arc<[Arc<Notify>]>);

impl NewDeliveries {
    /// Signals for this number of partitions.
    pub fn new(count: u32) -> Self {
        Self(PartitionNumber::all(count).map(|_| Arc::default()).collect())
    }

    /// The signal of one partition.
    pub fn signal_of(&self, partition: PartitionNumber) -> &Arc<Notify> {
        &self.0[partition.get() as usize]
    }
}
