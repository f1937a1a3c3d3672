//! `GET /v1/top`: who used most, or is nearest to the limit.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::list_query::ListLimit;
use super::path::{self, Query};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::{ApiState, QueryState};
use super::subjects::answer;
use crate::ledger::batch::MetricPeriod;
use crate::types::{Metric, Period, Window};
use crate::views::TopView;
use crate::views::top::{self, RankingOrder, TOP_MAX, TopRequest};

/// A ranking of a million subjects by percent takes some seconds, and callers wait for one another.
const TOP_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    metric: Option<String>,
    window: Option<String>,
    period: Option<String>,
    by: Option<String>,
    limit: Option<String>,
}

/// `GET /v1/top`: as read within the last seconds.
pub(super) async fn top(
    State(api): State<Arc<ApiState>>,
    Query(TopQuery { metric, window, period, by, limit }): Query<TopQuery>,
) -> Result<Response, Problem> {
    let metric: Metric = path::parameter("metric", metric.as_deref())?.unwrap_or_default();
    let window: Option<Window> = path::parameter("window", window.as_deref())?;
    let period: Option<Period> = path::parameter("period", period.as_deref())?;
    let by = path::parameter("by", by.as_deref())?.unwrap_or(RankingOrder::Used);
    let ListLimit(limit) = path::parameter("limit", limit.as_deref())?.unwrap_or_default();
    let QueryState { partitions, plans, top, .. } = &api.reads;
    let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await?;
    let period = top::period(window, period, now);
    let period = period.map_err(|error| Problem::bad_request(format!("period: {error}")))?;
    let request = TopRequest { of: MetricPeriod { metric, period }, by };
    let read = top::read(partitions, plans, &request, TOP_MAX);
    let ranked = within(TOP_TIMEOUT, top.get_or_read(&request, read)).await?;
    let mut view = TopView::clone(&ranked);
    view.subjects.truncate(limit);
    Ok(answer(&view))
}
