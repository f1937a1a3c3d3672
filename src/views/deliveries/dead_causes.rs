//! Dead deliveries by destination and cause.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::{DeliveriesCursor, DeliveryFilter, DeliveryView, cause_of, list_from};
use crate::redis_client::Partitions;
use crate::types::timestamp::Rfc3339;
use crate::types::{Channel, DeliveryId, DeliveryState, Destination};
use crate::views::Cursor;

/// Number of dead deliveries in a slice.
const READ_MAX: usize = 2_000;

/// Dead deliveries in one slice, grouped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DeadCauseList")]
pub struct DeadCausesView {
    /// The most frequent cause first, within the slice.
    pub causes: Vec<DeadCauseView>,
    /// Number of dead deliveries in the slice.
    pub examined: usize,
    /// What `after` takes to get the next slice; null at the end.
    pub next: Option<String>,
}

/// The dead deliveries to a destination with one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DeadCause")]
pub struct DeadCauseView {
    pub destination: Destination,
    pub channel: Channel,
    /// The last error, with `<address>` for email addresses.
    pub cause: String,
    #[schemars(range(min = 1))]
    pub count: usize,
    /// When the first and the last of them died.
    pub first_died_at: Option<Rfc3339>,
    pub last_died_at: Option<Rfc3339>,
    /// The one that died last.
    pub newest: DeliveryId,
}

/// Reads the next slice of the dead deliveries that can still be replayed.
pub async fn dead_causes(partitions: &Partitions, from: Option<DeliveriesCursor>) -> RedisResult<DeadCausesView> {
    let filter = DeliveryFilter { state: Some(DeliveryState::Dead), ..DeliveryFilter::default() };
    let (dead, next) = list_from(partitions, &filter, from, READ_MAX).await?;
    Ok(DeadCausesView { causes: grouped(&dead), examined: dead.len(), next: next.map(|next| Cursor(next).to_string()) })
}

fn grouped(dead: &[DeliveryView]) -> Vec<DeadCauseView> {
    let mut causes: BTreeMap<(&Destination, String), DeadCauseView> = BTreeMap::new();
    for view in dead {
        let cause = cause_of(view.last_error.as_deref());
        let group = causes.entry((&view.destination, cause.clone())).or_insert_with(|| DeadCauseView {
            destination: view.destination.clone(),
            channel: view.channel,
            cause,
            count: 0,
            first_died_at: view.ended_at,
            last_died_at: view.ended_at,
            newest: view.id.clone(),
        });
        group.count += 1;
        group.first_died_at = group.first_died_at.min(view.ended_at);
        if view.ended_at > group.last_died_at {
            (group.last_died_at, group.newest) = (view.ended_at, view.id.clone());
        }
    }
    let mut causes: Vec<DeadCauseView> = causes.into_values().collect();
    causes.sort_by_key(|cause| Reverse(cause.count));
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::deliveries::UNKNOWN_CAUSE;

    /// One full mailbox server must be one line, not one for each of its mailboxes.
    #[test]
    fn a_cause_names_no_address() {
        assert_eq!(cause_of(Some("550 5.1.1 <ann@b.test>: no such user")), "550 5.1.1 <address> no such user");
        assert_eq!((cause_of(Some("HTTP 503")), cause_of(None)), ("HTTP 503".to_owned(), UNKNOWN_CAUSE.to_owned()));
    }
}
