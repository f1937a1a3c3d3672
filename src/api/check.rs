//! `POST /v1/check`: may this request proceed?
//!
//! Reads the request, has it decided, and writes the response with the header fields that HTTP has for it. Decides
//! nothing itself. Read next: [`super::check_service`].

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;

use crate::ledger::decision::CheckResponse;
use crate::ledger::{CheckDecision, CheckRequest};
use crate::types::{EventId, Metric, Subject, Units};

use super::body::{self, Json};
use super::check_service::CheckOutcome;
use super::problem::Problem;
use super::rate_limit_headers::{self, RateLimitFields};
use super::state::ApiState;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The body of the request, with the rules of the usage event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct CheckBody {
    #[serde(deserialize_with = "body::text")]
    subject: Subject,
    #[serde(default, deserialize_with = "body::text")]
    metric: Metric,
    #[serde(default = "one_unit", deserialize_with = "body::units")]
    units: Units,
    #[serde(default)]
    record: bool,
    #[serde(default, deserialize_with = "body::optional_text")]
    id: Option<EventId>,
}

const fn one_unit() -> Units {
    Units::ONE
}

/// `POST /v1/check`
pub(super) async fn check(State(api): State<Arc<ApiState>>, Json(body): Json<CheckBody>) -> Result<Response, Problem> {
    let CheckBody { subject, metric, units, record, id } = body;
    if record && !api.token.is_set() {
        return Err(Problem::needs_token("record"));
    }
    let record = record.then(|| id.unwrap_or_else(|| EventId::numbered(rand::random())));
    let request = CheckRequest { subject, metric, units, record };
    match api.checks.decide(&request).await {
        CheckOutcome::Decided(decision) if decision.is_allowed() => {
            let response = CheckResponse::new(&request, &decision);
            Ok((StatusCode::OK, headers(&decision), json(&response)).into_response())
        }
        CheckOutcome::Decided(decision) => Err(quota_exceeded(&request, &decision)),
        CheckOutcome::FailOpen(recorded) => {
            let response = CheckResponse::new(&request, &CheckDecision { recorded, ..CheckDecision::not_judged() });
            Ok((StatusCode::OK, json(&response)).into_response())
        }
        CheckOutcome::FailClosed => Err(fail_closed(&request)),
    }
}

fn json(response: &CheckResponse) -> ([(HeaderName, HeaderValue); 1], Vec<u8>) {
    let text = serde_json::to_vec(response).expect("strings and numbers are JSON");
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text)
}

fn headers(decision: &CheckDecision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(RateLimitFields { limit, policy }) = rate_limit_headers::fields(decision) {
        headers.insert(RATE_LIMIT, limit);
        headers.insert(RATE_LIMIT_POLICY, policy);
    }
    headers
}

fn quota_exceeded(request: &CheckRequest, decision: &CheckDecision) -> Problem {
    let CheckRequest { subject, metric, units, .. } = request;
    let violated: Vec<&str> = rate_limit_headers::violated(decision).collect();
    let never = decision.never_fits();
    let detail = if never {
        format!("{subject} asks for {units} of {metric}, more than the whole limit ({})", violated.join(", "))
    } else {
        format!("{subject} may not use {units} of {metric} now ({})", violated.join(", "))
    };
    let mut problem = Problem::quota_exceeded(detail)
        .member("violated-policies", violated)
        .members(members(&CheckResponse::new(request, decision)))
        .header(RETRY_AFTER, rate_limit_headers::retry_after(decision));
    for (name, value) in headers(decision) {
        problem = problem.header(name.expect("each name once"), value);
    }
    problem
}

fn fail_closed(request: &CheckRequest) -> Problem {
    let response = CheckResponse { allowed: false, ..CheckResponse::new(request, &CheckDecision::not_judged()) };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nobody can judge now, and check.on_error is \"deny\"")
        .members(members(&response))
        .header(RETRY_AFTER, HeaderValue::from_static("1"))
}

fn members(response: &CheckResponse) -> serde_json::Map<String, Value> {
    match serde_json::to_value(response) {
        Ok(Value::Object(members)) => members,
        _ => unreachable!("a struct of strings and numbers is a JSON object"),
    }
}
