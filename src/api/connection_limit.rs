//! How many connections there are at once, and which one gives way to a new one: the one that has been idle for
//! longest.
//!
//! Without that, callers who connect and say nothing keep everybody else out until their timeouts. A connection is idle
//! while it waits for a request of its caller, or for the rest of one. Read next: [`super::server`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

#[derive(Debug)]
pub struct ConnectionLimit {
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<IdleConnections>>,
}

/// The idle connections, by how long they have been idle: the first for longest.
#[derive(Debug, Default)]
struct IdleConnections {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
}

/// The right to be a connection, until it is dropped or taken back.
#[derive(Debug)]
pub struct ConnectionPermit {
    idle: Arc<Mutex<IdleConnections>>,
    evicted: CancellationToken,
    /// Its place among the idle ones, while it is one.
    place: Mutex<Option<u64>>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub fn new(connections_max: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(connections_max)), idle: Arc::default() }
    }

    /// A permit, where one is free or an idle connection gives way. `None` where every connection is being answered.
    /// Cancel-safe, but a connection that gave way stays closed.
    pub async fn admit(&self) -> Option<ConnectionPermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(self.permit(permit));
        }
        let (_, evicted) = locked(&self.idle).by_age.pop_first()?;
        evicted.cancel();
        Some(self.next_free().await)
    }

    /// The next permit that comes free. Cancel-safe.
    pub async fn next_free(&self) -> ConnectionPermit {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        self.permit(permit.expect("nobody closes the semaphore"))
    }

    /// Whether a permit is free without anybody's giving way.
    pub fn has_free_permit(&self) -> bool {
        self.permits.available_permits() > 0
    }

    fn permit(&self, permit: OwnedSemaphorePermit) -> ConnectionPermit {
        let (idle, evicted) = (Arc::clone(&self.idle), CancellationToken::new());
        ConnectionPermit { idle, evicted, place: Mutex::new(None), _permit: permit }
    }
}

impl ConnectionPermit {
    /// The connection waits for its caller from now on.
    pub fn set_idle(&self) {
        let (mut place, mut idle) = (locked(&self.place), locked(&self.idle));
        if place.is_none() {
            idle.next += 1;
            let own = idle.next;
            idle.by_age.insert(own, self.evicted.clone());
            *place = Some(own);
        }
    }

    /// A request has come.
    pub fn set_busy(&self) {
        if let Some(place) = locked(&self.place).take() {
            locked(&self.idle).by_age.remove(&place);
        }
    }

    /// Ends when the connection has to give way.
    pub fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.evicted.cancelled()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.set_busy();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
