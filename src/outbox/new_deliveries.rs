//! Notifies the dispatchers of this process of created or woken deliveries, so that these need not wait for the next
//! look.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::types::PartitionNumber;

/// One signal per partition. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NewDeliveries {
    of: Arc<[Arc<Notify>]>,
}

impl NewDeliveries {
    /// Signals for this number of partitions.
    pub fn new(count: u32) -> Self {
        Self { of: PartitionNumber::all(count).map(|_| Arc::default()).collect() }
    }

    /// The signal of one partition.
    pub fn signal_of(&self, partition: PartitionNumber) -> &Arc<Notify> {
        &self.of[partition.get() as usize]
    }
}
