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

/// Declares [`Totals`] with the counts that a hash stores by their names.
macro_rules! totals {
    ($($(#[$doc:meta])* $count:ident),*) => {
        /// Totals of all daemons of a partition, and the remaining work, at one moment.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $count: u64,)*
            /// Server time.
            pub now: UnixMs,
            /// Deliveries that are pending.
            pub pending: u64,
            /// Pending deliveries that wait for a contact.
            pub waiting: u64,
            /// Dead deliveries that can still be replayed.
            pub dead_kept: u64,
            /// Alerts that are not fanned out yet.
            pub outbox: u64,
            /// When the oldest pending delivery was made.
            pub oldest_pending: Option<UnixMs>,
            /// Destinations with pending deliveries.
            pub destinations: DestinationCounts,
            /// Whether sending is paused.
            pub is_paused: bool,
        }

        impl Totals {
            /// The counts that are stored, by their names.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($count), self.$count)),*].into_iter()
            }

            fn add_counts(&mut self, count: impl Fn(&str) -> u64) {
                $(self.$count += count(stringify!($count));)*
            }
        }
    };
}

totals! {
    /// Events counted.
    counted,
    /// Events refused.
    refused,
    /// Events whose id was counted before.
    duplicates,
    /// Alerts raised.
    raised,
    /// Created deliveries: always the sum of the next five and [`Totals::pending`].
    made,
    /// Deliveries that ended delivered.
    delivered,
    /// Deliveries that ended dead and were not replayed.
    dead,
    /// Deliveries that ended muted.
    muted,
    /// Deliveries that ended expired.
    expired,
    /// Deliveries that ended cancelled.
    cancelled,
    /// Duration of all ended pauses, milliseconds.
    paused_ms
}

impl Totals {
    /// Adds the totals of another partition.
    pub fn add(&mut self, other: &Self) {
        // A pause is one of all partitions.
        let paused_ms = self.paused_ms.max(other.paused_ms);
        let others: HashMap<&str, u64> = other.counts().collect();
        self.add_counts(|name| others[name]);
        self.paused_ms = paused_ms;
        self.now = self.now.max(other.now);
        self.pending += other.pending;
        self.waiting += other.waiting;
        self.dead_kept += other.dead_kept;
        self.outbox += other.outbox;
        self.destinations.healthy += other.destinations.healthy;
        self.destinations.unhealthy += other.destinations.unhealthy;
        self.destinations.open += other.destinations.open;
        self.is_paused |= other.is_paused;
        self.oldest_pending = [self.oldest_pending, other.oldest_pending].into_iter().flatten().min();
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
    let mut totals = Totals {
        now: UnixMs(now),
        pending,
        waiting,
        dead_kept,
        outbox,
        oldest_pending: oldest.map(UnixMs),
        destinations: DestinationCounts { healthy, unhealthy, open },
        is_paused: paused == 1,
        ..Totals::default()
    };
    totals.add_counts(|name| counts.get(name).copied().and_then(|count| u64::try_from(count).ok()).unwrap_or(0));
    Ok(totals)
}
