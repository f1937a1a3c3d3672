//! The partitions that this daemon should count but can't, until an operator fixes the logged problem. The readiness
//! check of the daemon reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::redis_client::ErrorKind;
use crate::types::PartitionNumber;

/// Shared by the workers of all partitions, which write it, and the readiness check, which reads it.
#[derive(Debug, Clone, Default)]
pub struct CountingStatus(Arc<Mutex<BTreeMap<u32, ErrorKind>>>);

impl CountingStatus {
    /// Records the failure that stopped counting and that waiting does not fix. `None`: this daemon counts, waits for
    /// Redis, or does not have to count.
    pub(super) fn set(&self, partition: PartitionNumber, stopped_by: Option<ErrorKind>) {
        let mut stopped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match stopped_by {
            Some(kind) => stopped.insert(partition.get(), kind),
            None => stopped.remove(&partition.get()),
        };
    }

    /// The lowest partition in which counting has stopped, and the kind of failure.
    pub fn first_stopped(&self) -> Option<(u32, ErrorKind)> {
        let stopped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.first_key_value().map(|(partition, kind)| (*partition, *kind))
    }
}
