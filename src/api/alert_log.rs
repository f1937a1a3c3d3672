//! `GET /v1/alerts`: the log of alerts, as lines of JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use redis::RedisResult;
use schemars::JsonSchema;
use serde::Deserialize;

use super::path::{self, Query};
use super::problem::{Problem, within};
use super::state::ApiState;
use super::status_doc::NDJSON;
use crate::redis_client::Partition;
use crate::subjects::Plans;
use crate::types::{Subject, UnixMs};
use crate::views::alert_log::{LogFilter, of_partition};

/// The log of a partition may be large.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertLogQuery {
    /// Only those raised at this time or later.
    #[schemars(extend("format" = "date-time"))]
    since: Option<String>,
    /// Only those raised before this time.
    #[schemars(extend("format" = "date-time"))]
    until: Option<String>,
    /// Only this subject's.
    subject: Option<Subject>,
}

/// `GET /v1/alerts`
pub(super) async fn read(
    State(api): State<Arc<ApiState>>,
    Query(query): Query<AlertLogQuery>,
) -> Result<Response, Problem> {
    let since = path::parameter("since", query.since.as_deref())?.unwrap_or(UnixMs(0));
    let until = path::parameter("until", query.until.as_deref())?.unwrap_or(UnixMs(i64::MAX));
    if until <= since {
        return Err(Problem::bad_request("until: must be after since"));
    }
    let filter = Arc::new(LogFilter { since, until, subject: query.subject });
    let of_subject = api.partitions.of_subject_or_all(filter.subject.as_ref());
    let mut partitions: Vec<Partition> = of_subject.cloned().collect();
    let rest = partitions.split_off(1);
    // Before the status: while Redis is away, the answer is a problem and no cut body.
    let first = within(READ_TIMEOUT, lines(&partitions[0], &filter, &api.observer.plans)).await?;
    let rest = stream::iter(rest).then(move |partition| {
        let (filter, plans) = (Arc::clone(&filter), api.observer.plans.clone());
        async move { lines(&partition, &filter, &plans).await }
    });
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(rest));
    Ok(([(CONTENT_TYPE, NDJSON), (CACHE_CONTROL, "no-store")], body).into_response())
}

/// The alerts of a partition, one JSON object a line.
async fn lines(partition: &Partition, filter: &LogFilter, plans: &Plans) -> RedisResult<Vec<u8>> {
    let mut lines = Vec::new();
    for alert in of_partition(partition, filter, plans).await? {
        serde_json::to_writer(&mut lines, &alert).expect("a view is strings, numbers and lists");
        lines.push(b'\n');
    }
    Ok(lines)
}
