//! The slots of a process: how many attempts run at once, and how many of these at destinations that may not answer.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::DeliveryConfig;
use super::lease::LEASE_MAX;

/// The slots for attempts of one process, shared by the dispatchers of its partitions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots {
    all: Arc<Semaphore>,
    /// Half of them: the most that destinations may hold whose last attempt failed, or that were never tried. However many of those
    /// hang, the others have the rest.
    unhealthy: Arc<Semaphore>,
}

/// Slots that are free for one call of the lease.
#[derive(Debug)]
pub(super) struct FreeSlots {
    all: Vec<OwnedSemaphorePermit>,
    unhealthy: Vec<OwnedSemaphorePermit>,
}

/// What an attempt holds while it runs.
#[derive(Debug)]
pub(super) struct HeldSlot {
    _slot: Option<OwnedSemaphorePermit>,
    _unhealthy: Option<OwnedSemaphorePermit>,
}

impl Slots {
    /// As many as `delivery.concurrency` says.
    #[must_use]
    pub fn new(config: &DeliveryConfig) -> Self {
        let all = config.concurrency as usize;
        Self { all: Arc::new(Semaphore::new(all)), unhealthy: Arc::new(Semaphore::new(all.div_ceil(2))) }
    }

    /// Takes half of the free slots, at least one if there is any. The other partitions' dispatchers of this process need some too: a
    /// server of a cluster that does not answer must not hold all of them.
    pub(super) fn take(&self) -> FreeSlots {
        FreeSlots { all: half_of(&self.all), unhealthy: half_of(&self.unhealthy) }
    }

    /// Returns when an attempt could start.
    pub(super) async fn free(&self) {
        drop(self.all.acquire().await);
    }

    /// Returns when an attempt at an unhealthy destination could start.
    pub(super) async fn unhealthy_free(&self) {
        drop(self.unhealthy.acquire().await);
    }
}

fn half_of(semaphore: &Arc<Semaphore>) -> Vec<OwnedSemaphorePermit> {
    let count = semaphore.available_permits().div_ceil(2).min(LEASE_MAX);
    (0..count).map_while(|_| Arc::clone(semaphore).try_acquire_owned().ok()).collect()
}

impl FreeSlots {
    /// How many attempts may start.
    pub(super) const fn count(&self) -> usize {
        self.all.len()
    }

    /// How many of these at unhealthy destinations.
    pub(super) const fn unhealthy(&self) -> usize {
        self.unhealthy.len()
    }

    /// Takes one for an attempt.
    pub(super) fn take(&mut self, is_healthy: bool) -> HeldSlot {
        let unhealthy = if is_healthy { None } else { self.unhealthy.pop() };
        HeldSlot { _slot: self.all.pop(), _unhealthy: unhealthy }
    }
}
