//! Totals and remaining work, for `/metrics`: the wrapper of `totals.lua`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use crate::redis_client::{RedisClient, Script};
use crate::types::{Keys, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("totals.lua")));

/// Destinations with pending deliveries, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DestinationCounts {
    /// Destinations whose last attempt was answered.
    pub healthy: u64,
    /// Destinations whose last attempt failed, or that were never attempted, with a closed circuit.
    pub unhealthy: u64,
    /// Destinations with an open circuit.
    pub open: u64,
}

/// Totals of all daemons of a partition, and the remaining work, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Server time.
    pub now: UnixMs,
    /// Events counted.
    pub counted: u64,
    /// Events refused.
    pub refused: u64,
    /// Events whose id was counted before.
    pub duplicates: u64,
    /// Alerts raised.
    pub raised: u64,
    /// Created deliveries: always the sum of the next five and [`Totals::pending`].
    pub made: u64,
    /// Deliveries that ended delivered.
    pub delivered: u64,
    /// Deliveries that ended dead and were not replayed.
    pub dead: u64,
    /// Deliveries that ended muted.
    pub muted: u64,
    /// Deliveries that ended expired.
    pub expired: u64,
    /// Deliveries that ended cancelled.
    pub cancelled: u64,
    /// Pending deliveries.
    pub pending: u64,
    /// Pending deliveries that wait for a contact.
    pub waiting: u64,
    /// Dead deliveries that can still be replayed.
    pub dead_kept: u64,
    /// Alerts that are not fanned out yet.
    pub outbox: u64,
    /// When the oldest pending delivery was created.
    pub oldest_pending: Option<UnixMs>,
    /// Destinations with pending deliveries.
    pub destinations: DestinationCounts,
    /// Whether sending is paused.
    pub is_paused: bool,
    /// Duration of all ended pauses, milliseconds.
    pub paused_ms: u64,
}

impl Totals {
    /// Adds the totals of another partition.
    pub fn add(&mut self, other: &Self) {
        self.now = self.now.max(other.now);
        self.counted += other.counted;
        self.refused += other.refused;
        self.duplicates += other.duplicates;
        self.raised += other.raised;
        self.made += other.made;
        self.delivered += other.delivered;
        self.dead += other.dead;
        self.muted += other.muted;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.pending += other.pending;
        self.waiting += other.waiting;
        self.dead_kept += other.dead_kept;
        self.outbox += other.outbox;
        self.destinations.healthy += other.destinations.healthy;
        self.destinations.unhealthy += other.destinations.unhealthy;
        self.destinations.open += other.destinations.open;
        self.is_paused |= other.is_paused;
        // A pause covers all partitions.
        self.paused_ms = self.paused_ms.max(other.paused_ms);
        self.oldest_pending = [self.oldest_pending, other.oldest_pending].into_iter().flatten().min();
    }
}

impl Totals {
    /// The stored counts by name.
    pub const fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("counted", self.counted),
            ("refused", self.refused),
            ("duplicates", self.duplicates),
            ("raised", self.raised),
            ("made", self.made),
            ("delivered", self.delivered),
            ("dead", self.dead),
            ("muted", self.muted),
            ("expired", self.expired),
            ("cancelled", self.cancelled),
            ("paused_ms", self.paused_ms),
        ]
    }
}

/// The script's reply, in its order.
type Reply = (i64, u64, u64, u64, u64, Option<i64>, HashMap<String, i64>, u64, u64, u64, u8);

/// Reads the totals of a partition, all at one moment. Also works on a full server.
pub async fn totals(client: &RedisClient, keys: &Keys) -> Result<Totals, OutboxError> {
    let call = SCRIPT.call().key(keys.totals()).key(keys.pending()).key(keys.waiting()).key(keys.dead());
    let call = call.key(keys.outbox()).key(keys.destinations()).key(keys.destinations_unhealthy());
    let reply = call.key(keys.circuits()).key(keys.paused()).run::<Reply>(client).await;
    let (now, pending, waiting, dead_kept, outbox, oldest, counts, healthy, unhealthy, open, paused) =
        reply.map_err(OutboxError::redis(Operation::Query, format!("totals of {}", keys.stream())))?;
    let count = |name| counts.get(name).copied().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    Ok(Totals {
        now: UnixMs(now),
        counted: count("counted"),
        refused: count("refused"),
        duplicates: count("duplicates"),
        raised: count("raised"),
        made: count("made"),
        delivered: count("delivered"),
        dead: count("dead"),
        muted: count("muted"),
        expired: count("expired"),
        cancelled: count("cancelled"),
        pending,
        waiting,
        dead_kept,
        outbox,
        oldest_pending: oldest.map(UnixMs),
        destinations: DestinationCounts { healthy, unhealthy, open },
        is_paused: paused == 1,
        paused_ms: count("paused_ms"),
    })
}
