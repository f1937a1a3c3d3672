//! The slots of a process: the number of concurrent attempts, and the share of them at destinations that may not
//! answer. Also the followers at one destination: when an attempt has ended, another one takes its place with its slot.
//!
//! A call leases more than may be attempted at once, so that a fast destination is not idle while outcomes are
//! recorded. Each place belongs to an unsettled lease, and the next call grants only as many as the bound allows beside
//! those leases, so there are never more attempts than the bound. Nothing follows an unanswered attempt. Read next:
//! [`super::dispatcher`], which spawns both.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::config::DeliveryConfig;
use super::lease::LEASE_MAX;

/// The slots for attempts of one process, shared by the dispatchers of its partitions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots {
    all: Arc<Semaphore>,
    /// Half of them: the maximum for unhealthy destinations, which failed at the last attempt or were never attempted.
    /// Even if many of those hang, the others have the other half.
    unhealthy: Arc<Semaphore>,
}

/// Free slots for one call of the lease.
#[derive(Debug)]
pub(super) struct FreeSlots {
    all: Vec<OwnedSemaphorePermit>,
    unhealthy: Vec<OwnedSemaphorePermit>,
}

/// The slot of a running attempt. On drop it passes to the follower at the same destination.
#[derive(Debug)]
pub(super) struct AttemptPermit {
    /// `None` if the slot was freed or passed on.
    slot: Option<OwnedSemaphorePermit>,
    /// The permit for an unhealthy destination. A follower needs none, because its destination has answered.
    _unhealthy: Option<OwnedSemaphorePermit>,
    followers: PrefetchQueue,
}

impl Slots {
    /// The number of slots is `delivery.concurrency`.
    pub fn new(config: &DeliveryConfig) -> Self {
        let all = config.concurrency as usize;
        Self { all: Arc::new(Semaphore::new(all)), unhealthy: Arc::new(Semaphore::new(all.div_ceil(2))) }
    }

    /// Takes half of the free slots, at least one if there is any. Other partitions' dispatchers of this process need
    /// some too: an unresponsive server of a cluster must not hold all of them.
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
    /// Number of attempts that may start.
    pub(super) const fn count(&self) -> usize {
        self.all.len()
    }

    /// Number of attempts that may start at unhealthy destinations.
    pub(super) const fn unhealthy(&self) -> usize {
        self.unhealthy.len()
    }

    /// Takes one for an attempt with these followers.
    pub(super) fn take_permit(&mut self, is_healthy: bool, followers: &PrefetchQueue) -> AttemptPermit {
        let unhealthy = if is_healthy { None } else { self.unhealthy.pop() };
        AttemptPermit { slot: self.all.pop(), _unhealthy: unhealthy, followers: followers.clone() }
    }
}

impl AttemptPermit {
    /// Call it if the destination does not answer: none of the followers is attempted in this place.
    pub(super) fn close_followers(self) {
        self.followers.close();
        self.free();
    }

    /// Frees the slot for any attempt.
    pub(super) fn free(mut self) {
        self.slot = None;
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.followers.hand_over(slot);
        }
    }
}

/// Deliveries of any call that wait for earlier attempts at one destination. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct PrefetchQueue {
    followers: Arc<Mutex<VecDeque<oneshot::Sender<AttemptPermit>>>>,
}

impl PrefetchQueue {
    /// Joins the queue. The receiver gets the slot of an ended attempt; an error if nothing may follow.
    pub(super) fn follow(&self) -> oneshot::Receiver<AttemptPermit> {
        let (slot, follows) = oneshot::channel();
        self.followers().push_back(slot);
        follows
    }

    /// Passes the slot of an ended attempt to the next follower, or frees it if there is none.
    fn hand_over(&self, slot: OwnedSemaphorePermit) {
        let mut slot = AttemptPermit { slot: Some(slot), _unhealthy: None, followers: self.clone() };
        loop {
            let Some(next) = self.followers().pop_front() else { return slot.free() };
            match next.send(slot) {
                Ok(()) => return,
                // It has waited for too long and is released.
                Err(refused) => slot = refused,
            }
        }
    }

    /// Whether an attempt or a task still refers to this queue.
    pub(super) fn are_in_use(&self) -> bool {
        Arc::strong_count(&self.followers) > 1
    }

    /// No waiting delivery may follow any more.
    pub(super) fn close(&self) {
        self.followers().clear();
    }

    fn followers(&self) -> MutexGuard<'_, VecDeque<oneshot::Sender<AttemptPermit>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
