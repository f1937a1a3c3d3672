//! What the routes of deliveries do: list, show and change them, within a timeout.

use serde::Serialize;

use super::problem::{CALL_TIMEOUT, Problem, within};
use crate::outbox::{ActionResult, DeliveryAction, NewDeliveries, act};
use crate::types::DeliveryId;
use crate::views::deliveries::{self, DeliveriesCursor};
use crate::views::explain::{Audience, Explainer};
use crate::views::{DeliveryDetailView, DeliveryFilter, DeliveryView};
use crate::wire::Partitions;

/// Lists, shows and changes deliveries for the API.
#[derive(Debug)]
pub struct DeliveryService {
    /// Redis.
    pub partitions: Partitions,
    /// What says why a delivery stands as it does.
    pub explainer: Explainer,
    /// Wakes the dispatchers when deliveries are due.
    pub new_deliveries: NewDeliveries,
}

/// A delivery with what is said of it.
#[derive(Debug, Serialize)]
pub struct ExplainedDelivery {
    #[serde(flatten)]
    detail: DeliveryDetailView,
    explanation: Vec<String>,
}

impl DeliveryService {
    /// A part of the deliveries that pass the filter, and where the next one begins.
    pub async fn list(
        &self,
        filter: &DeliveryFilter,
        after: Option<DeliveriesCursor>,
        limit: usize,
    ) -> Result<(Vec<DeliveryView>, Option<DeliveriesCursor>), Problem> {
        within(CALL_TIMEOUT, deliveries::list_from(&self.partitions, filter, after, limit)).await
    }

    /// One delivery and why it stands as it does, without what the other side said; `None` where there is none.
    pub async fn show(&self, id: &DeliveryId) -> Result<Option<ExplainedDelivery>, Problem> {
        let explained = within(CALL_TIMEOUT, self.explainer.delivery(id, Audience::Platform)).await?;
        Ok(explained.map(|(explanation, detail)| ExplainedDelivery { detail, explanation }))
    }

    /// Does what an operator asks for with one delivery. After an error it may be done.
    pub async fn act(&self, action: DeliveryAction, id: &DeliveryId) -> Result<ActionResult, Problem> {
        let done = async {
            let partition = deliveries::partition_of(&self.partitions, id).await?;
            let results = act(&partition.client, &partition.keys, action, std::slice::from_ref(id)).await?;
            let result = results.into_iter().next().expect("an answer for each id");
            self.new_deliveries.of(partition.number()).notify_one();
            let (action, result_word) = (action.as_str(), result.word(action));
            tracing::info!(delivery = %id, action, result = result_word, "an action was asked for over HTTP");
            Ok::<_, Problem>(result)
        };
        within(CALL_TIMEOUT, done).await
    }
}
