//! `GET /v1/top`: who used most, or is nearest to the limit.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::list_query::ListLimit;
use super::path::{self, Query};
use super::problem::Problem;
use super::state::ApiState;
use super::subjects::answer;
use crate::types::{Metric, Period, Window};
use crate::views::TopView;
use crate::views::top::RankingOrder;

/// The query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    metric: Option<String>,
    window: Option<String>,
    period: Option<String>,
    by: Option<String>,
    limit: Option<String>,
}

/// `GET /v1/top`
pub(super) async fn top(
    State(api): State<Arc<ApiState>>,
    Query(TopQuery { metric, window, period, by, limit }): Query<TopQuery>,
) -> Result<Response, Problem> {
    let metric: Metric = path::parameter("metric", metric.as_deref())?.unwrap_or_default();
    let window: Option<Window> = path::parameter("window", window.as_deref())?;
    let period: Option<Period> = path::parameter("period", period.as_deref())?;
    let by = path::parameter("by", by.as_deref())?.unwrap_or(RankingOrder::Used);
    let ListLimit(limit) = path::parameter("limit", limit.as_deref())?.unwrap_or_default();
    let ranked = api.reads.top(metric, window, period, by).await?;
    let mut view = TopView::clone(&ranked);
    view.subjects.truncate(limit);
    Ok(answer(&view))
}
