//! `GET /v1/alerts`: the log of alerts, as lines of JSON that are sent while it is read.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use redis::RedisResult;
use schemars::JsonSchema;
use serde::Deserialize;

use super::path::{self, Query};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use super::status_doc::NDJSON;
use crate::redis_client::Partition;
use crate::types::{Subject, UnixMs};
use crate::views::alert_log::{LogFilter, LogReader};

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
    let filter = LogFilter { since, until, subject: query.subject };
    let of_subject = api.partitions.of_subject_or_all(filter.subject.as_ref());
    let mut export = Export { partitions: of_subject.cloned().collect(), reader: None, filter, api };
    // Before the status: while Redis is away, the answer is a problem and no cut body.
    let first = within(CALL_TIMEOUT, export.next()).await?.unwrap_or_default();
    let rest = stream::try_unfold(export, |mut export| async move {
        let lines = export.next().await?;
        RedisResult::Ok(lines.map(|lines| (lines, export)))
    });
    let body = Body::from_stream(stream::iter([RedisResult::Ok(first)]).chain(rest));
    Ok(([(CONTENT_TYPE, NDJSON), (CACHE_CONTROL, "no-store")], body).into_response())
}

/// The lines that are not sent yet. They are read when the client has taken those before.
struct Export {
    /// The partitions that are left to read.
    partitions: VecDeque<Partition>,
    /// Reads the partition that was taken out last.
    reader: Option<LogReader>,
    filter: LogFilter,
    api: Arc<ApiState>,
}

impl Export {
    /// The lines of the next read, one JSON object each; perhaps none although more follow. `None` at the end.
    async fn next(&mut self) -> RedisResult<Option<Vec<u8>>> {
        loop {
            if let Some(reader) = &mut self.reader
                && let Some(logged) = reader.next().await?
            {
                let mut lines = Vec::new();
                for one in logged {
                    serde_json::to_writer(&mut lines, &one).expect("a view is strings, numbers and lists");
                    lines.push(b'\n');
                }
                return Ok(Some(lines));
            }
            let Some(partition) = self.partitions.pop_front() else { return Ok(None) };
            let plans = self.api.observer.plans.clone();
            self.reader = Some(LogReader::begin(partition, self.filter.clone(), plans).await?);
        }
    }
}
