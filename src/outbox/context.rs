//! What every loop and task of a partition's outbox shares.

use std::sync::Arc;

use tokio::sync::Notify;

use super::config::MultiplePolicy;
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
