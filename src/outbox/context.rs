//! What every loop and task of a partition's outbox shares.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::config::{DeliveryConfig, MultiplePolicy};
use super::consent::ConsentRequests;
use super::slots::Slots;
use crate::contacts::resolver::ContactResolver;
use crate::redis_client::RedisClient;
use crate::types::Keys;

/// The outbox of one partition, as whoever works on it needs it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OutboxContext {
    /// Redis.
    pub client: Arc<RedisClient>,
    /// The partition.
    pub keys: Keys,
    /// Where subjects are reached.
    pub contacts: Arc<ContactResolver>,
    /// What is told where a count jumps over several thresholds.
    pub on_multiple: MultiplePolicy,
    /// Notified when deliveries were made or woken, so that they need not wait for the next look.
    pub new_deliveries: Arc<Notify>,
}

/// What the loop and the tasks of one partition's deliveries share. Does nothing until it runs.
#[derive(Debug)]
pub struct DispatcherConfig<N> {
    /// The partition's outbox.
    pub outbox: OutboxContext,
    /// What makes the attempts.
    pub notifier: Arc<N>,
    /// What knows about requests for consent.
    pub consents: Arc<dyn ConsentRequests>,
    /// Bounds the attempts at once; shared by the dispatchers of a process.
    pub slots: Slots,
    /// What bounds the attempts at one destination, over all processes.
    pub config: DeliveryConfig,
    /// How long a delivery is tried; behind an open circuit too, without the time in which nobody sent.
    pub give_up_after: Duration,
    /// How much longer a lease lasts than the deadline of its channel; [`super::LEASE_MARGIN`] in the daemon.
    pub lease_margin: Duration,
}
