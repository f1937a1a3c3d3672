//! Destinations with pending deliveries: the waiting deliveries, the attempts in flight, and the circuit of each.

use redis::{Pipeline, RedisResult};
use serde::Serialize;

use crate::redis_client::{Partition, Partitions};
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{Destination, UnixMs};

/// Number of destinations that are read in one call.
const READ_MAX: usize = 500;

/// A destination in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DestinationView {
    /// The origin of a webhook's URL, `email`, or `none` for deliveries that wait for a contact.
    pub destination: Destination,
    /// The partition: each has a queue, a bound and a circuit of its own.
    pub partition: u32,
    pub waiting: u64,
    pub in_flight: u64,
    /// How many may be attempted at once; `null` for one that was never tried, which is tried once.
    pub bound: Option<u64>,
    /// Attempts that failed in a row; `null` for one that was never tried.
    pub failures: Option<u64>,
    /// Whether nothing leaves because attempts have failed.
    pub circuit: CircuitState,
    /// When the next attempt is made through an open circuit.
    pub next_probe: Option<Rfc3339>,
}

text_enum! {
    /// Whether daemons attempt the deliveries of a destination.
    pub enum CircuitState {
        Closed = "closed",
        /// None but a probe, once its time has come.
        Open = "open",
    }
}

/// Every destination with pending deliveries, ordered by their number, largest first.
pub async fn list_destinations(partitions: &Partitions) -> RedisResult<Vec<DestinationView>> {
    let mut listed = Vec::new();
    for partition in partitions.iter() {
        let Partition { client, keys } = partition;
        let mut names: Vec<String> = Vec::new();
        for index in [keys.destinations(), keys.destinations_unhealthy()] {
            names.extend(client.query::<Vec<String>>(redis::cmd("ZRANGE").arg(index).arg(0).arg(-1)).await?);
        }
        let names: Vec<Destination> = names.iter().map(|name| Destination::from_stored(name)).collect();
        for names in names.chunks(READ_MAX) {
            listed.extend(read_destinations(partition, names).await?);
        }
    }
    listed.sort_by(|a, b| (b.waiting, &a.destination, a.partition).cmp(&(a.waiting, &b.destination, b.partition)));
    Ok(listed)
}

/// Reads these destinations of a partition, in the given order.
pub async fn read_destinations(
    Partition { client, keys }: &Partition,
    names: &[Destination],
) -> RedisResult<Vec<DestinationView>> {
    let now = client.server_time().await?;
    let mut pipeline = Pipeline::new();
    for name in names {
        pipeline.cmd("ZCARD").arg(keys.due(name));
        pipeline.cmd("ZCOUNT").arg(format!("{}{name}", keys.leased_prefix())).arg(format!("({}", now.0)).arg("+inf");
        let state = format!("{}{name}", keys.destination_prefix());
        pipeline.cmd("HMGET").arg(state).arg("bound").arg("failures").arg("probe_at_ms");
    }
    type Read = (u64, u64, (Option<u64>, Option<u64>, Option<i64>));
    let replies: Vec<redis::Value> = client.pipe(&pipeline).await?;
    let mut views = Vec::with_capacity(names.len());
    for (name, reply) in names.iter().zip(replies.chunks(3)) {
        let (queued, leased, (bound, failures, probe)): Read =
            redis::from_redis_value(redis::Value::Array(reply.to_vec()))?;
        // Leases above the bound come after those of running attempts.
        let in_flight = bound.map_or(leased, |bound| leased.min(bound));
        views.push(DestinationView {
            destination: name.clone(),
            partition: keys.partition().get(),
            waiting: queued.saturating_sub(in_flight),
            in_flight,
            bound,
            failures,
            circuit: if probe.is_some() { CircuitState::Open } else { CircuitState::Closed },
            next_probe: probe.map(|probe| Rfc3339(UnixMs(probe))),
        });
    }
    Ok(views)
}
