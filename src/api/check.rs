//! `POST /v1/check`: may this request proceed?
//!
//! Reads the question, has it decided, and writes the answer with the fields that HTTP has for it. Decides nothing by itself. Read
//! next: [`super::checker`].

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;

use crate::ledger::decision::CheckResponse;
use crate::ledger::{CheckDecision, CheckRequest};
use crate::types::units::UNITS_MAX;
use crate::types::{EventId, Units};

use super::body::{Given, Json};
use super::checker::Decided;
use super::problem::Problem;
use super::rate_limit::{self, RateLimit};
use super::routes::needs_token;
use super::{Api, token::Token};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The body of the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct Body {
    #[serde(default)]
    subject: Given,
    #[serde(default)]
    metric: Given,
    #[serde(default)]
    units: Given,
    #[serde(default)]
    record: Given,
    #[serde(default)]
    id: Given,
}

impl Body {
    /// Judges the fields by the rules of the usage event.
    fn question(self, token: Option<&Token>) -> Result<CheckRequest, Problem> {
        let Self { subject, metric, units, record, id } = self;
        let subject = subject.required_text("subject")?;
        let metric = metric.text("metric")?.unwrap_or_default();
        let units = units.whole_number("units", format_args!("1 to {UNITS_MAX}"))?.unwrap_or(Units::ONE);
        let record = record.truth("record")?.unwrap_or(false);
        let id = id.text("id")?;
        if record && token.is_none() {
            return Err(needs_token("record"));
        }
        let record = record.then(|| id.unwrap_or_else(|| EventId::numbered(rand::random())));
        Ok(CheckRequest { subject, metric, units, record })
    }
}

/// `POST /v1/check`
pub(super) async fn check(State(api): State<Arc<Api>>, Json(body): Json<Body>) -> Result<Response, Problem> {
    let question = body.question(api.token.as_ref())?;
    match api.checks.decide(&question).await {
        Decided::Judged(judgement) if judgement.is_allowed() => {
            let written = CheckResponse::new(&question, &judgement);
            Ok((StatusCode::OK, fields(&judgement), json(&written)).into_response())
        }
        Decided::Judged(judgement) => Err(refused(&question, &judgement)),
        Decided::LetPass(recorded) => {
            let written = CheckResponse::new(&question, &CheckDecision { recorded, ..CheckDecision::none() });
            Ok((StatusCode::OK, json(&written)).into_response())
        }
        Decided::TurnedAway => Err(turned_away(&question)),
    }
}

fn json(written: &CheckResponse) -> ([(HeaderName, HeaderValue); 1], Vec<u8>) {
    let text = serde_json::to_vec(written).expect("strings and numbers are JSON");
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text)
}

fn fields(judgement: &CheckDecision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(RateLimit { limit, policy }) = rate_limit::fields(judgement) {
        headers.insert(RATE_LIMIT, limit);
        headers.insert(RATE_LIMIT_POLICY, policy);
    }
    headers
}

fn refused(question: &CheckRequest, judgement: &CheckDecision) -> Problem {
    let CheckRequest { subject, metric, units, .. } = question;
    let violated: Vec<&str> = rate_limit::violated(judgement).collect();
    let never = judgement.never_fits();
    let detail = if never {
        format!("{subject} asks for {units} of {metric}, more than the whole limit ({})", violated.join(", "))
    } else {
        format!("{subject} may not use {units} of {metric} now ({})", violated.join(", "))
    };
    let mut problem = Problem::quota_exceeded(detail)
        .member("violated-policies", violated)
        .members(members(&CheckResponse::new(question, judgement)))
        .header(RETRY_AFTER, rate_limit::retry_after(judgement));
    for (name, value) in fields(judgement) {
        problem = problem.header(name.expect("each name once"), value);
    }
    problem
}

fn turned_away(question: &CheckRequest) -> Problem {
    let written = CheckResponse { allowed: false, ..CheckResponse::new(question, &CheckDecision::none()) };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nobody can judge now, and check.on_error is \"deny\"")
        .members(members(&written))
        .header(RETRY_AFTER, HeaderValue::from_static("1"))
}

fn members(written: &CheckResponse) -> serde_json::Map<String, Value> {
    match serde_json::to_value(written) {
        Ok(Value::Object(members)) => members,
        _ => unreachable!("a struct of strings and numbers is a JSON object"),
    }
}
