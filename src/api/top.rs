//! `GET /v1/top`: the subjects that used most, or are nearest to their limits.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;

use super::list_query::ListLimit;
use super::operation::JsonAnswer;
use super::path::{self, Query};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::{ApiState, QueryState};
use crate::ledger::batch::MetricPeriod;
use crate::types::{Metric, Period, Subject, Window};
use crate::views::TopView;
use crate::views::top::{self, RankingOrder, TOP_MAX, TopRequest};

/// A ranking of a million subjects by percent takes some seconds, and callers wait for each other.
const TOP_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// Of what; `requests` by default.
    #[schemars(with = "Option<Metric>")]
    metric: Option<String>,
    /// Of the period that goes on in UTC; `day` by default.
    #[schemars(with = "Option<Window>")]
    window: Option<String>,
    /// Of this period.
    #[schemars(with = "Option<Period>")]
    period: Option<String>,
    /// What the order goes by: units used, or the part of the limit that is used. By `percent`, subjects without a
    /// limit are left out.
    #[schemars(with = "Option<RankingOrder>", extend("default" = "used"))]
    by: Option<String>,
    /// Only subjects below this one.
    #[schemars(with = "Option<Subject>")]
    under: Option<String>,
    /// How many things the page may have.
    #[schemars(with = "Option<ListLimit>")]
    limit: Option<String>,
}

/// `GET /v1/top`: a ranking that may be some seconds old.
pub(super) async fn top(
    State(api): State<Arc<ApiState>>,
    Query(TopQuery { metric, window, period, by, under, limit }): Query<TopQuery>,
) -> Result<JsonAnswer<TopView>, Problem> {
    let metric: Metric = path::parameter("metric", metric.as_deref())?.unwrap_or_default();
    let window: Option<Window> = path::parameter("window", window.as_deref())?;
    let period: Option<Period> = path::parameter("period", period.as_deref())?;
    let by = path::parameter("by", by.as_deref())?.unwrap_or(RankingOrder::Used);
    let under: Option<Subject> = path::parameter("under", under.as_deref())?;
    let ListLimit(limit) = path::parameter("limit", limit.as_deref())?.unwrap_or_default();
    let QueryState { partitions, plans, top, .. } = &api.reads;
    let separator = partitions.first().keys.separator();
    let is_path = under.as_ref().map_or(Ok(()), |branch| separator.check(branch.as_str()));
    is_path.map_err(|error| Problem::bad_request(format!("under: {error}")))?;
    let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await?;
    let period = top::period(window, period, now);
    let period = period.map_err(|error| Problem::bad_request(format!("period: {error}")))?;
    let request = TopRequest { of: MetricPeriod { metric, period }, by, under };
    let read = top::read(partitions, plans, &request, TOP_MAX);
    let ranked = within(TOP_TIMEOUT, top.get_or_read(&request, read)).await?;
    let mut view = TopView::clone(&ranked);
    view.subjects.truncate(limit);
    Ok(JsonAnswer(view))
}
