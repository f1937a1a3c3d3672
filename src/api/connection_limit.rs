//! How many connections there are at once, and which of them are closed: the longest idle one for a new one, and every
//! one that has been idle for too long.
//!
//! Without the first, callers who connect and send nothing keep everybody else out until their timeout. A connection is
//! idle while it waits for its caller: for a request, for the rest of a head or of a body, or for an answer to be read.
//! Read next: [`super::server`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

#[derive(Debug)]
pub struct ConnectionLimit {
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<IdleConnections>>,
}

/// The idle connections by the time since which they are idle, with a number that tells equal times apart.
type IdleConnections = BTreeMap<(Instant, u64), IdleConnection>;

#[derive(Debug)]
struct IdleConnection {
    evicted: CancellationToken,
    waits_for: WaitsFor,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// A request, or that an answer is read: for a limited time.
    RequestOrReading,
    /// The rest of a body, which has a timeout of its own.
    Body,
}

/// The right to be a connection, until it is dropped or taken back.
#[derive(Debug)]
pub struct ConnectionPermit {
    idle: Arc<Mutex<IdleConnections>>,
    evicted: CancellationToken,
    /// Its place among the idle ones, while it is one.
    place: Mutex<Option<(Instant, u64)>>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub fn new(connections_max: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(connections_max)), idle: Arc::default() }
    }

    /// A permit, if one is free or an idle connection can be closed. `None` if every connection is being answered.
    /// Cancel-safe, but a connection that gave way stays closed.
    pub async fn admit(&self) -> Option<ConnectionPermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(self.permit(permit));
        }
        let (_, longest) = locked(&self.idle).pop_first()?;
        longest.evicted.cancel();
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
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (idle, number) = (Arc::clone(&self.idle), NUMBER.fetch_add(1, Ordering::Relaxed));
        ConnectionPermit { idle, evicted: CancellationToken::new(), place: Mutex::new(None), number, _permit: permit }
    }

    /// Closes every connection that has been idle for this time.
    pub fn close_idle(&self, idle_max: Duration) {
        locked(&self.idle).retain(|(since, _), IdleConnection { evicted, waits_for }| {
            let is_over = *waits_for == WaitsFor::RequestOrReading && since.elapsed() >= idle_max;
            if is_over {
                evicted.cancel();
            }
            !is_over
        });
    }
}

impl ConnectionPermit {
    /// The connection waits for its caller from now on: for a request, or to read an answer.
    pub fn set_idle(&self) {
        self.wait(WaitsFor::RequestOrReading);
    }

    /// It waits for the rest of a body.
    pub fn set_waiting_for_body(&self) {
        if locked(&self.place).is_none() {
            self.wait(WaitsFor::Body);
        }
    }

    fn wait(&self, waits_for: WaitsFor) {
        let own = (Instant::now(), self.number);
        self.set_busy();
        *locked(&self.place) = Some(own);
        locked(&self.idle).insert(own, IdleConnection { evicted: self.evicted.clone(), waits_for });
    }

    /// A request has come, or a part of its body. Returns whether it may be served: if not, the connection is giving
    /// way to another one.
    pub fn set_busy(&self) -> bool {
        let place = locked(&self.place).take();
        place.is_none_or(|place| locked(&self.idle).remove(&place).is_some())
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
