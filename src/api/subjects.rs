//! `/v1/subjects/...` without contacts and mutes: the settings of subjects, their present and past usage, and their
//! alerts; also replaces settings and erases subjects.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use futures_util::TryFutureExt as _;
use redis::RedisResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{self, Json};
use super::etag::{IfMatch, TaggedReply, etag_of};
use super::list_query::{LIMIT_MAX, ListRequest};
use super::operation::JsonReply;
use super::path::{Query, SubjectPath};
use super::problem::{CALL_TIMEOUT, ERASE_TIMEOUT, Problem, within};
use super::state::{ApiState, QueryState};
use super::subject_body::SubjectBody;
use crate::actions::contacts::ContactActionError;
use crate::actions::grants;
use crate::actions::subject_change::{self, ContactsChange, SubjectChange};
use crate::contacts::store::EditContactsError;
use crate::erasure::{self, ErasedSubject, branch};
use crate::redis_client::Partition;
use crate::subjects::record::{SubjectField, limit_warnings};
use crate::subjects::{Plans, StoredLevels};
use crate::types::{Alert, Day, Metric, Subject, UnixMs, Window};
use crate::views::children::{self, ChildrenRequest, ChildrenView};
use crate::views::history::{self, DayRange, HistoryRequest, HistoryView};
use crate::views::usage::{self, UsageRequest};
use crate::views::{
    AlertCursor, AlertFilter, Cursor, SubjectCursor, SubjectSettings, SubjectSlice, SubjectView, UsageView, alerts,
    subject, subject_list,
};

/// A page of subjects.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SubjectList {
    #[schemars(length(max = LIMIT_MAX))]
    subjects: Vec<SubjectView>,
    /// What `after` takes to get the next page; null at the end.
    next: Option<String>,
}

/// `GET /v1/subjects`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    ListRequest { after, limit }: ListRequest<SubjectCursor>,
) -> Result<JsonReply<SubjectList>, Problem> {
    let QueryState { partitions, plans, .. } = &api.reads;
    let read = subject_list::read(partitions.first(), plans, after.unwrap_or_default(), limit);
    let SubjectSlice { subjects, next } = within(CALL_TIMEOUT, read).await?;
    Ok(JsonReply(SubjectList { subjects, next: next.map(|next| Cursor(next).to_string()) }))
}

/// `GET /v1/subjects/{id}`
pub(super) async fn show(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<TaggedReply<SubjectView>, Problem> {
    let QueryState { partitions, plans, .. } = &api.reads;
    let partition = partitions.partition_of(&subject);
    let read = async {
        RedisResult::Ok((subject::read_fields(partition, &subject).await?, partition.client.server_time().await?))
    };
    let (fields, now) = within(CALL_TIMEOUT, read).await?;
    if fields.is_empty() {
        let nothing = format!("nothing is set for subject {subject}: it has the default plan");
        return Err(Problem::new(StatusCode::NOT_FOUND, nothing));
    }
    Ok(TaggedReply(SubjectView::read(subject.as_str().as_bytes(), &fields, plans, now)))
}

/// `PUT /v1/subjects/{id}`: replaces the settings beside the contacts, and shows the subject as it is then. After an
/// error they may be written.
pub(super) async fn replace(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    if_match: IfMatch,
    Json(body): Json<SubjectBody>,
) -> Result<TaggedReply<SubjectView>, Problem> {
    let plans = &api.reads.plans;
    let partition = api.partitions.partition_of(&subject);
    let view_of = |fields: &[SubjectField], now| SubjectView::read(subject.as_str().as_bytes(), fields, plans, now);
    let view = async || -> RedisResult<SubjectView> {
        let fields = subject::read_fields(partition, &subject).await?;
        Ok(view_of(&fields, partition.client.server_time().await?))
    };
    if body.has_shown() {
        body.check_shown(&within(CALL_TIMEOUT, view()).await?)?;
    }
    let change =
        SubjectChange { subject: subject.clone(), settings: body.into_patch(plans)?, contacts: ContactsChange::Keep };
    let replaced = async {
        let now = partition.client.server_time().await?;
        let is_expected = |fields: &[SubjectField]| {
            let etag = (!fields.is_empty()).then(|| etag_of(&view_of(fields, now)));
            if_match.accepts(etag.as_deref())
        };
        let written = subject_change::write_if(partition, usize::MAX, &change, is_expected).await;
        let written = written.map_err(|error| match error {
            ContactActionError::Edit(EditContactsError::Redis(error)) => Problem::from(error),
            error => error.into(),
        })?;
        if written.is_none() {
            let outdated = format!("subject {subject} is no longer as If-Match says: get it again");
            return Err(Problem::new(StatusCode::PRECONDITION_FAILED, outdated));
        }
        Ok::<_, Problem>(view().await?)
    };
    let shown = within(CALL_TIMEOUT, replaced).await?;
    let settings = &change.settings;
    tracing::info!(%subject, "settings are replaced");
    for warning in limit_warnings(&settings.set) {
        tracing::warn!(%subject, "{warning}");
    }
    let of_grants = grants::warnings_of_lost_limits(partition, plans, &subject);
    for warning in within(CALL_TIMEOUT, of_grants.map_err(Problem::from)).await? {
        tracing::warn!(%subject, "{warning}");
    }
    Ok(TaggedReply(shown))
}

/// `DELETE /v1/subjects/{id}`: removes everything that is stored of it. After an error a part may be removed, and the
/// rest is when it is repeated.
pub(super) async fn erase(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<JsonReply<ErasedSubject>, Problem> {
    let erasing = async move {
        let QueryState { plans, event_age_max, .. } = &api.reads;
        let below = branch::below(&api.partitions, &subject).await?;
        let erased = erasure::erase_branch(&api.partitions, plans, *event_age_max, &subject, &below).await?;
        tracing::info!(%subject, subjects = erased.subjects, "everything that was stored of the subject is removed");
        Ok::<_, Problem>(erased)
    };
    // It goes on after the answer: to look through a long log of alerts may take longer.
    let erasing = tokio::spawn(erasing);
    let erased = async { erasing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) };
    within(ERASE_TIMEOUT, erased).await.map(JsonReply)
}

/// The settings of a subject, and server time.
async fn settings_now(
    partition: &Partition,
    subject: &Subject,
    plans: &Plans,
) -> RedisResult<(SubjectSettings, UnixMs)> {
    let stored = StoredLevels::read(&partition.client, &partition.keys, subject).await?;
    Ok((SubjectSettings::read(&stored, plans), partition.client.server_time().await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    /// A day, in the subject's time zone.
    day: Option<Day>,
}

/// `GET /v1/subjects/{id}/usage`
pub(super) async fn usage(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(UsageQuery { day }): Query<UsageQuery>,
) -> Result<JsonReply<UsageView>, Problem> {
    let QueryState { partitions, plans, late_max, .. } = &api.reads;
    let partition = partitions.partition_of(&subject);
    let read = async {
        let (settings, now) = settings_now(partition, &subject, plans).await?;
        let request = UsageRequest { subject, settings, day, now, late_max: *late_max };
        usage::read(partition, plans, request).await?.ok_or_else(|| no_period(now))
    };
    Ok(JsonReply(within(CALL_TIMEOUT, read).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChildrenQuery {
    /// The metric; `requests` if left out.
    metric: Option<Metric>,
    /// The window; the day if left out.
    #[serde(default, deserialize_with = "body::optional_text")]
    window: Option<Window>,
}

/// `GET /v1/subjects/{id}/children`
pub(super) async fn children(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(ChildrenQuery { metric, window }): Query<ChildrenQuery>,
) -> Result<JsonReply<ChildrenView>, Problem> {
    let (metric, window) = (metric.unwrap_or_default(), window.unwrap_or(Window::Day));
    let QueryState { partitions, plans, .. } = &api.reads;
    let partition = partitions.partition_of(&subject);
    let read = async {
        let (settings, now) = settings_now(partition, &subject, plans).await?;
        let request = ChildrenRequest { subject, settings, metric, window, now };
        children::read(partition, plans, request).await?.ok_or_else(|| no_period(now))
    };
    Ok(JsonReply(within(CALL_TIMEOUT, read).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Only this metric.
    metric: Option<Metric>,
    /// The first day, in the subject's time zone.
    from: Option<Day>,
    /// The last day.
    to: Option<Day>,
}

/// `GET /v1/subjects/{id}/history`
pub(super) async fn history(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Query(HistoryQuery { metric, from, to }): Query<HistoryQuery>,
) -> Result<JsonReply<HistoryView>, Problem> {
    let range = DayRange::new(from, to).map_err(|error| Problem::bad_request(format!("from: {error}")))?;
    let QueryState { partitions, plans, late_max, history_days, .. } = &api.reads;
    let partition = partitions.partition_of(&subject);
    let read = async {
        let (settings, now) = settings_now(partition, &subject, plans).await?;
        let (late_max, days) = (*late_max, *history_days);
        let request = HistoryRequest { subject, settings, metric, range, now, late_max, days };
        history::read(partition, plans, request).await?.ok_or_else(|| no_period(now))
    };
    Ok(JsonReply(within(CALL_TIMEOUT, read).await?))
}

/// No period holds the day that was asked for, or what the server's clock shows.
fn no_period(now: UnixMs) -> Problem {
    Problem::bad_request(format!("day: that day, or the time of Redis' clock, {now}, is in no period"))
}

/// A page of alerts.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AlertList {
    #[schemars(length(max = LIMIT_MAX))]
    alerts: Vec<Alert>,
    /// What `after` takes to get the next page; null at the end.
    next: Option<String>,
}

/// `GET /v1/subjects/{id}/alerts`
pub(super) async fn alerts(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    ListRequest { after, limit }: ListRequest<AlertCursor>,
) -> Result<JsonReply<AlertList>, Problem> {
    let partition = api.reads.partitions.partition_of(&subject);
    let filter = AlertFilter { subject: Some(subject), since: None };
    let read = async {
        let now = partition.client.server_time().await?;
        alerts::of_periods(partition, &alerts::kept_periods(now), &filter, now).await
    };
    let kept = within(CALL_TIMEOUT, read).await?;
    let (mut alerts, next) = AlertCursor::slice(after.as_ref(), kept, limit);
    api.observer.plans.add_units(&mut alerts);
    Ok(JsonReply(AlertList { alerts, next: next.map(|next| Cursor(next).to_string()) }))
}
