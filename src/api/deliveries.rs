//! `/v1/deliveries`: lists by filter, one delivery, and what an operator does with it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::list_query::ListLimit;
use super::path::{self, DeliveryPath, Query, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use super::subjects::answer;
use crate::outbox::{self, ActionAnswer, DeliveryAction};
use crate::types::{DeliveryId, Destination, Subject};
use crate::views::deliveries::{self, ActionResultView, DeliveriesCursor, behind_open_circuits};
use crate::views::explain::Audience;
use crate::views::{DeliveryDetailView, DeliveryFilter};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeliveriesQuery {
    state: Option<String>,
    subject: Option<String>,
    channel: Option<String>,
    destination: Option<String>,
    error: Option<String>,
    alert: Option<String>,
    since: Option<String>,
    before: Option<String>,
    after: Option<String>,
    limit: Option<String>,
}

/// `GET /v1/deliveries`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Response, Problem> {
    let subject = path::parameter("subject", query.subject.as_deref())?;
    listed(&api, query, subject).await
}

/// `GET /v1/subjects/{id}/deliveries`
pub(super) async fn of_subject(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Response, Problem> {
    if query.subject.is_some() {
        return Err(Problem::bad_request("subject: stands in the path"));
    }
    listed(&api, query, Some(subject)).await
}

async fn listed(api: &ApiState, query: DeliveriesQuery, subject: Option<Subject>) -> Result<Response, Problem> {
    let filter = DeliveryFilter {
        state: path::parameter("state", query.state.as_deref())?,
        subject,
        kind: None,
        channel: path::parameter("channel", query.channel.as_deref())?,
        destination: query.destination.as_deref().map(Destination::from_stored),
        error: query.error,
        alert: path::parameter("alert", query.alert.as_deref())?,
        since: path::parameter("since", query.since.as_deref())?,
        before: path::parameter("before", query.before.as_deref())?,
    };
    let after: Option<DeliveriesCursor> = path::parameter("after", query.after.as_deref())?;
    let ListLimit(limit) = path::parameter("limit", query.limit.as_deref())?.unwrap_or_default();
    let list = deliveries::list_from(&api.partitions, &filter, after, limit);
    let (deliveries, next) = within(CALL_TIMEOUT, list).await?;
    Ok(answer(&json!({"deliveries": deliveries, "next": next.map(|next| next.to_string())})))
}

/// A delivery with what is said of it.
#[derive(Debug, Serialize)]
struct ExplainedDelivery {
    #[serde(flatten)]
    detail: DeliveryDetailView,
    explanation: Vec<String>,
}

/// `GET /v1/deliveries/{id}`: without what the other side said.
pub(super) async fn show(
    State(api): State<Arc<ApiState>>,
    DeliveryPath(id): DeliveryPath,
) -> Result<Response, Problem> {
    let explained = within(CALL_TIMEOUT, api.explainer.delivery(&id, Audience::Platform)).await?;
    let (explanation, detail) = explained.ok_or_else(|| unknown(&id))?;
    Ok(answer(&ExplainedDelivery { detail, explanation }))
}

/// `POST /v1/deliveries/{id}/replay`, and likewise each other action. After an error it may be done.
pub(super) async fn act(
    State(api): State<Arc<ApiState>>,
    DeliveryPath(id): DeliveryPath,
    action: DeliveryAction,
) -> Result<Response, Problem> {
    let done = async {
        let partition = deliveries::partition_of(&api.partitions, &id).await?;
        // As it is before: an attempt may close it at once.
        let circuits = behind_open_circuits(partition, action, std::slice::from_ref(&id)).await?;
        let results = outbox::act(&partition.client, &partition.keys, action, std::slice::from_ref(&id)).await?;
        api.new_deliveries.of(partition.number()).notify_one();
        let circuit = circuits.get(&id).map(|view| view.circuit);
        Ok::<_, Problem>((results.into_iter().next().expect("an answer for each id"), circuit))
    };
    let (result, circuit) = within(CALL_TIMEOUT, done).await?;
    tracing::info!(delivery = %id, action = action.as_str(), result = result.word(action), "an action was asked for over HTTP");
    let conflict = |detail: String| Problem::new(StatusCode::CONFLICT, detail);
    match result.answer {
        ActionAnswer::Done => Ok(answer(&ActionResultView::of(action, &result, circuit))),
        ActionAnswer::Missing => Err(unknown(&id)),
        ActionAnswer::Leased => Err(conflict("the delivery is being attempted right now: try again".to_owned())),
        ActionAnswer::InState(state) => {
            let takes: Vec<&str> = action.takes().iter().map(|state| state.as_str()).collect();
            let takes = takes.join(" or ");
            Err(conflict(format!("the delivery is {state}, only one that is {takes} can be {}", action.done())))
        }
    }
}

fn unknown(id: &DeliveryId) -> Problem {
    let detail = format!("there is no delivery {id}; they stay readable for 14 days after their end");
    Problem::new(StatusCode::NOT_FOUND, detail)
}
