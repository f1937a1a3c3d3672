//! What an action of an operator did with a delivery.

use serde::Serialize;

use super::CircuitState;
use crate::outbox::{ActionAnswer, ActionResult, DeliveryAction};
use crate::types::{DeliveryId, DeliveryState};

/// What an action did with one delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActionResultView {
    pub id: DeliveryId,
    /// `replayed`, `retried`, `cancelled` or `discarded`; `not_dead` or `ended` in another state; `leased` while it is
    /// being attempted; `unknown`.
    pub result: &'static str,
    /// Where the delivery stands now; `null` when there is none.
    pub state: Option<DeliveryState>,
    /// `open` where that of its destination is: it waits for an attempt there to succeed. Not there otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitState>,
}

impl ActionResultView {
    /// `circuit`: that of the delivery's destination, where it is open.
    pub fn of(action: DeliveryAction, result: &ActionResult, circuit: Option<CircuitState>) -> Self {
        let circuit = circuit.filter(|_| result.answer == ActionAnswer::Done);
        Self { id: result.id.clone(), result: result.word(action), state: result.state(action), circuit }
    }
}
