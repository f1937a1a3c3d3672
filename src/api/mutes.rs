//! `/v1/subjects/{id}/mute` and `/v1/subjects/{id}/contacts/{contact}/mute`: whether alerts are sent.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{self, Json};
use super::operation::{JsonReply, NoBody};
use super::path::{ContactPath, Query, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use crate::actions::contacts::{self, ContactSelector};
use crate::redis_client::Partition;
use crate::subjects::mutes::set_mute;
use crate::types::mute::REASON_BYTES_MAX;
use crate::types::{ContactId, Metric, Mute, MuteEnd, Subject};

/// Without an end it lasts until somebody ends it. At most one of `until` and `for`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
#[schemars(rename = "MuteRequest")]
pub(super) struct MuteBody {
    /// A time in RFC 3339 with offset, in the future by the server's clock.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(required)]
    until: Option<MuteEnd>,
    /// A number and a unit, such as `30m`, `2h` or `3d`.
    #[serde(default, rename = "for", deserialize_with = "body::optional_text")]
    #[schemars(required)]
    duration: Option<String>,
    /// Why, in somebody's own words.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(required, length(min = 1, max = REASON_BYTES_MAX))]
    reason: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MuteQuery {
    /// Only the alerts of this metric.
    metric: Option<Metric>,
}

/// The mute of a subject, or of one metric of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MutedSubject {
    subject: Subject,
    metric: Option<Metric>,
    mute: Mute,
}

/// The mute of a contact.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MutedContact {
    subject: Subject,
    contact: ContactId,
    mute: Mute,
}

/// `PUT /v1/subjects/{id}/mute`
pub(super) async fn mute_subject(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(MuteQuery { metric }): Query<MuteQuery>,
    Json(body): Json<MuteBody>,
) -> Result<JsonReply<MutedSubject>, Problem> {
    let mute = body.into_mute(&api).await?;
    set(&api, &subject, metric.as_ref(), Some(&mute)).await?;
    Ok(JsonReply(MutedSubject { subject, metric, mute }))
}

/// `DELETE /v1/subjects/{id}/mute`
pub(super) async fn unmute_subject(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(MuteQuery { metric }): Query<MuteQuery>,
) -> Result<NoBody<204>, Problem> {
    set(&api, &subject, metric.as_ref(), None).await?;
    Ok(NoBody)
}

/// Mutes a subject or one metric of it, or ends that mute. After an error it may be written.
async fn set(api: &ApiState, subject: &Subject, metric: Option<&Metric>, mute: Option<&Mute>) -> Result<(), Problem> {
    let Partition { client, keys } = api.partitions.partition_of(subject);
    within(CALL_TIMEOUT, set_mute(client, keys, subject, metric, mute)).await.map(drop)
}

/// `PUT /v1/subjects/{id}/contacts/{contact}/mute`
pub(super) async fn mute_contact(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
    Json(body): Json<MuteBody>,
) -> Result<JsonReply<MutedContact>, Problem> {
    let mute = body.into_mute(&api).await?;
    set_of_contact(&api, &subject, &contact, Some(&mute)).await?;
    Ok(JsonReply(MutedContact { subject, contact, mute }))
}

/// `DELETE /v1/subjects/{id}/contacts/{contact}/mute`
pub(super) async fn unmute_contact(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<NoBody<204>, Problem> {
    set_of_contact(&api, &subject, &contact, None).await?;
    Ok(NoBody)
}

async fn set_of_contact(
    api: &ApiState,
    subject: &Subject,
    contact: &ContactId,
    mute: Option<&Mute>,
) -> Result<(), Problem> {
    let (partition, selector) = (api.partitions.partition_of(subject), ContactSelector::Id(contact));
    within(CALL_TIMEOUT, contacts::set_mute(partition, subject, selector, mute)).await.map(drop)
}

impl MuteBody {
    /// The mute by the server's clock.
    async fn into_mute(self, api: &ApiState) -> Result<Mute, Problem> {
        let Self { until, duration, reason } = self;
        let end = MuteEnd::new(until, duration.as_deref()).map_err(Problem::bad_request)?;
        let now = within(CALL_TIMEOUT, api.partitions.first().client.server_time()).await?;
        Mute::new(end, reason, now).map_err(|error| Problem::bad_request(error.to_string()))
    }
}
