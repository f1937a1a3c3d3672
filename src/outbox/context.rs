//! What all loops and tasks of a partition's outbox share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::config::{DeliveryConfig, MultiplePolicy};
use super::consent::ConsentRequests;
use super::slots::Slots;
use crate::contacts::resolver::ContactResolver;
use crate::redis_client::RedisClient;
use crate::types::Keys;

/// The outbox of one partition. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OutboxContext {
    /// Redis.
    pub client: Arc<RedisClient>,
    /// The partition.
    pub keys: Keys,
    /// Finds the contacts of subjects.
    pub contacts: Arc<ContactResolver>,
    /// What to send if a count crosses several thresholds.
    pub on_multiple: MultiplePolicy,
    /// Notified when deliveries were created or woken, so that the dispatcher leases them at once.
    pub new_deliveries: Arc<Notify>,
}

/// The parts of one partition's dispatcher, which its loop and its tasks share. Does nothing until it runs.
#[derive(Debug)]
pub struct DispatcherConfig<N> {
    /// The partition's outbox.
    pub outbox: OutboxContext,
    /// Makes the attempts.
    pub notifier: Arc<N>,
    /// Knows the requests for consent.
    pub consents: Arc<dyn ConsentRequests>,
    /// Bounds the concurrent attempts; shared by the dispatchers of a process.
    pub slots: Slots,
    /// Bounds the attempts at one destination over all processes.
    pub config: DeliveryConfig,
    /// How long a delivery is retried, including its wait behind an open circuit. Time in which nobody sent does not
    /// count.
    pub give_up_after: Duration,
    /// How much longer a lease lasts than the deadline of its channel; [`super::LEASE_MARGIN`] in the daemon.
    pub lease_margin: Duration,
}
