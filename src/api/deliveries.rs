//! `/v1/deliveries`: lists by filter, one delivery, and what an operator does with it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body;
use super::list_query::ListLimit;
use super::operation::JsonReply;
use super::path::{self, DeliveryPath, Query, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use crate::actions;
use crate::actions::deliveries::ChangedDelivery;
use crate::outbox::{ActionReply, DeliveryAction};
use crate::types::{Channel, DeliveryId, DeliveryState, Destination, Subject};
use crate::views::deliveries::{self, DeliveriesCursor};
use crate::views::explain::Audience;
use crate::views::{Cursor, DeliveryDetailView, DeliveryFilter, DeliveryView};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeliveriesQuery {
    /// Only those in this state. Dead ones that were discarded are listed only without this.
    #[serde(default, deserialize_with = "body::optional_text")]
    state: Option<DeliveryState>,
    /// Only those about this subject.
    subject: Option<Subject>,
    /// Only those of this channel.
    #[serde(default, deserialize_with = "body::optional_text")]
    channel: Option<Channel>,
    /// Only those to this destination.
    destination: Option<String>,
    /// Only those whose last error holds this text.
    error: Option<String>,
    /// Only those whose last error is this, as `/v1/deliveries/dead` groups them.
    cause: Option<String>,
    /// Only those of this alert: its id, or the first digits of it.
    #[schemars(regex(pattern = "^(alert_)?[0-9a-f]{1,32}$"))]
    alert: Option<String>,
    /// Only those made at this time or later.
    #[schemars(extend("format" = "date-time"))]
    since: Option<String>,
    /// Only those made earlier than this.
    #[schemars(extend("format" = "date-time"))]
    before: Option<String>,
    /// The `next` of the page before; the first page without it.
    after: Option<String>,
    /// How many things the page may have.
    #[serde(default, deserialize_with = "body::text")]
    limit: ListLimit,
}

/// A page of deliveries.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    /// What `after` takes to get the next page; null at the end.
    next: Option<String>,
}

/// `GET /v1/deliveries`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    Query(query): Query<DeliveriesQuery>,
) -> Result<JsonReply<DeliveryList>, Problem> {
    listed(&api, query).await
}

/// `GET /v1/subjects/{id}/deliveries`
pub(super) async fn of_subject(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(query): Query<DeliveriesQuery>,
) -> Result<JsonReply<DeliveryList>, Problem> {
    if query.subject.is_some() {
        return Err(Problem::bad_request("subject: the path names it already"));
    }
    listed(&api, DeliveriesQuery { subject: Some(subject), ..query }).await
}

async fn listed(api: &ApiState, query: DeliveriesQuery) -> Result<JsonReply<DeliveryList>, Problem> {
    let filter = DeliveryFilter {
        state: query.state,
        subject: query.subject,
        channel: query.channel,
        destination: query.destination.as_deref().map(Destination::from_stored),
        error: query.error,
        cause: query.cause,
        alert: path::parameter("alert", query.alert.as_deref())?,
        since: path::parameter("since", query.since.as_deref())?,
        before: path::parameter("before", query.before.as_deref())?,
        until: None,
    };
    let after = path::parameter::<Cursor<DeliveriesCursor>>("after", query.after.as_deref())?;
    let list = deliveries::list_from(&api.partitions, &filter, after.map(|Cursor(after)| after), query.limit.0);
    let (deliveries, next) = within(CALL_TIMEOUT, list).await?;
    Ok(JsonReply(DeliveryList { deliveries, next: next.map(|next| Cursor(next).to_string()) }))
}

/// A delivery with its alert, its contact, its attempts, and what is said of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeliveryDetail")]
pub(super) struct ExplainedDelivery {
    #[serde(flatten)]
    detail: DeliveryDetailView,
    /// Why it stands as it does, in sentences in the order of time; what happens next comes last.
    explanation: Vec<String>,
}

/// `GET /v1/deliveries/{id}`: without what the other side said.
pub(super) async fn show(
    State(api): State<Arc<ApiState>>,
    DeliveryPath(id): DeliveryPath,
) -> Result<JsonReply<ExplainedDelivery>, Problem> {
    let explained = within(CALL_TIMEOUT, api.explainer.delivery(&id, Audience::Platform)).await?;
    let (explanation, detail) = explained.ok_or_else(|| unknown(&id))?;
    Ok(JsonReply(ExplainedDelivery { detail, explanation }))
}

/// `POST /v1/deliveries/{id}/replay`, and likewise each other action. After an error it may be done.
pub(super) async fn act(
    State(api): State<Arc<ApiState>>,
    DeliveryPath(id): DeliveryPath,
    action: DeliveryAction,
) -> Result<JsonReply<ChangedDelivery>, Problem> {
    let done = async {
        let partition = deliveries::partition_of(&api.partitions, &id).await?;
        let mut changed = actions::deliveries::act(partition, action, std::slice::from_ref(&id)).await?;
        api.new_deliveries.signal_of(partition.number()).notify_one();
        Ok::<_, Problem>(changed.pop().expect("an answer for each id"))
    };
    let changed = within(CALL_TIMEOUT, done).await?;
    tracing::info!(delivery = %id, action = action.as_str(), result = changed.result, "an HTTP client requested an action");
    let conflict = |detail: String| Problem::new(StatusCode::CONFLICT, detail);
    match changed.reply {
        ActionReply::Done => Ok(JsonReply(changed)),
        ActionReply::Missing => Err(unknown(&id)),
        ActionReply::Leased => Err(conflict("the delivery is being attempted right now: try again".to_owned())),
        ActionReply::InState(state) => {
            let takes: Vec<&str> = action.takes().iter().map(|state| state.as_str()).collect();
            let takes = takes.join(" or ");
            Err(conflict(format!("the delivery is {state}, only {takes} deliveries can be {}", action.done())))
        }
    }
}

fn unknown(id: &DeliveryId) -> Problem {
    let detail = format!("there is no delivery {id}; deliveries stay readable for 14 days after their end");
    Problem::new(StatusCode::NOT_FOUND, detail)
}
