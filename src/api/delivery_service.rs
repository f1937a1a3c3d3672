//! What the routes of deliveries do: list, show and change them, within a timeout.

use std::time::Duration;

use redis::RedisError;
use serde::Serialize;

use super::problem::Problem;
use crate::outbox::{ActionResult, DeliveryAction, NewDeliveries, OutboxError, act};
use crate::types::DeliveryId;
use crate::views::deliveries::{self, DeliveriesCursor};
use crate::views::explain::{Audience, Explainer};
use crate::views::{DeliveryDetailView, DeliveryFilter, DeliveryView};
use crate::wire::{ErrorKind, Partitions, error_kind};

/// A caller must not hang when Redis does.
const TIMEOUT: Duration = Duration::from_secs(5);

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

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryServiceError {
    /// Redis failed.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// A script of deliveries failed.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// Redis does not answer. What was asked for may have been done.
    #[error("no answer in time")]
    Timeout,
}

impl DeliveryService {
    /// A part of the deliveries that pass the filter, and where the next one begins.
    pub async fn list(
        &self,
        filter: &DeliveryFilter,
        after: Option<DeliveriesCursor>,
        limit: usize,
    ) -> Result<(Vec<DeliveryView>, Option<DeliveriesCursor>), DeliveryServiceError> {
        within_timeout(async { Ok(deliveries::list_from(&self.partitions, filter, after, limit).await?) }).await
    }

    /// One delivery and why it stands as it does, without what the other side said; `None` where there is none.
    pub async fn show(&self, id: &DeliveryId) -> Result<Option<ExplainedDelivery>, DeliveryServiceError> {
        within_timeout(async {
            let explained = self.explainer.delivery(id, Audience::Platform).await?;
            Ok(explained.map(|(explanation, detail)| ExplainedDelivery { detail, explanation }))
        })
        .await
    }

    /// Does what an operator asks for with one delivery.
    ///
    /// # Errors
    ///
    /// [`DeliveryServiceError`]; it may be done.
    pub async fn act(&self, action: DeliveryAction, id: &DeliveryId) -> Result<ActionResult, DeliveryServiceError> {
        within_timeout(async {
            let partition = deliveries::partition_of(&self.partitions, id).await?;
            let results = act(&partition.client, &partition.keys, action, std::slice::from_ref(id)).await?;
            let result = results.into_iter().next().expect("an answer for each id");
            self.new_deliveries.of(partition.number()).notify_one();
            tracing::info!(delivery = %id, action = action.as_str(), result = result.word(action), "asked for over HTTP");
            Ok(result)
        })
        .await
    }
}

async fn within_timeout<T>(
    call: impl Future<Output = Result<T, DeliveryServiceError>>,
) -> Result<T, DeliveryServiceError> {
    tokio::time::timeout(TIMEOUT, call).await.map_err(|_| DeliveryServiceError::Timeout)?
}

impl From<DeliveryServiceError> for Problem {
    fn from(error: DeliveryServiceError) -> Self {
        let kind = match &error {
            DeliveryServiceError::Timeout => ErrorKind::Unreachable,
            DeliveryServiceError::Redis(error) => error_kind(error),
            DeliveryServiceError::Outbox(error) => error.error_kind(),
        };
        tracing::warn!(%error, "a route of deliveries: Redis failed");
        Self::of_redis(kind)
    }
}
