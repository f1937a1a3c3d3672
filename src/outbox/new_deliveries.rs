//! Tells the dispatchers of this process that deliveries were made or woken, so that they need not wait for their next
//! look.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::types::PartitionNumber;

/// One notification for each partition. Cheap to clone.
#[derive(Debug, Clone)]
pub struct NewDeliveries {
    of: Arc<[Arc<Notify>]>,
}

impl NewDeliveries {
    /// For so many partitions.
    pub fn new(count: u32) -> Self {
        Self { of: PartitionNumber::all(count).map(|_| Arc::default()).collect() }
    }

    /// That of one partition.
    pub fn signal_of(&self, partition: PartitionNumber) -> &Arc<Notify> {
        &self.of[partition.get() as usize]
    }
}
