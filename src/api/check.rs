//! `POST /v1/check`: may this request proceed?
//!
//! Reads the request, passes it to the check service, and writes the response with the standard HTTP header fields.
//! Read next: [`super::check_service`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ledger::decision::CheckResponse;
use crate::ledger::{CheckDecision, CheckRequest};
use crate::types::{EventId, Metric, MetricFormat, Subject, TraceParent, Units, Window};

use super::body::{self, Json};
use super::check_service::CheckOutcome;
use super::operation::{Describe, OperationDoc};
use super::path::OfCaller;
use super::problem::Problem;
use super::rate_limit_headers::{self, RATE, RateLimitFields};
use super::scope::Scope;
use super::state::ApiState;
use super::status_doc::{self, HeaderDoc, StatusDoc, ok, problem};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The body of the request, with the rules of the usage event.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
#[schemars(rename = "CheckRequest", example = example(r#"{"subject": "alice"}"#))]
#[schemars(example = example(
    r#"{"subject": "alice", "metric": "tokens.in", "units": 350, "record": true, "id": "7f3c"}"#
))]
pub(super) struct CheckBody {
    /// Who: 1 to 256 bytes of UTF-8 without control characters.
    #[serde(deserialize_with = "body::text")]
    subject: Subject,
    /// Of what.
    #[serde(default, deserialize_with = "body::text")]
    metric: Metric,
    /// A whole number, also written as `1.0` or `1e3`.
    #[serde(default = "one_unit", deserialize_with = "body::units")]
    units: Units,
    /// Whether to append the usage event if the request may proceed. Needs a token with
    /// the scope `events:write`.
    #[serde(default)]
    record: bool,
    /// Of the usage event, 1 to 128 bytes of UTF-8; the same one counts once. Without it one is made. Not used without
    /// `record`.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(required)]
    id: Option<EventId>,
}

const fn one_unit() -> Units {
    Units::ONE
}

fn example(body: &str) -> Value {
    serde_json::from_str(body).expect("JSON")
}

/// The response to a request that may proceed.
pub(super) struct Allowed(pub(super) HeaderMap, CheckResponse);

impl IntoResponse for Allowed {
    fn into_response(self) -> Response {
        let Self(mut headers, response) = self;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (headers, serde_json::to_vec(&response).expect("strings and numbers are JSON")).into_response()
    }
}

impl Describe for Allowed {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer::<CheckResponse>(200);
    }
}

/// The members of a refusal, in addition to the standard members of a problem.
#[derive(Debug, Serialize, JsonSchema)]
struct QuotaExceeded {
    /// The rate, and each limit by its window, that is exceeded. The number of a level above the subject comes first:
    /// `1/day` for the top.
    #[serde(rename = "violated-policies")]
    #[schemars(schema_with = "policies")]
    violated_policies: Vec<String>,
    #[serde(flatten)]
    check: CheckResponse,
}

fn policies(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<&str> = [RATE].into_iter().chain(Window::ALL.map(Window::as_str)).collect();
    let pattern = format!("^([1-9]/)?({})$", words.join("|"));
    json_schema!({"type": "array", "items": {"type": "string", "pattern": pattern}})
}

const LIMIT_DOC: HeaderDoc = HeaderDoc {
    name: "RateLimit",
    required: false,
    description: "draft-ietf-httpapi-ratelimit-headers-11, as `\"rate\";r=59;t=60, \"hour\";r=590;t=1380, \
                  \"day\";r=4990;t=3600`: the rate, and each limit by its window. Absent if nothing is \
         limited.",
    kind: "string",
};
const POLICY_DOC: HeaderDoc = HeaderDoc {
    name: "RateLimit-Policy",
    required: false,
    description: "As `\"rate\";q=60;w=60, \"hour\";q=600;w=3600, \"day\";q=5000;w=86400`.",
    kind: "string",
};

pub(super) const ALLOWED: StatusDoc =
    ok("It may proceed. Also if nothing could be judged and `check.on_error` is `allow`: then `judged` is false.")
        .headers(&[LIMIT_DOC, POLICY_DOC]);

pub(super) const REFUSED: StatusDoc =
    problem(429, "It may not proceed now.").members(SchemaGenerator::subschema_for::<QuotaExceeded>).headers(&[
        HeaderDoc { required: true, ..LIMIT_DOC },
        HeaderDoc { required: true, ..POLICY_DOC },
        HeaderDoc {
            name: "Retry-After",
            required: true,
            description: "Whole seconds, 1 or more; the longest wait if several refuse. If `fits` is false, no wait \
                          helps: then the rate's interval, the time until the period ends, or an hour for a total.",
            kind: "integer",
        },
    ]);

pub(super) const NOT_JUDGED: StatusDoc = problem(
    503,
    "`check.on_error` is `deny`, and Redis is away or out of memory, or the subject's settings can't be read and have \
     no last good value.",
)
.members(SchemaGenerator::subschema_for::<CheckResponse>)
.headers(status_doc::RETRY_AFTER);

/// `POST /v1/check`
pub(super) async fn check(
    State(api): State<Arc<ApiState>>,
    caller: OfCaller,
    Trace(traceparent): Trace,
    Json(body): Json<CheckBody>,
) -> Result<Allowed, Problem> {
    let CheckBody { subject, metric, units, record, id } = body;
    decide(&api, &caller, Question { subject, metric, units, record, id, traceparent }).await
}

/// The trace of the request. One that is invalid or sent twice is none.
#[derive(Debug)]
pub(super) struct Trace(pub(super) Option<TraceParent>);

impl Trace {
    const HEADER: &str = "traceparent";

    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(Self::HEADER).iter();
        let value = values.next().filter(|_| values.next().is_none());
        Self(value.and_then(|value| TraceParent::from_field(value.as_bytes())))
    }
}

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

impl Describe for Trace {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.header(
            Self::HEADER,
            "The trace of the request (W3C Trace Context), which a recorded usage event carries on.",
            json!({"type": "string"}),
        );
    }
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) subject: Subject,
    pub(super) metric: Metric,
    pub(super) units: Units,
    pub(super) record: bool,
    pub(super) id: Option<EventId>,
    pub(super) traceparent: Option<TraceParent>,
}

/// Decides; a refusal is a problem.
pub(super) async fn decide(api: &ApiState, caller: &OfCaller, question: Question) -> Result<Allowed, Problem> {
    let Question { subject, metric, units, record, id, traceparent } = question;
    match &caller.0 {
        None if record => return Err(Problem::needs_token("record")),
        Some(caller) if record && !caller.scopes.contains(Scope::EventsWrite) => {
            return Err(Problem::lacks_scope(&caller.name, Scope::EventsWrite));
        }
        _ => {}
    }
    if let Err(error) = api.partitions.first().keys.separator().check(subject.as_str()) {
        return Err(Problem::bad_request(error.to_string()));
    }
    let record = record.then(|| id.unwrap_or_else(|| EventId::numbered(rand::random())));
    let request = CheckRequest { subject, metric, units, record, traceparent };
    let format = &api.observer.plans.format_of(&request.metric);
    match api.checks.decide(&request).await {
        CheckOutcome::Decided(decision) if decision.is_allowed() => {
            let response = CheckResponse::new(&request, &decision, format);
            Ok(Allowed(headers(&decision), response))
        }
        CheckOutcome::Decided(decision) => Err(quota_exceeded(&request, &decision, format)),
        CheckOutcome::FailOpen(recorded) => {
            let decision = CheckDecision { recorded, ..CheckDecision::not_judged() };
            let response = CheckResponse::new(&request, &decision, format);
            Ok(Allowed(HeaderMap::new(), response))
        }
        CheckOutcome::FailClosed => Err(fail_closed(&request, format)),
    }
}

fn headers(decision: &CheckDecision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(RateLimitFields { limit, policy }) = rate_limit_headers::fields(decision) {
        headers.insert(RATE_LIMIT, limit);
        headers.insert(RATE_LIMIT_POLICY, policy);
    }
    headers
}

fn quota_exceeded(request: &CheckRequest, decision: &CheckDecision, format: &MetricFormat) -> Problem {
    let violated: Vec<String> = rate_limit_headers::violated(decision).collect();
    let detail = format!("{} ({})", decision.refusal(request, format), violated.join(", "));
    let mut problem = Problem::quota_exceeded(detail)
        .members(&QuotaExceeded { violated_policies: violated, check: CheckResponse::new(request, decision, format) })
        .header(RETRY_AFTER, decision.retry_after_s().into());
    for (name, value) in headers(decision) {
        problem = problem.header(name.expect("each name once"), value);
    }
    problem
}

fn fail_closed(request: &CheckRequest, format: &MetricFormat) -> Problem {
    let response =
        CheckResponse { allowed: false, ..CheckResponse::new(request, &CheckDecision::not_judged(), format) };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nobody can judge now, and check.on_error is \"deny\"")
        .members(&response)
        .header(RETRY_AFTER, HeaderValue::from_static("1"))
}
