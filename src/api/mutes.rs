//! `/v1/subjects/{id}/mute` and `/v1/subjects/{id}/contacts/{contact}/mute`: whether alerts are sent.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::body::{self, Json};
use super::contacts;
use super::path::{self, ContactPath, Query, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use super::subjects::answer;
use crate::contacts::ContactArray;
use crate::subjects::mutes::set_mute;
use crate::types::{ContactId, Metric, Mute, MuteEnd, Subject, duration};
use crate::verification::VerificationError;
use crate::views::MuteView;
use crate::wire::Partition;

/// The body of a mute. Without an end it lasts until somebody ends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct MuteBody {
    #[serde(default, deserialize_with = "body::optional_text")]
    until: Option<MuteEnd>,
    #[serde(default, rename = "for", deserialize_with = "body::optional_text")]
    duration: Option<String>,
    #[serde(default, deserialize_with = "body::optional_text")]
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MuteQuery {
    metric: Option<String>,
}

impl MuteQuery {
    fn metric(&self) -> Result<Option<Metric>, Problem> {
        path::parameter("metric", self.metric.as_deref())
    }
}

/// `PUT /v1/subjects/{id}/mute`
pub(super) async fn mute_subject(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(query): Query<MuteQuery>,
    Json(body): Json<MuteBody>,
) -> Result<Response, Problem> {
    let metric = query.metric()?;
    let mute = body.into_mute(&api).await?;
    set(&api, &subject, metric.as_ref(), Some(&mute)).await?;
    Ok(answer(&json!({"subject": subject, "metric": metric, "mute": MuteView::from(mute)})))
}

/// `DELETE /v1/subjects/{id}/mute`
pub(super) async fn unmute_subject(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(query): Query<MuteQuery>,
) -> Result<StatusCode, Problem> {
    let metric = query.metric()?;
    set(&api, &subject, metric.as_ref(), None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Mutes a subject or one metric of it, or ends that mute. After an error it may be written.
async fn set(api: &ApiState, subject: &Subject, metric: Option<&Metric>, mute: Option<&Mute>) -> Result<(), Problem> {
    let Partition { client, keys } = api.partitions.of(subject);
    within(CALL_TIMEOUT, set_mute(client, keys, subject, metric, mute)).await.map(drop)
}

/// `PUT /v1/subjects/{id}/contacts/{contact}/mute`
pub(super) async fn mute_contact(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
    Json(body): Json<MuteBody>,
) -> Result<Response, Problem> {
    let mute = body.into_mute(&api).await?;
    set_of_contact(&api, &subject, &contact, Some(&mute)).await?;
    Ok(answer(&json!({"subject": subject, "contact": contact, "mute": MuteView::from(mute)})))
}

/// `DELETE /v1/subjects/{id}/contacts/{contact}/mute`
pub(super) async fn unmute_contact(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<StatusCode, Problem> {
    set_of_contact(&api, &subject, &contact, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn set_of_contact(
    api: &ApiState,
    subject: &Subject,
    contact: &ContactId,
    mute: Option<&Mute>,
) -> Result<(), Problem> {
    let set = |array: &mut ContactArray| match array.set_mute(contact, mute) {
        0 => Err(VerificationError::NotFound),
        _ => Ok(()),
    };
    contacts::edit(api, subject, set).await
}

impl MuteBody {
    /// The mute by the server's clock.
    async fn into_mute(self, api: &ApiState) -> Result<Mute, Problem> {
        let Self { until, duration, reason } = self;
        let after = |text: String| {
            let time = duration::parse(&text).map(MuteEnd::After);
            time.ok_or_else(|| Problem::bad_request("for: must be a number and a unit, as \"30m\", \"2h\" or \"3d\""))
        };
        let end = match (until, duration) {
            (Some(_), Some(_)) => return Err(Problem::bad_request("until: stands beside for, one of them is allowed")),
            (until, duration) => duration.map(after).transpose()?.or(until).unwrap_or(MuteEnd::Never),
        };
        let now = within(CALL_TIMEOUT, api.partitions.first().client.server_time()).await?;
        Mute::new(end, reason, now).map_err(|error| Problem::bad_request(error.to_string()))
    }
}
