//! The slots of a process: how many attempts run at once, and how many of these at destinations that may not answer.
//! And the deliveries that follow at one destination: where an attempt has ended, another one takes its place, with its
//! slot.
//!
//! A call leases more than may be attempted at once: so a destination that answers quickly is not left alone while
//! outcomes are recorded. Each place belongs to a lease that is not settled, and the next call grants only as many as
//! the bound allows beside those leases, so there are never more attempts than the bound. Nothing follows an attempt to
//! which the destination did not answer. Read next: [`super::dispatcher`], which spawns both.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::config::DeliveryConfig;
use super::lease::LEASE_MAX;

/// The slots for attempts of one process, shared by the dispatchers of its partitions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots {
    all: Arc<Semaphore>,
    /// Half of them: the most that destinations may hold whose last attempt failed, or that were never tried. However
    /// many of those hang, the others have the rest.
    unhealthy: Arc<Semaphore>,
}

/// Slots that are free for one call of the lease.
#[derive(Debug)]
pub(super) struct FreeSlots {
    all: Vec<OwnedSemaphorePermit>,
    unhealthy: Vec<OwnedSemaphorePermit>,
}

/// What an attempt holds while it runs. Dropped, it is for the attempt that follows at the same destination.
#[derive(Debug)]
pub(super) struct AttemptPermit {
    permits: Option<SlotPermits>,
    followers: PrefetchQueue,
}

/// A slot, as the semaphores count it.
#[derive(Debug)]
pub(super) struct SlotPermits {
    slot: Option<OwnedSemaphorePermit>,
    unhealthy: Option<OwnedSemaphorePermit>,
}

impl Slots {
    /// As many as `delivery.concurrency` says.
    pub fn new(config: &DeliveryConfig) -> Self {
        let all = config.concurrency as usize;
        Self { all: Arc::new(Semaphore::new(all)), unhealthy: Arc::new(Semaphore::new(all.div_ceil(2))) }
    }

    /// Takes half of the free slots, at least one if there is any. The other partitions' dispatchers of this process
    /// need some too: a server of a cluster that does not answer must not hold all of them.
    pub(super) fn take_free(&self) -> FreeSlots {
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

    /// Takes one for an attempt after which these follow.
    pub(super) fn take_permit(&mut self, is_healthy: bool, followers: &PrefetchQueue) -> AttemptPermit {
        let unhealthy = if is_healthy { None } else { self.unhealthy.pop() };
        AttemptPermit::new(followers.clone(), SlotPermits { slot: self.all.pop(), unhealthy })
    }
}

impl SlotPermits {
    /// What follows is at a destination that has answered.
    fn healthy(self) -> Self {
        drop(self.unhealthy);
        Self { slot: self.slot, unhealthy: None }
    }
}

impl AttemptPermit {
    pub(super) const fn new(followers: PrefetchQueue, permits: SlotPermits) -> Self {
        Self { permits: Some(permits), followers }
    }

    /// The destination does not answer: none of those that wait is attempted, here or in this place.
    pub(super) fn close_followers(self) {
        self.followers.close();
        self.free();
    }

    /// Gives the slot back to all.
    pub(super) fn free(mut self) {
        self.permits = None;
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        if let Some(permits) = self.permits.take() {
            self.followers.hand_over(permits);
        }
    }
}

/// Deliveries that wait for the attempts before them at one destination, whichever call leased them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct PrefetchQueue {
    followers: Arc<Mutex<VecDeque<Follower>>>,
}

#[derive(Debug)]
struct Follower {
    slot: oneshot::Sender<AttemptPermit>,
}

impl PrefetchQueue {
    /// Waits for the slot of an attempt that has ended. An error: nothing is to follow.
    pub(super) fn follow(&self) -> oneshot::Receiver<AttemptPermit> {
        let (slot, follows) = oneshot::channel();
        self.followers().push_back(Follower { slot });
        follows
    }

    /// An attempt has ended: its slot is for the one that follows, and free where none does.
    pub(super) fn hand_over(&self, permits: SlotPermits) {
        let mut slot = AttemptPermit::new(self.clone(), permits.healthy());
        loop {
            let Some(next) = self.followers().pop_front() else { return slot.free() };
            match next.slot.send(slot) {
                Ok(()) => return,
                // It has waited for too long and is given back.
                Err(refused) => slot = refused,
            }
        }
    }

    /// Whether an attempt runs there, at the end of which another may follow.
    pub(super) fn are_in_use(&self) -> bool {
        Arc::strong_count(&self.followers) > 1
    }

    /// None of those that wait follows any more.
    pub(super) fn close(&self) {
        self.followers().clear();
    }

    fn followers(&self) -> MutexGuard<'_, VecDeque<Follower>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
