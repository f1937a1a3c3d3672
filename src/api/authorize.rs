//! `/v1/authorize`: the decision of `/v1/check` for gateways that ask with a request of their own.
//!
//! nginx, Envoy, Traefik and others send a sub-request before each request, and pass its answer on. They can set
//! headers or a fixed query, and no body. Read next: [`super::check`], the decision.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::check::{self, Question, Trace};
use super::config::QUOTA_HEADERS;
use super::operation::{Describe, OperationDoc};
use super::path::{OfCaller, Query};
use super::problem::Problem;
use super::state::ApiState;
use crate::types::text_form::inline_schema;
use crate::types::{EventId, Metric, Subject, Units};

const STATUS: HeaderName = HeaderName::from_static("x-quota-status");

/// Read only if the path is exactly `/v1/authorize`. A parameter wins over its header, which a client might have sent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AuthorizeQuery {
    /// In place of the header `X-Quota-Subject`.
    #[schemars(with = "Option<Subject>")]
    subject: Option<String>,
    /// In place of the header `X-Quota-Metric`; `requests` without both.
    #[schemars(with = "Option<Metric>")]
    metric: Option<String>,
    /// In place of the header `X-Quota-Units`; 1 without both.
    #[schemars(with = "Option<Units>")]
    units: Option<String>,
    /// In place of the header `X-Quota-Id`.
    #[schemars(with = "Option<EventId>")]
    id: Option<String>,
    /// In place of the header `X-Quota-Record`.
    #[schemars(with = "Option<bool>")]
    record: Option<String>,
    /// `403` for gateways that know no 429: a refusal has the status 403 and the header `X-Quota-Status: 429`.
    #[schemars(with = "Option<String>", extend("enum" = ["403"]))]
    deny: Option<String>,
}

/// What a gateway asks.
#[derive(Debug)]
pub(super) struct Authorize {
    question: Question,
    /// Whether a refusal is a 403.
    denies_by_403: bool,
}

impl FromRequestParts<Arc<ApiState>> for Authorize {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<ApiState>) -> Result<Self, Problem> {
        let Query(query) = Query::from_request_parts(parts, api).await?;
        Self::read(&parts.headers, query, api.checks.subject_header())
    }
}

/// What a gateway asks that appends the path and the query of its client.
#[derive(Debug)]
pub(super) struct AuthorizeBelow(Authorize);

impl FromRequestParts<Arc<ApiState>> for AuthorizeBelow {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<ApiState>) -> Result<Self, Problem> {
        Authorize::read(&parts.headers, AuthorizeQuery::default(), api.checks.subject_header()).map(Self)
    }
}

impl Authorize {
    fn read(headers: &HeaderMap, query: AuthorizeQuery, subject_header: &str) -> Result<Self, Problem> {
        let AuthorizeQuery { subject, metric, units, id, record, deny } = query;
        let subject = match subject {
            Some(given) => given.into_bytes(),
            None => header(headers, subject_header)?.ok_or_else(|| {
                Problem::bad_request(format!(
                    "the request names no subject: it needs the header {subject_header}, or the query parameter subject if the \
                     path is /v1/authorize"
                ))
            })?,
        };
        let subject = Subject::parse(&subject).map_err(|error| Problem::bad_request(format!("subject: {error}")))?;
        let text = |given: Option<String>, name: &str| match given {
            Some(given) => Ok(Some(given)),
            None => header(headers, name)?
                .map(String::from_utf8)
                .transpose()
                .map_err(|_| Problem::bad_request(format!("{name}: is not UTF-8"))),
        };
        let [of_metric, of_units, of_id, of_record] = QUOTA_HEADERS;
        let question = Question {
            subject,
            metric: parsed("metric", text(metric, of_metric)?)?.unwrap_or_default(),
            units: parsed("units", text(units, of_units)?)?.unwrap_or(Units::ONE),
            record: parsed("record", text(record, of_record)?)?.unwrap_or(false),
            id: parsed("id", text(id, of_id)?)?,
            traceparent: Trace::of(headers).0,
        };
        let denies_by_403 = match deny.as_deref() {
            None => false,
            Some("403") => true,
            Some(_) => return Err(Problem::bad_request("deny: must be 403, or left out")),
        };
        Ok(Self { question, denies_by_403 })
    }
}

/// The value of a header. Two are refused: one of them may come from the gateway's client.
fn header(headers: &HeaderMap, name: &str) -> Result<Option<Vec<u8>>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.as_bytes().to_vec());
    if values.next().is_some() {
        let detail = format!("the header {name} is sent twice: the gateway must replace what its client sends");
        return Err(Problem::bad_request(detail));
    }
    Ok(value)
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(name: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    let read = |text: String| text.parse().map_err(|error| Problem::bad_request(format!("{name}: {error}")));
    text.map(read).transpose()
}

impl Describe for AuthorizeBelow {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.path_parameter::<AnyPath>("path", "Ignored: what the gateway appends.");
        describe_headers(operation);
    }
}

struct AnyPath;
inline_schema!(AnyPath, { "type": "string" });

impl Describe for Authorize {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.query::<AuthorizeQuery>();
        describe_headers(operation);
    }
}

fn describe_headers(operation: &mut OperationDoc<'_>) {
    // Any text: a header that the query replaces is not judged.
    let text = || json!({"type": "string"});
    operation.header("X-Quota-Subject", "The subject. `check.subject_header` gives this header another name.", text());
    let described =
        ["The metric.", "A whole number, 1 without it.", "The id of the usage event.", "`true` or `false`."];
    for (name, description) in QUOTA_HEADERS.into_iter().zip(described) {
        operation.header(name, description, text());
    }
    Trace::describe(operation);
}

/// The answer to a request that may proceed: no body.
pub(super) struct Authorized(check::Allowed);

impl Describe for Authorized {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer = Some((200, None));
    }
}

impl IntoResponse for Authorized {
    fn into_response(self) -> Response {
        self.0.0.into_response()
    }
}

/// `/v1/authorize`, with any method.
pub(super) async fn authorize(
    State(api): State<Arc<ApiState>>,
    caller: OfCaller,
    Authorize { question, denies_by_403 }: Authorize,
) -> Result<Authorized, Problem> {
    match check::decide(&api, &caller, question).await {
        Ok(allowed) => Ok(Authorized(allowed)),
        Err(problem) if denies_by_403 && problem.status() == StatusCode::TOO_MANY_REQUESTS => {
            Err(problem.with_status(StatusCode::FORBIDDEN).header(STATUS, HeaderValue::from_static("429")))
        }
        Err(problem) => Err(problem),
    }
}

/// `/v1/authorize/{path}`, with any method.
pub(super) async fn authorize_below(
    state: State<Arc<ApiState>>,
    caller: OfCaller,
    AuthorizeBelow(asked): AuthorizeBelow,
) -> Result<Authorized, Problem> {
    authorize(state, caller, asked).await
}
