//! What an action of an operator did with a delivery.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::CircuitState;
use crate::outbox::{ActionReply, ActionResult, DeliveryAction};
use crate::types::{DeliveryId, DeliveryState};

/// What an action did with one delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ChangedDelivery")]
pub struct ActionResultView {
    pub id: DeliveryId,
    /// `replayed`, `retried`, `cancelled` or `discarded`; `not_dead` or `ended` in another state; `leased` while it is
    /// being attempted; `unknown`.
    #[schemars(description = "What was done.", schema_with = "words_of_done")]
    pub result: &'static str,
    /// The state of the delivery now.
    #[schemars(with = "DeliveryState")]
    pub state: Option<DeliveryState>,
    /// After a retry or a replay, where the circuit of its destination is open: it waits for an attempt there to
    /// succeed. Not there otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("const" = "open"))]
    pub circuit: Option<CircuitState>,
}

impl ActionResultView {
    /// `circuit`: that of the delivery's destination, where it is open.
    pub fn new(action: DeliveryAction, result: &ActionResult, circuit: Option<CircuitState>) -> Self {
        let circuit = circuit.filter(|_| result.answer == ActionReply::Done);
        Self { id: result.id.clone(), result: result.word(action), state: result.state(action), circuit }
    }
}

/// The words of an action that was done: everything else is a problem over HTTP.
fn words_of_done(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": DeliveryAction::ALL.map(DeliveryAction::done)})
}
