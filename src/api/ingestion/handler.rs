//! Answers `POST /v1/events`: has the body decoded, appends the valid events, keeps the others.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::counter;
use redis::RedisError;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use tracing::Instrument as _;

use super::decoder::{BodyError, DecodedEvents, RefusedInRequest};
use super::request::EventsRequest;
use super::shared::Ingestion;
use crate::actions::append_events::{AppendError, NewEntries};
use crate::actions::refused_events::{self, RefusedNewEvent};
use crate::api::check_service::CheckService;
use crate::api::operation::{Describe, JsonReply, NoBody, OperationDoc};
use crate::api::path::OfCaller;
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::api::state::ApiState;
use crate::api::status_doc::{self, StatusDoc, no_body, of_handler, problem};
use crate::redis_client::{ErrorKind, Partitions, error_kind};
use crate::types::{ONCE_A_MINUTE, RefusalReason, UnixMs, meters};

/// Maximum number of refused events in an answer.
const REFUSED_SHOWN_MAX: usize = 100;
/// How long an append may take: longer than the client of Redis waits, which then makes a new connection.
const APPEND_TIMEOUT: Duration = Duration::from_secs(CALL_TIMEOUT.as_secs() + 1);
/// When a client should try again after a 503, seconds.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// The statuses with which a request is refused as a whole; values of the label `status`.
pub(in crate::api) const REFUSED_STATUSES: [&str; 7] = ["400", "401", "403", "408", "413", "415", "503"];

/// The answer to a request with at least one valid event.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::api) struct AcceptedEvents {
    /// Number of valid events: all of them are in the stream.
    accepted: u64,
    /// The first 100 refused events. `quotabell refused list` shows all of them.
    #[schemars(length(max = REFUSED_SHOWN_MAX))]
    refused: Vec<RefusedEventReply>,
}

/// Members of the problem for a request without a valid event.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::api) struct NoEventAccepted {
    /// The first 100 refused events. Absent if the body as a whole is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = REFUSED_SHOWN_MAX))]
    refused: Vec<RefusedEventReply>,
}

/// An event that can't be counted.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::api) struct RefusedEventReply {
    /// Its position in the request, from 0. Blank lines do not count.
    index: usize,
    /// Its id, if it has a readable one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    reason: RefusalReason,
    /// What is wrong, and what is allowed.
    detail: String,
}

/// The answer to accepted events.
#[derive(Debug)]
pub(in crate::api) enum EventsReply {
    Listed(AcceptedEvents),
    /// For a client that takes only this as success.
    NoContent,
}

impl Describe for EventsReply {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer::<AcceptedEvents>(202);
    }
}

impl IntoResponse for EventsReply {
    fn into_response(self) -> Response {
        match self {
            Self::Listed(accepted) => JsonReply::<_, 202>(accepted).into_response(),
            Self::NoContent => NoBody::<204>.into_response(),
        }
    }
}

/// What the answers of `POST /v1/events` mean.
pub(in crate::api) const ANSWERS: &[StatusDoc] = &[
    of_handler(202, "At least one event is valid, and all valid ones are in the stream. Or the body has no event."),
    problem(400, "No event is valid, or the body as a whole is wrong: then nothing is in the stream.")
        .members(SchemaGenerator::subschema_for::<NoEventAccepted>),
    problem(
        503,
        "Redis does not answer, refuses the daemon or is full, or too many bodies are in flight. Some of the events may \
         be in the stream: send the whole request again if they have ids.",
    )
    .headers(status_doc::RETRY_AFTER),
];
/// Those of `POST /api/v1/events`.
pub(in crate::api) const ANSWERS_OF_OPENMETER: &[StatusDoc] = &[
    ANSWERS[0],
    ANSWERS[1],
    ANSWERS[2],
    no_body(204, "The same as 202 with nothing refused, for the Python SDK of OpenMeter."),
];

/// `POST /v1/events`
pub(in crate::api) async fn events(
    State(api): State<Arc<ApiState>>,
    caller: OfCaller,
    request: EventsRequest,
) -> Result<EventsReply, Problem> {
    let caller = caller.0.map_or_else(String::new, |caller| caller.name.clone());
    let takes_no_content = request.takes_no_content();
    let Ingestion { partitions, rules, decoding, .. } = &api.ingestion;
    let arrival = (server_now(&api.checks, partitions).await?, api.reads.late_max);
    let (entries, rules) = (NewEntries::new(partitions), rules.current());
    let (decoded, reservation) = match request.is_large() {
        false => request.decode(&rules, arrival, entries),
        true => {
            let _permit = decoding.acquire().await.expect("never closed");
            let decoded = tokio::task::spawn_blocking(move || request.decode(&rules, arrival, entries));
            decoded.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
        }
    }
    .inspect_err(|problem| {
        tracing::warn!(name: ONCE_A_MINUTE, caller, problem = problem.detail(), "a request with events was refused as a whole");
    })?;
    let DecodedEvents { entries, accepted, refused } = decoded;
    let (shown, first) = (shown(&refused), refused.first().map(described));
    let partitions = partitions.clone();
    // A task of its own: if the client leaves, all of the request is appended all the same, and its memory stays
    // reserved until then.
    let appending = async move {
        let _reservation = reservation;
        append(&partitions, entries).await?;
        counter!(meters::HTTP_EVENTS_ACCEPTED).increment(accepted);
        match refused.is_empty() {
            true => Ok(()),
            false => keep(&partitions, &caller, refused, accepted).await,
        }
    };
    tokio::spawn(appending.in_current_span())
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    match first {
        Some(first) if accepted == 0 => {
            Err(Problem::bad_request(format!("no event is valid; {first}"))
                .members(&NoEventAccepted { refused: shown }))
        }
        None if takes_no_content => Ok(EventsReply::NoContent),
        _ => Ok(EventsReply::Listed(AcceptedEvents { accepted, refused: shown })),
    }
}

/// Counts the answer to a request with events that was refused as a whole, by its token too.
pub(in crate::api) async fn count_refused(answer: Response) -> Response {
    let status = answer.status();
    if !status.is_success() {
        counter!(meters::HTTP_EVENTS_REQUESTS_REFUSED, "status" => status.as_str().to_owned()).increment(1);
    }
    answer
}

/// The time of the server of Redis, which decides how far ahead of its arrival an event may be.
async fn server_now(checks: &CheckService, partitions: &Partitions) -> Result<UnixMs, Problem> {
    if let Some(now) = checks.server_now() {
        return Ok(now);
    }
    let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await;
    now.map_err(|problem: Problem| problem.header(RETRY_AFTER, RETRY_AFTER_S))
}

async fn append(partitions: &Partitions, entries: NewEntries) -> Result<(), Problem> {
    let failed = match tokio::time::timeout(APPEND_TIMEOUT, entries.append(partitions)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    let kind = failed.as_ref().map_or(ErrorKind::Unreachable, |error| error_kind(&error.source));
    kind.count("append_events");
    let appended = match &failed {
        Some(AppendError { appended, entries, source }) => {
            tracing::warn!(name: ONCE_A_MINUTE, appended, entries, error = source as &RedisError as &dyn std::error::Error, "events of a request were not appended");
            format!("at least {appended} of {entries} entries are in the stream")
        }
        None => {
            tracing::warn!(name: ONCE_A_MINUTE, timeout = ?APPEND_TIMEOUT, "Redis did not confirm the events of a request in time");
            "some of the entries may be in the stream".to_owned()
        }
    };
    let detail = format!(
        "{}; {appended}: send the whole request again if its events have ids",
        Problem::of_redis(kind).detail()
    );
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).header(RETRY_AFTER, RETRY_AFTER_S))
}

/// Keeps refused events, and counts them. 503 if Redis does not take them and nothing of the request was accepted: it
/// may be sent again, and counts then. Otherwise only the answer names them.
async fn keep(
    partitions: &Partitions,
    caller: &str,
    refused: Vec<RefusedInRequest>,
    accepted: u64,
) -> Result<(), Problem> {
    if let Some(RefusedInRequest { kept: RefusedNewEvent { broken, .. }, .. }) = refused.first() {
        tracing::warn!(
            name: ONCE_A_MINUTE, caller, events = refused.len(), reason = %broken.reason,
            "events can't be counted; quotabell refused list shows what is wrong with them"
        );
    }
    let kept: Vec<RefusedNewEvent> = refused.into_iter().map(|one| one.kept).collect();
    let source = format!("http:{caller}");
    let keeping = refused_events::keep(partitions, &source, &kept);
    let stored = within(CALL_TIMEOUT, keeping).await.map_err(|problem: Problem| {
        tracing::warn!(name: ONCE_A_MINUTE, caller, problem = problem.detail(), "refused events were not kept");
        problem.header(RETRY_AFTER, RETRY_AFTER_S)
    });
    if accepted == 0 {
        stored?;
    }
    for RefusedNewEvent { broken, .. } in &kept {
        counter!(meters::EVENTS_REFUSED, "reason" => broken.reason.as_str()).increment(1);
    }
    Ok(())
}

fn shown(refused: &[RefusedInRequest]) -> Vec<RefusedEventReply> {
    let shown = refused.iter().take(REFUSED_SHOWN_MAX);
    let answer = |one: &RefusedInRequest| RefusedEventReply {
        index: one.index,
        id: one.id.clone(),
        reason: one.kept.broken.reason,
        detail: one.kept.broken.detail.clone(),
    };
    shown.map(answer).collect()
}

fn described(RefusedInRequest { index, kept, .. }: &RefusedInRequest) -> String {
    format!("event {index}: {}: {}", kept.broken.reason, kept.broken.detail)
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::Budget(exhausted) => return exhausted.into(),
            BodyError::TooManyEvents | BodyError::TooManyEntries => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}
