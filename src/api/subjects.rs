//! `/v1/subjects/...` but for contacts: what is set for subjects, what they used, now and before, and their alerts.
//!
//! Judges what was asked and writes the response. [`ReadService`](super::read_service::ReadService) reads, and
//! [`SubjectService`](super::subject_service::SubjectService) replaces and erases.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::body::Json;
use super::list_query::ListRequest;
use super::path::{self, Query, SubjectPath};
use super::problem::Problem;
use super::state::ApiState;
use super::subject_body::SubjectBody;
use crate::views::history::DayRange;
use crate::views::{AlertCursor, SubjectCursor, SubjectSlice};

/// `GET /v1/subjects`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    ListRequest { after, limit }: ListRequest<SubjectCursor>,
) -> Result<Response, Problem> {
    let SubjectSlice { subjects, next } = api.reads.subjects(after.unwrap_or_default(), limit).await?;
    Ok(answer(&json!({"subjects": subjects, "next": next.map(|next| next.to_string())})))
}

/// `GET /v1/subjects/{id}`
pub(super) async fn show(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<Response, Problem> {
    let shown = api.reads.subject(&subject).await?;
    let nothing = || format!("nothing is set for subject {subject}: it has the default plan");
    Ok(answer(&shown.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, nothing()))?))
}

/// `PUT /v1/subjects/{id}`
pub(super) async fn replace(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Json(body): Json<SubjectBody>,
) -> Result<Response, Problem> {
    let record = body.judge(&api.subjects.plans)?;
    Ok(answer(&api.subjects.replace(&subject, &record).await?))
}

/// `DELETE /v1/subjects/{id}`
pub(super) async fn erase(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<Response, Problem> {
    Ok(answer(&api.subjects.erase(&subject).await?))
}

/// The query of `usage`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    day: Option<String>,
}

/// `GET /v1/subjects/{id}/usage`
pub(super) async fn usage(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(UsageQuery { day }): Query<UsageQuery>,
) -> Result<Response, Problem> {
    let day = path::parameter("day", day.as_deref())?;
    Ok(answer(&api.reads.usage(subject, day).await?))
}

/// The query of `history`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    metric: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

/// `GET /v1/subjects/{id}/history`
pub(super) async fn history(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(HistoryQuery { metric, from, to }): Query<HistoryQuery>,
) -> Result<Response, Problem> {
    let metric = path::parameter("metric", metric.as_deref())?;
    let (from, to) = (path::parameter("from", from.as_deref())?, path::parameter("to", to.as_deref())?);
    let range = DayRange::new(from, to).map_err(|error| Problem::bad_request(format!("from: {error}")))?;
    Ok(answer(&api.reads.history(subject, metric, range).await?))
}

/// `GET /v1/subjects/{id}/alerts`
pub(super) async fn alerts(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    ListRequest { after, limit }: ListRequest<AlertCursor>,
) -> Result<Response, Problem> {
    let (alerts, next) = AlertCursor::slice(after.as_ref(), api.reads.alerts(subject).await?, limit);
    Ok(answer(&json!({"alerts": alerts, "next": next.map(|next| next.to_string())})))
}

/// No cache on the way may keep addresses, or counts that change with each event.
pub(super) fn answer(view: &impl Serialize) -> Response {
    let text = serde_json::to_vec(view).expect("a view is strings, numbers and lists");
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response()
}
