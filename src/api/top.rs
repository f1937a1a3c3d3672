//! `GET /v1/top`: the subjects that used most, or are nearest to their limits.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;

use super::body;
use super::list_query::ListLimit;
use super::operation::JsonReply;
use super::path::Query;
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::recent_reads::RANKING_TIMEOUT;
use super::state::{ApiState, QueryState};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::erasures;
use crate::outbox::counting_lag;
use crate::types::{Metric, Period, Subject, Window};
use crate::views::TopView;
use crate::views::top::{self, RankingOrder, TOP_MAX, TopRequest};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// Of what; `requests` by default.
    metric: Option<Metric>,
    /// Of the period that goes on in UTC; `day` by default.
    #[serde(default, deserialize_with = "body::optional_text")]
    window: Option<Window>,
    /// Of this period.
    period: Option<Period>,
    /// What the order goes by: units used, or the part of the limit that is used. By `percent`, subjects without a
    /// limit are left out.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(extend("default" = "used"))]
    by: Option<RankingOrder>,
    /// Only subjects below this one.
    under: Option<Subject>,
    /// How many things the page may have.
    #[serde(default, deserialize_with = "body::text")]
    limit: ListLimit,
}

/// `GET /v1/top`: a ranking that may be some seconds old.
pub(super) async fn top(
    State(api): State<Arc<ApiState>>,
    Query(TopQuery { metric, window, period, by, under, limit: ListLimit(limit) }): Query<TopQuery>,
) -> Result<JsonReply<TopView>, Problem> {
    let (metric, by) = (metric.unwrap_or_default(), by.unwrap_or(RankingOrder::Used));
    let QueryState { partitions, plans, top, .. } = &api.reads;
    let separator = partitions.first().keys.separator();
    let is_path = under.as_ref().map_or(Ok(()), |branch| separator.check(branch.as_str()));
    is_path.map_err(|error| Problem::bad_request(format!("under: {error}")))?;
    let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await?;
    let period = top::period(window, period, now);
    let period = period.map_err(|error| Problem::bad_request(format!("period: {error}")))?;
    let request = TopRequest { of: MetricPeriod { metric, period }, by, under };
    let read = top::read(partitions, plans, &request, TOP_MAX);
    let erasures = within(CALL_TIMEOUT, erasures::count(partitions.first())).await?;
    let lag = within(CALL_TIMEOUT, counting_lag::of_any(partitions)).await?;
    let ranked = within(RANKING_TIMEOUT, top.get_or_read(&(request.clone(), erasures), lag, read)).await?;
    let mut view = TopView::clone(&ranked);
    view.subjects.truncate(limit);
    Ok(JsonReply(view))
}
