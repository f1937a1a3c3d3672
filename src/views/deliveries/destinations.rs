//! Destinations with pending deliveries: the waiting deliveries, the attempts in flight, and the circuit of each.

use std::time::Duration;

use redis::{Pipeline, RedisResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::redis_client::{Partition, Partitions};
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{DeliveryId, Destination, UnixMs};
use crate::views::Cursor;

/// Number of destinations that are read in one call.
const READ_MAX: usize = 500;
/// A delay of an attempt through an open circuit that `schedule.lua` takes for normal (`PROBE_LATE`).
const PROBE_LATE: Duration = Duration::from_secs(60);

/// A destination in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Destination")]
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
    /// The last error of a delivery that waits; null if it was never attempted. A refusal is an answer, so it is none
    /// of the failures in a row.
    pub last_error: Option<String>,
    /// Whether nothing leaves because attempts have failed.
    pub circuit: CircuitState,
    /// When the next attempt is made through an open circuit: when that permits one and a delivery is due.
    pub next_probe: Option<Rfc3339>,
    /// When its circuit opened, after some failures in a row; null while it is closed.
    pub failing_since: Option<Rfc3339>,
    /// When the deliveries that waited then and were never attempted are given up, unless an attempt works before; null
    /// while the circuit is closed. Later ones are kept longer, those that were attempted are given up
    /// `retry.give_up_after` after their first attempt. Time in which no daemon sends does not count.
    pub retried_until: Option<Rfc3339>,
    /// When the time of these deliveries began, later by the time without a daemon.
    #[serde(skip)]
    pub counted_from: Option<UnixMs>,
}

impl DestinationView {
    /// The same with the end of the retries, as `lease.lua` gives deliveries up.
    #[must_use]
    pub fn retried_for(self, give_up_after: Duration) -> Self {
        let until = self.counted_from.map(|began| Rfc3339(began.after(give_up_after)));
        Self { retried_until: until, ..self }
    }
}

text_enum! {
    /// Whether daemons attempt the deliveries of a destination.
    pub enum CircuitState {
        Closed = "closed",
        /// None but a probe, once its time has come.
        Open = "open",
    }
}

/// Destinations with pending deliveries, in one slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DestinationList")]
pub struct DestinationsView {
    /// Those with most waiting deliveries first, within the slice.
    pub destinations: Vec<DestinationView>,
    /// Number of destinations in the slice.
    pub examined: usize,
    /// What `after` takes to get the next slice; null at the end.
    pub next: Option<String>,
}

/// The position of a list: an index of a partition, and the number of its destinations before the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DestinationCursor {
    partition: usize,
    index: usize,
    seen: usize,
}

/// Reads the next slice of the destinations, at most `limit`: in each partition, those that failed last time come
/// first. A destination that recovers or fails between two slices may be in both, or in none.
pub async fn destination_slice(
    partitions: &Partitions,
    from: DestinationCursor,
    limit: usize,
    give_up_after: Duration,
) -> RedisResult<DestinationsView> {
    let mut cursor = from;
    let mut destinations = Vec::new();
    while let Some(partition) = partitions.iter().nth(cursor.partition) {
        let Partition { client, keys } = partition;
        let indexes = [keys.destinations_unhealthy(), keys.destinations()];
        let Some(index) = indexes.get(cursor.index) else {
            cursor = DestinationCursor { partition: cursor.partition + 1, ..DestinationCursor::default() };
            continue;
        };
        let wanted = (limit - destinations.len()).min(READ_MAX);
        if wanted == 0 {
            break;
        }
        let mut command = redis::cmd("ZRANGE");
        command.arg(index).arg(cursor.seen).arg(cursor.seen + wanted - 1);
        let names: Vec<String> = client.query(&command).await?;
        let names: Vec<Destination> = names.iter().map(|name| Destination::from_stored(name)).collect();
        destinations.extend(read_destinations(partition, &names).await?);
        cursor = match names.len() < wanted {
            true => DestinationCursor { index: cursor.index + 1, seen: 0, ..cursor },
            false => DestinationCursor { seen: cursor.seen + wanted, ..cursor },
        };
    }
    let is_over = cursor.partition >= partitions.count() as usize;
    let mut destinations: Vec<_> = destinations.into_iter().map(|view| view.retried_for(give_up_after)).collect();
    sort_by_waiting(&mut destinations);
    let next = (!is_over).then(|| Cursor(cursor).to_string());
    Ok(DestinationsView { examined: destinations.len(), destinations, next })
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
    sort_by_waiting(&mut listed);
    Ok(listed)
}

fn sort_by_waiting(listed: &mut [DestinationView]) {
    listed.sort_by(|a, b| (b.waiting, &a.destination, a.partition).cmp(&(a.waiting, &b.destination, b.partition)));
}

/// Reads these destinations of a partition, in the given order.
pub async fn read_destinations(
    Partition { client, keys }: &Partition,
    names: &[Destination],
) -> RedisResult<Vec<DestinationView>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let now = client.server_time().await?;
    let mut pipeline = Pipeline::new();
    for name in names {
        pipeline.cmd("ZCARD").arg(keys.due(name));
        pipeline.cmd("ZCOUNT").arg(format!("{}{name}", keys.leased_prefix())).arg(format!("({}", now.0)).arg("+inf");
        let state = format!("{}{name}", keys.destination_prefix());
        let fields = ["bound", "failures", "probe_at_ms", "opened_at_ms", "away_ms"];
        pipeline.cmd("HMGET").arg(state).arg(&fields);
        pipeline.cmd("ZRANGE").arg(keys.due(name)).arg(0).arg(0).arg("WITHSCORES");
        pipeline.cmd("ZRANGE").arg(keys.due(name)).arg(-1).arg(-1);
    }
    type State = (Option<u64>, Option<u64>, Option<i64>, Option<i64>, Option<u64>);
    type Read = (u64, u64, State, Vec<(String, i64)>, Vec<String>);
    let replies: Vec<redis::Value> = client.pipe(&pipeline).await?;
    let mut views = Vec::with_capacity(names.len());
    // If one has failed, that which is due last has, as a rule: a failure makes it due later. Otherwise the first.
    let mut examples = Vec::new();
    for (at, (name, reply)) in names.iter().zip(replies.chunks(5)).enumerate() {
        let (queued, leased, (bound, failures, probe, opened, away), due, last): Read =
            redis::from_redis_value(redis::Value::Array(reply.to_vec()))?;
        examples.extend(last.into_iter().chain(due.first().map(|(id, _)| id.clone())).map(|id| (at, id)));
        let due = due.first().map_or(0, |(_, due)| *due);
        let probe = probe.map(|probe| probe.max(due));
        // Leases above the bound come after those of running attempts.
        let in_flight = bound.map_or(leased, |bound| leased.min(bound));
        views.push(DestinationView {
            destination: name.clone(),
            partition: keys.partition().get(),
            waiting: queued.saturating_sub(in_flight),
            in_flight,
            bound,
            failures,
            last_error: None,
            circuit: if probe.is_some() { CircuitState::Open } else { CircuitState::Closed },
            next_probe: probe.map(|probe| Rfc3339(UnixMs(probe))),
            failing_since: opened.map(|opened| Rfc3339(UnixMs(opened))),
            retried_until: None,
            counted_from: opened.map(|opened| {
                let late = probe.map_or(Duration::ZERO, |probe| now.since(UnixMs(probe)));
                let late = if late > PROBE_LATE { late } else { Duration::ZERO };
                UnixMs(opened).after(Duration::from_millis(away.unwrap_or(0)) + late)
            }),
        });
    }
    if examples.is_empty() {
        return Ok(views);
    }
    let mut pipeline = Pipeline::new();
    for (_, id) in &examples {
        pipeline.cmd("HGET").arg(keys.delivery(&DeliveryId::from_stored(id))).arg("last_error");
    }
    let errors: Vec<Option<String>> = client.pipe(&pipeline).await?;
    for ((at, _), error) in examples.into_iter().zip(errors) {
        views[at].last_error = views[at].last_error.take().or(error);
    }
    Ok(views)
}
