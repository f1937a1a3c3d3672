//! The state of all subjects, deliveries and daemons: `/v1/overview`, `/v1/system`, `/v1/near`, `/v1/alerts/newest`,
//! `/v1/deliveries/dead`, `/v1/destinations`, `/v1/refused` and `/v1/mutes`.
//!
//! Every list is read in slices: it says how much it has examined, and where the next slice begins.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::body;
use super::list_query::{ListLimit, ListRequest};
use super::operation::JsonReply;
use super::path::{self, Query};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use crate::types::{Metric, Percent, UnixMs, Window};
use crate::views::alert_list::{NotifiedAlertFilter, NotifiedAlertsView};
use crate::views::alert_outcomes::AlertOutcome;
use crate::views::deliveries::{
    DeadCausesView, DeliveriesCursor, DestinationCursor, DestinationsView, dead_causes, destination_slice,
};
use crate::views::mutes::MutesView;
use crate::views::near::{NearReading, NearRequest, NearView};
use crate::views::near_ranking::NearFilter;
use crate::views::overview::{OverviewError, OverviewView};
use crate::views::refused::{self, GROUPED_MAX, RefusedReasonsView};
use crate::views::system::SystemView;
use crate::views::{Cursor, Observer, SubjectCursor};

/// `GET /v1/overview`
pub(super) async fn overview(State(api): State<Arc<ApiState>>) -> Result<JsonReply<OverviewView>, Problem> {
    within(CALL_TIMEOUT, api.observer.overview(NearReading::SHORT)).await.map(JsonReply)
}

/// `GET /v1/system`
pub(super) async fn system(State(api): State<Arc<ApiState>>) -> Result<JsonReply<SystemView>, Problem> {
    within(CALL_TIMEOUT, api.observer.system()).await.map(JsonReply)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NearQuery {
    /// Only this metric.
    metric: Option<Metric>,
    /// Only limits of this window.
    #[serde(default, deserialize_with = "body::optional_text")]
    window: Option<Window>,
    /// Only subjects that have used at least this percentage of the limit.
    #[serde(default, deserialize_with = "body::optional_text")]
    percent: Option<Percent>,
    /// The `next` of the page before; the first page without it.
    after: Option<String>,
    /// How many things the page may have.
    #[serde(default, deserialize_with = "body::text")]
    limit: ListLimit,
}

/// `GET /v1/near`
pub(super) async fn near(
    State(api): State<Arc<ApiState>>,
    Query(NearQuery { metric, window, percent, after, limit: ListLimit(limit) }): Query<NearQuery>,
) -> Result<JsonReply<NearView>, Problem> {
    let filter = NearFilter { metric, window, percent };
    let page = NearRequest { after: cursor(after.as_deref())?, limit, reading: NearReading::SHORT };
    let read = api.observer.near(&filter, page);
    within(CALL_TIMEOUT, read).await.map(JsonReply)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertsQuery {
    /// Only this metric.
    metric: Option<Metric>,
    /// Only limits of this window.
    #[serde(default, deserialize_with = "body::optional_text")]
    window: Option<Window>,
    /// Only thresholds at or above this percentage of the limit.
    #[serde(default, deserialize_with = "body::optional_text")]
    percent: Option<Percent>,
    /// Only those raised at this time or later.
    #[schemars(extend("format" = "date-time"))]
    since: Option<String>,
    /// If true, only those that nobody was notified of, without those that a mute held back.
    #[schemars(with = "Option<bool>")]
    nobody: Option<String>,
    /// The `next` of the page before; the first page without it.
    after: Option<String>,
    /// How many things the page may have.
    #[serde(default, deserialize_with = "body::text")]
    limit: ListLimit,
}

/// `GET /v1/alerts/newest`
pub(super) async fn alerts(
    State(api): State<Arc<ApiState>>,
    Query(query): Query<AlertsQuery>,
) -> Result<JsonReply<NotifiedAlertsView>, Problem> {
    let only_nobody = query.nobody.as_deref().map(str::parse::<bool>).transpose();
    let only_nobody = only_nobody.map_err(|_| Problem::bad_request("nobody: must be true or false"))?;
    let filter = NotifiedAlertFilter {
        subject: None,
        metric: query.metric,
        window: query.window,
        percent: query.percent,
        since: path::parameter::<UnixMs>("since", query.since.as_deref())?,
        outcome: only_nobody.unwrap_or(false).then_some(AlertOutcome::Nobody),
    };
    let after = cursor(query.after.as_deref())?.unwrap_or_default();
    let read = api.observer.alerts(&filter, after, query.limit.0);
    within(CALL_TIMEOUT, read).await.map(JsonReply)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SliceQuery {
    /// The `next` of the slice before; the first slice without it.
    after: Option<String>,
}

/// `GET /v1/deliveries/dead`
pub(super) async fn dead(
    State(api): State<Arc<ApiState>>,
    Query(SliceQuery { after }): Query<SliceQuery>,
) -> Result<JsonReply<DeadCausesView>, Problem> {
    let after: Option<DeliveriesCursor> = cursor(after.as_deref())?;
    within(CALL_TIMEOUT, dead_causes(&api.observer.partitions, after)).await.map(JsonReply)
}

/// `GET /v1/destinations`
pub(super) async fn destinations(
    State(api): State<Arc<ApiState>>,
    ListRequest { after, limit }: ListRequest<DestinationCursor>,
) -> Result<JsonReply<DestinationsView>, Problem> {
    let Observer { partitions, give_up_after, .. } = &api.observer;
    let read = destination_slice(partitions, after.unwrap_or_default(), limit, *give_up_after);
    within(CALL_TIMEOUT, read).await.map(JsonReply)
}

/// `GET /v1/refused`
pub(super) async fn refused(
    State(api): State<Arc<ApiState>>,
    Query(SliceQuery { after }): Query<SliceQuery>,
) -> Result<JsonReply<RefusedReasonsView>, Problem> {
    let after = cursor(after.as_deref())?.unwrap_or_default();
    within(CALL_TIMEOUT, refused::by_reason(&api.observer.partitions, after, None, GROUPED_MAX)).await.map(JsonReply)
}

/// `GET /v1/mutes`
pub(super) async fn mutes(
    State(api): State<Arc<ApiState>>,
    Query(SliceQuery { after }): Query<SliceQuery>,
) -> Result<JsonReply<MutesView>, Problem> {
    let after: Option<SubjectCursor> = cursor(after.as_deref())?;
    within(CALL_TIMEOUT, api.observer.mutes(after.unwrap_or_default())).await.map(JsonReply)
}

fn cursor<C: DeserializeOwned>(after: Option<&str>) -> Result<Option<C>, Problem> {
    let cursor = path::parameter::<Cursor<C>>("after", after)?;
    Ok(cursor.map(|Cursor(position)| position))
}

impl From<OverviewError> for Problem {
    fn from(error: OverviewError) -> Self {
        match error {
            OverviewError::Redis(error) => error.into(),
            OverviewError::Totals(error) => error.into(),
        }
    }
}
