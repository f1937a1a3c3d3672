//! Replays, retries, cancels and discards deliveries.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Pipeline, RedisResult};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::outbox::{self, ActionReply, DeliveryAction, Operation, OutboxError};
use crate::redis_client::{Partition, Partitions};
use crate::types::{DeliveryId, DeliveryState, Destination, Subject};
use crate::views::deliveries::{CircuitState, DestinationView, partition_of, read_destinations};

/// What an action did with one delivery.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "ChangedDelivery")]
pub struct ChangedDelivery {
    pub id: DeliveryId,
    /// `replayed`, `retried`, `cancelled` or `discarded`; `not_dead` or `ended` in another state; `leased` while it is
    /// being attempted; `unknown`.
    #[schemars(description = "What was done.", schema_with = "words_of_done")]
    pub result: &'static str,
    /// The state of the delivery now.
    #[schemars(with = "DeliveryState")]
    pub state: Option<DeliveryState>,
    /// After a retry or a replay, if the circuit of its destination is open: it waits until an attempt there succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("const" = "open"))]
    pub circuit: Option<CircuitState>,
    #[serde(skip)]
    pub reply: ActionReply,
    /// Its destination before the action, if the circuit there is open.
    #[serde(skip)]
    pub behind: Option<DestinationView>,
}

/// The words of successful actions: over HTTP, every other result is a problem.
fn words_of_done(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": DeliveryAction::ALL.map(DeliveryAction::done)})
}

/// Applies the action to at most [`ACTION_MAX`](outbox::action::ACTION_MAX) deliveries of a partition. May be repeated.
///
/// # Errors
///
/// [`OutboxError`]: the action may have been applied.
pub async fn act(
    partition: &Partition,
    action: DeliveryAction,
    ids: &[DeliveryId],
) -> Result<Vec<ChangedDelivery>, OutboxError> {
    let Partition { client, keys } = partition;
    // Read before the action, because an attempt may close a circuit at once.
    let open = match action.state_after() {
        DeliveryState::Pending => open_circuits(partition, ids).await,
        _ => Ok(BTreeMap::new()),
    };
    let mut open = open.map_err(OutboxError::redis(Operation::Query, keys.stream()))?;
    let replies = outbox::act(client, keys, action, ids).await?;
    let changed = ids.iter().zip(replies).map(|(id, reply)| {
        let behind = open.remove(id).filter(|_| reply == ActionReply::Done);
        let circuit = behind.as_ref().map(|destination| destination.circuit);
        let (result, state) = (reply.word(action), reply.state(action));
        ChangedDelivery { id: id.clone(), result, state, circuit, reply, behind }
    });
    Ok(changed.collect())
}

/// The subject of a delivery, for the log of actions.
pub async fn subject_of(partitions: &Partitions, id: &DeliveryId) -> RedisResult<Option<Subject>> {
    let Partition { client, keys } = partition_of(partitions, id).await?;
    let subject: Option<String> = client.query(redis::cmd("HGET").arg(keys.delivery(id)).arg("subject")).await?;
    Ok(subject.and_then(|subject| subject.parse().ok()))
}

/// The destinations of these deliveries that have an open circuit.
async fn open_circuits(
    partition: &Partition,
    ids: &[DeliveryId],
) -> RedisResult<BTreeMap<DeliveryId, DestinationView>> {
    let mut pipeline = Pipeline::new();
    for id in ids {
        pipeline.cmd("HGET").arg(partition.keys.delivery(id)).arg("destination");
    }
    let stored: Vec<Option<String>> = partition.client.pipe(&pipeline).await?;
    let names: Vec<Option<Destination>> =
        stored.into_iter().map(|name| name.map(|name| Destination::from_stored(&name))).collect();
    let distinct: Vec<Destination> = names.iter().flatten().collect::<BTreeSet<_>>().into_iter().cloned().collect();
    let mut open = read_destinations(partition, &distinct).await?;
    open.retain(|view| view.circuit == CircuitState::Open);
    let view_of = |name: Destination| open.iter().find(|view| view.destination == name).cloned();
    Ok(ids.iter().zip(names).filter_map(|(id, name)| Some((id.clone(), view_of(name?)?))).collect())
}
