//! The loop that leases what is due and spawns one bounded task for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::DeliveryConfig;
use super::consent::ConsentRequests;
use super::delivery_worker::{DeliveryWorker, LeaseClock};
use super::error::{Operation, OutboxError};
use super::lease::{DroppedDelivery, LEASE_MAX, LeaseAnswer, LeaseRequest, LeaseTimes, lease};
use super::notifier::Notifier;
use super::pending_outcomes::PendingOutcomes;
use super::redis_outage::RedisOutage;
use super::{IDLE, LEASE_MARGIN};
use crate::contacts::resolver::ContactResolver;
use crate::types::{DeliveryId, Keys, UnixMs, nonce};
use crate::wire::RedisClient;
use crate::wire::client::RESPONSE_TIMEOUT;

/// Works off the deliveries of one partition.
#[derive(Debug)]
pub struct Dispatcher<N> {
    parts: DispatcherParts<N>,
    /// Tells this dispatcher's leases from those of every other, also of another process.
    nonce: String,
}

/// What a dispatcher needs.
#[derive(Debug)]
pub struct DispatcherParts<N> {
    /// Redis.
    pub client: Arc<RedisClient>,
    /// The partition.
    pub keys: Keys,
    /// Where subjects are reached.
    pub contacts: Arc<ContactResolver>,
    /// What makes the attempts.
    pub notifier: Arc<N>,
    /// What knows about requests for consent.
    pub consents: Arc<dyn ConsentRequests>,
    /// Bounds the attempts at once; shared by the dispatchers of a process, see [`slots`].
    pub slots: Arc<Semaphore>,
    /// Notified when deliveries were made or woken, so that they need not wait for the next look.
    pub new_deliveries: Arc<Notify>,
    /// How much longer a lease lasts than the deadline of its channel; [`LEASE_MARGIN`] in the daemon.
    pub lease_margin: Duration,
}

/// The slots for attempts of one process, to be shared by its dispatchers.
#[must_use]
pub fn slots(config: &DeliveryConfig) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(config.concurrency as usize))
}

impl<N: Notifier> Dispatcher<N> {
    /// A dispatcher that does nothing until it runs.
    #[must_use]
    pub fn new(parts: DispatcherParts<N>) -> Self {
        Self { parts, nonce: nonce() }
    }

    /// Leases and attempts deliveries until `stop`; then finishes the attempts that run and gives back leases that did not start.
    /// How long that may take is the caller's to bound, by dropping the future: what is cut off then comes back when its lease ends.
    ///
    /// Goes on by itself when Redis comes back.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] when going on would mean to guess ([`OutboxError::is_fatal`]): a key of ours holds another type, or Redis
    /// refuses us.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OutboxError> {
        let DispatcherParts { client, keys, contacts, notifier, consents, slots, new_deliveries, lease_margin } =
            self.parts;
        let times = LeaseTimes::of(|channel| notifier.timeout(channel), lease_margin);
        let pending_outcomes = PendingOutcomes::default();
        let notify = Arc::clone(&new_deliveries);
        // Of its own, because a fatal error ends this loop's attempts but not the caller's other parts.
        let stop = stop.child_token();
        let worker = Arc::new(DeliveryWorker {
            client,
            keys,
            contacts,
            notifier,
            consents,
            new_deliveries,
            pending_outcomes,
            stop: stop.clone(),
        });
        let mut dispatch =
            DispatchLoop { worker, slots, times, nonce: self.nonce, calls: 0, attempts: RunningAttempts::default() };
        let mut outage = RedisOutage::new();
        let ended = loop {
            let wait = match dispatch.next(&stop).await {
                Ok(wait) => {
                    outage.worked();
                    wait
                }
                Err(error) if error.is_fatal() => break Err(error),
                Err(error) => {
                    let wait = outage.failed(&error);
                    let _ = tokio::time::timeout(wait, stop.cancelled()).await;
                    Duration::ZERO
                }
            };
            tokio::select! {
                () = stop.cancelled() => break Ok(()),
                () = notify.notified() => {}
                () = dispatch.attempts.one_ended() => {}
                () = tokio::time::sleep(wait) => {}
            }
        };
        // What was leased and has not started sees this and is given back.
        stop.cancel();
        dispatch.attempts.all_ended().await;
        ended
    }
}

/// The state of a running dispatcher.
struct DispatchLoop<N> {
    worker: Arc<DeliveryWorker<N>>,
    slots: Arc<Semaphore>,
    times: LeaseTimes,
    nonce: String,
    calls: u64,
    attempts: RunningAttempts,
}

impl<N: Notifier> DispatchLoop<N> {
    /// Leases as many deliveries as there are free slots and spawns their attempts. Returns how long nothing will be due.
    async fn next(&mut self, stop: &CancellationToken) -> Result<Duration, OutboxError> {
        if self.worker.pending_outcomes.any() {
            let ping = self.worker.client.query::<()>(&redis::cmd("PING")).await;
            ping.map_err(OutboxError::redis(Operation::Lease, self.worker.keys.stream()))?;
            self.worker.pending_outcomes.flush(RESPONSE_TIMEOUT).await;
        }
        let mut slots = tokio::select! {
            () = stop.cancelled() => return Ok(Duration::ZERO),
            slots = free(&self.slots) => slots,
        };
        self.calls += 1;
        let token = format!("{}:{}", self.nonce, self.calls);
        let request = LeaseRequest { deliveries_max: slots.len(), token: &token, times: self.times };
        let called = Instant::now();
        let lease = lease(&self.worker.client, &self.worker.keys, request).await?;
        let answered = Instant::now();
        log_dropped(&lease.dropped);
        let wait = wait_of(&lease);
        for leased in lease.leased {
            let length = self.times.get(leased.channel);
            let clock = LeaseClock { called, length, answered, server_now: lease.now };
            let (worker, slot) = (Arc::clone(&self.worker), slots.pop());
            self.attempts.spawn(leased.id.clone(), async move {
                worker.work(leased, clock).await;
                drop(slot);
            });
        }
        Ok(wait)
    }
}

/// Waits for one free slot and takes half of those that are free beside it. The other partitions' dispatchers of this process need
/// some too: a server of a cluster that does not answer must not hold all of them.
async fn free(slots: &Arc<Semaphore>) -> Vec<OwnedSemaphorePermit> {
    let first = Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed");
    let mut taken = vec![first];
    let taken_max = (1 + slots.available_permits().div_ceil(2)).min(LEASE_MAX);
    while taken.len() < taken_max
        && let Ok(slot) = Arc::clone(slots).try_acquire_owned()
    {
        taken.push(slot);
    }
    taken
}

/// Until the next delivery is due, but at most [`IDLE`].
fn wait_of(lease: &LeaseAnswer) -> Duration {
    let until = |due: UnixMs| Duration::from_millis(u64::try_from(due.0 - lease.now.0).unwrap_or(0));
    lease.next_due.map_or(IDLE, until).min(IDLE)
}

fn log_dropped(dropped: &[DroppedDelivery]) {
    for DroppedDelivery { id, why } in dropped {
        tracing::error!(delivery = %id, why, "a delivery that was due can't be read and left the schedule: its notification may be lost");
    }
}

/// The attempts that run.
#[derive(Debug, Default)]
struct RunningAttempts {
    tasks: JoinSet<()>,
    deliveries: HashMap<Id, DeliveryId>,
}

impl RunningAttempts {
    fn spawn(&mut self, delivery: DeliveryId, attempt: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(attempt).id();
        self.deliveries.insert(id, delivery);
    }

    /// Returns when at least one has ended; never when none runs.
    async fn one_ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.reap(ended),
            None => std::future::pending().await,
        }
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.reap(ended);
        }
    }

    async fn all_ended(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.reap(ended);
        }
    }

    /// A panic is a bug of ours that must not take the others along: its delivery comes back when the lease ends.
    fn reap(&mut self, ended: Result<(Id, ()), JoinError>) {
        match ended {
            Ok((id, ())) => {
                self.deliveries.remove(&id);
            }
            Err(error) => {
                let delivery = self.deliveries.remove(&error.id());
                let delivery = delivery.as_ref().map_or("unknown", DeliveryId::as_str);
                tracing::error!(delivery, error = %error, "attempt panicked; the delivery is attempted again when its lease ends");
            }
        }
    }
}

const _: () =
    assert!(LEASE_MARGIN.as_millis() >= RESPONSE_TIMEOUT.as_millis(), "time to look a contact up before the attempt");
