//! The loop that leases due deliveries and spawns one bounded task for each message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::context::DispatcherConfig;
use super::counting_backlog::CountingBacklog;
use super::delivery_log::count_ended;
use super::delivery_worker::DeliveryWorker;
use super::error::{Operation, OutboxError};
use super::lease::{LeaseRequest, LeaseTimes, LeasedDelivery, lease};
use super::leased_message::LeasedMessage;
use super::notifier::Notifier;
use super::pending_outcomes::PendingOutcomes;
use super::redis_outage::RedisOutage;
use super::settle_queue::{Settler, settle_queue};
use super::slots::{FreeSlots, PrefetchQueue};
use super::{IDLE, LEASE_MARGIN};
use crate::redis_client::client::RESPONSE_TIMEOUT;
use crate::types::{Channel, DeliveryId, DeliveryState, Destination, UnixMs, nonce};

impl<N: Notifier> DispatcherConfig<N> {
    /// Leases and attempts deliveries until `stop`; then finishes the running attempts and releases leases that did not
    /// start. The caller bounds that time by dropping the future: interrupted deliveries are attempted again when their
    /// leases end.
    ///
    /// Continues by itself when Redis is available again.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] if continuing would mean guessing ([`OutboxError::is_fatal`]): one of our keys has another type,
    /// or Redis refuses the daemon.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OutboxError> {
        let concurrency = self.config.concurrency as usize;
        let (settle_queue, settler) = settle_queue(self.outbox.clone(), self.config.clone());
        let dispatcher = Dispatcher {
            settler,
            attempts_max: 2 * concurrency,
            followers: Arc::new(Semaphore::new(concurrency / 2)),
            followers_at: HashMap::new(),
            times: LeaseTimes::from_timeouts(|channel| self.notifier.timeout(channel), self.lease_margin),
            nonce: nonce(),
            calls: 0,
            attempts: JoinSet::new(),
            is_paused: false,
            counting: CountingBacklog::default(),
            worker: Arc::new(DeliveryWorker {
                shared: self,
                pending_outcomes: PendingOutcomes::default(),
                settle_queue,
                // A child token, because a fatal error ends this loop's attempts but not the caller's other parts.
                stop: stop.child_token(),
            }),
        };
        dispatcher.run().await
    }
}

/// The state of a running dispatcher.
struct Dispatcher<N> {
    worker: Arc<DeliveryWorker<N>>,
    settler: Settler,
    /// Maximum number of attempts that run or wait until their outcome is recorded. If outcomes can't be recorded,
    /// nothing more is sent, because it would be sent repeatedly.
    attempts_max: usize,
    /// One permit per delivery that may wait for the end of an earlier attempt.
    followers: Arc<Semaphore>,
    /// The waiting deliveries by destination.
    followers_at: HashMap<Destination, PrefetchQueue>,
    times: LeaseTimes,
    /// Distinguishes this dispatcher's leases from all others, including those of other processes.
    nonce: String,
    calls: u64,
    attempts: JoinSet<()>,
    /// Whether the last call found sending paused.
    is_paused: bool,
    counting: CountingBacklog,
}

/// When to lease again; by default at once.
#[derive(Debug, Clone, Copy, Default)]
struct NextLease {
    /// Time until then, unless something happens earlier.
    wait: Duration,
    /// Whether to lease as soon as a slot for unhealthy destinations is free: a delivery for one of them is due, and no
    /// such slot was free.
    unhealthy_waits: bool,
}

/// How long outcomes wait for others that end at about the same time.
const GATHER: Duration = Duration::from_millis(1);

impl<N: Notifier> Dispatcher<N> {
    async fn run(mut self) -> Result<(), OutboxError> {
        let mut outage = RedisOutage::new("dispatch");
        let ended = loop {
            let next = match self.settle_and_lease().await {
                Ok(next) => {
                    outage.worked();
                    next
                }
                Err(error) if error.is_fatal() => break Err(error),
                Err(error) => {
                    outage.failed(&error, &self.worker.stop).await;
                    NextLease::default()
                }
            };
            tokio::select! {
                () = self.worker.stop.cancelled() => break Ok(()),
                () = self.worker.shared.outbox.new_deliveries.notified() => {}
                () = self.settler.filled() => tokio::time::sleep(GATHER).await,
                () = self.worker.shared.slots.unhealthy_free(), if next.unhealthy_waits => {}
                () = tokio::time::sleep(next.wait) => {}
            }
        };
        // Leased deliveries that have not started see this and are released.
        self.worker.stop.cancel();
        tokio::select! {
            () = async { while self.attempts.join_next().await.is_some() {} } => ended,
            () = self.settler.run() => unreachable!("the queue lives as long as the attempts"),
        }
    }

    /// Records finished outcomes, leases as many deliveries as there are free slots, and spawns their attempts. Returns
    /// when to lease again.
    ///
    /// Both calls are sent together in each round: attempts that end meanwhile are recorded in the next round, so that
    /// a call serves many deliveries, and a place that an outcome frees at its destination is used in the same round.
    async fn settle_and_lease(&mut self) -> Result<NextLease, OutboxError> {
        let worker = Arc::clone(&self.worker);
        let DeliveryWorker { shared, pending_outcomes, stop, .. } = &*worker;
        let outbox = &shared.outbox;
        while self.attempts.try_join_next().is_some() {}
        if pending_outcomes.any() {
            let ping = outbox.client.query::<()>(&redis::cmd("PING")).await;
            ping.map_err(OutboxError::redis(Operation::Lease, outbox.keys.stream()))?;
            // Fan-outs must not be cut off: nobody could tell later whether they took effect.
            let mut flushed = std::pin::pin!(pending_outcomes.flush(RESPONSE_TIMEOUT));
            loop {
                tokio::select! {
                    () = &mut flushed => break,
                    () = self.settler.filled() => self.settler.record().await,
                }
            }
        }
        let is_held_up = self.attempts.len() >= self.attempts_max;
        let mut slots = shared.slots.take_free();
        if is_held_up || slots.count() == 0 {
            drop(slots);
            tokio::select! {
                () = stop.cancelled() => {}
                () = shared.slots.free(), if !is_held_up => {}
                Some(_) = self.attempts.join_next(), if is_held_up => {}
                () = self.settler.filled() => self.settler.record().await,
            }
            return Ok(NextLease::default());
        }
        self.calls += 1;
        let token = format!("{}:{}", self.nonce, self.calls);
        let request = LeaseRequest {
            deliveries_max: slots.count(),
            unhealthy_max: slots.unhealthy(),
            per_destination_max: shared.config.per_destination_max,
            followers_max: self.followers.available_permits(),
            token: &token,
            times: self.times,
            give_up_after: shared.give_up_after,
        };
        let began = Instant::now();
        let leasing = lease(&outbox.client, &outbox.keys, request);
        let ((), lease) = tokio::join!(self.settler.record(), leasing);
        let lease = lease?;
        let took = began.elapsed();
        log_dropped(&lease.dropped);
        log_given_up(&lease.given_up);
        self.note_pause(lease.is_paused);
        let until = |next: Option<UnixMs>| next.map_or(IDLE, |next| next.since(lease.now)).min(IDLE);
        let (healthy, unhealthy) = (until(lease.next_healthy), until(lease.next_unhealthy));
        let is_idle = lease.leased.is_empty();
        self.spawn(lease.leased, &mut slots);
        let next = match slots.unhealthy() {
            0 => NextLease { wait: healthy, unhealthy_waits: unhealthy.is_zero() },
            _ => NextLease { wait: healthy.min(unhealthy), unhealthy_waits: false },
        };
        // The other partitions' dispatchers may need the rest.
        drop(slots);
        if !is_idle {
            self.counting.wait_for_counting(outbox, took, stop).await;
        }
        Ok(next)
    }

    /// Spawns the attempts. Followers wait for earlier attempts at their destination.
    fn spawn(&mut self, mut leased: Vec<LeasedDelivery>, slots: &mut FreeSlots) {
        self.followers_at.retain(|_, followers| followers.are_in_use());
        // Followers first, because an attempt may end before the next one is spawned.
        leased.sort_by_key(|leased| !leased.follows);
        for message in LeasedMessage::of_each(&self.worker.shared.outbox.contacts, leased) {
            let leased = &message.leased;
            let (worker, panic_log) = (Arc::clone(&self.worker), PanicLog(leased.id.clone()));
            let followers = self.followers_at.entry(leased.destination.clone()).or_default();
            if leased.follows {
                let waiting = Arc::clone(&self.followers).try_acquire_owned();
                let waiting = waiting.expect("at most followers_max deliveries follow");
                let follows = followers.follow();
                // An attempt is some kilobytes, which spawning would copy several times.
                self.attempts.spawn(Box::pin(async move {
                    let _panic_log = panic_log;
                    worker.work_after(message, (follows, waiting)).await;
                }));
            } else {
                let slot = slots.take_permit(leased.is_healthy, followers);
                self.attempts.spawn(Box::pin(async move {
                    let _panic_log = panic_log;
                    worker.work(message, slot).await;
                }));
            }
        }
    }

    /// Logs once that a pause has begun or ended.
    fn note_pause(&mut self, is_paused: bool) {
        if is_paused == self.is_paused {
            return;
        }
        self.is_paused = is_paused;
        let stream = self.worker.shared.outbox.keys.stream();
        if is_paused {
            tracing::warn!(stream, "sending is paused: nothing leaves until `quotabell deliveries resume`");
        } else {
            tracing::info!(stream, "sending is resumed");
        }
    }
}

fn log_given_up(given_up: &[(DeliveryId, Channel)]) {
    for (id, channel) in given_up {
        count_ended(*channel, DeliveryState::Dead);
        tracing::error!(delivery = %id, channel = channel.as_str(), "delivery is dead: the circuit of its destination stayed open; it can be replayed");
    }
}

fn log_dropped(dropped: &[(DeliveryId, String)]) {
    for (id, why) in dropped {
        tracing::error!(delivery = %id, why, "a delivery that was due can't be read and left the schedule: its notification may be lost");
    }
}

/// Logs the delivery of an attempt that panics. A panic is a bug and must not end other attempts: the delivery is due
/// again when its lease ends.
struct PanicLog(DeliveryId);

impl Drop for PanicLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(delivery = %self.0, "attempt panicked; the delivery is attempted again when its lease ends");
        }
    }
}

const _: () =
    assert!(LEASE_MARGIN.as_millis() >= RESPONSE_TIMEOUT.as_millis(), "time to look a contact up before the attempt");
