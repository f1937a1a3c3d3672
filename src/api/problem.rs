//! Errors of the API: problems of RFC 9457.
//!
//! A problem is built where the error is found. Only this file turns it into a response, so that all problems look the
//! same.

use std::error::Error;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use redis::RedisError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::scope::Scope;
use crate::outbox::OutboxError;
use crate::redis_client::{ErrorKind, error_kind};

pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The status alone tells the kind of the problem.
const BLANK: &str = "about:blank";

/// The kind of a problem about quotas, and its title (draft-ietf-httpapi-ratelimit-headers-11).
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const QUOTA_EXCEEDED_TITLE: &str = "Request cannot be satisfied as assigned quota has been exceeded";

/// An error response.
#[derive(Debug, Clone)]
pub struct Problem(Box<ProblemParts>);

/// Boxed, so that a result that holds a problem stays small.
#[derive(Debug, Clone)]
struct ProblemParts {
    status: StatusCode,
    headers: HeaderMap,
    body: ProblemBody,
}

/// A problem (RFC 9457).
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct ProblemBody {
    #[serde(rename = "type")]
    #[schemars(extend("format" = "uri-reference"))]
    kind: &'static str,
    title: &'static str,
    #[schemars(range(min = 400, max = 599))]
    status: u16,
    /// What is wrong, where, and what is allowed.
    detail: String,
    #[serde(flatten)]
    #[schemars(skip)]
    members: Map<String, Value>,
}

impl Problem {
    /// A problem without a type: its title is that of the status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let body =
            ProblemBody { kind: BLANK, title, status: status.as_u16(), detail: detail.into(), members: Map::new() };
        Self(Box::new(ProblemParts { status, headers: HeaderMap::new(), body }))
    }

    /// The request itself is wrong (400).
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The token is missing or wrong (401). `challenge` is the value of `WWW-Authenticate`.
    pub fn unauthorized(detail: impl Into<String>, challenge: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail).header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// A route is off until the operator sets a token (403).
    pub fn needs_token(what: &str) -> Self {
        let detail =
            format!("{what} is off until the operator sets a token: set http.token, http.token_file or http.tokens");
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// The caller's token has not the scope of the route (403).
    pub fn lacks_scope(caller: &str, scope: Scope) -> Self {
        let detail = format!("the token of {caller} lacks the scope {scope}: the operator sets http.tokens");
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// A call to Redis failed, or was not answered (503).
    pub fn of_redis(kind: ErrorKind) -> Self {
        let detail = match kind {
            ErrorKind::Full => "the memory of Redis is full: the operator has to free some, then try again",
            ErrorKind::Login | ErrorKind::Denied => "Redis refuses the daemon: the operator has to repair it",
            ErrorKind::MovedAway => "everything was moved to another deployment: ask the daemon there",
            ErrorKind::WrongType => "a key of quotabell holds unexpected data: the operator has to repair it",
            _ => "Redis does not answer: try again",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// A quota or a rate limit is exceeded (429).
    pub fn quota_exceeded(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail).of_kind(QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE)
    }

    /// What is wrong, where, and what is allowed.
    pub fn detail(&self) -> &str {
        &self.0.body.detail
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The same detail and header fields with another status.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        let ProblemParts { headers, body, .. } = *self.0;
        let mut other = Self::new(status, body.detail);
        other.0.headers = headers;
        other
    }

    /// Sets the type, a URI, and its constant title.
    #[must_use]
    pub fn of_kind(mut self, kind: &'static str, title: &'static str) -> Self {
        self.0.body.kind = kind;
        self.0.body.title = title;
        self
    }

    /// Adds the fields of a struct as members. A field must not have the name of a standard member (`type`, `title`,
    /// `status`, `detail`).
    #[must_use]
    pub fn members(mut self, members: &impl Serialize) -> Self {
        let Ok(Value::Object(members)) = serde_json::to_value(members) else {
            unreachable!("a struct of strings and numbers is a JSON object")
        };
        self.0.body.members.extend(members);
        self
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }
}

impl From<RedisError> for Problem {
    fn from(error: RedisError) -> Self {
        tracing::warn!(%error, "Redis failed while a request was answered");
        Self::of_redis(error_kind(&error))
    }
}

impl From<OutboxError> for Problem {
    fn from(error: OutboxError) -> Self {
        tracing::warn!(error = &error as &dyn Error, "Redis failed while a request was answered");
        Self::of_redis(error.error_kind())
    }
}

/// Limits the duration of a call to Redis: a caller must not hang when Redis does. A call that writes may have written.
///
/// # Errors
///
/// The call's error, or 503 after `timeout`.
pub(crate) async fn within<T, E: Into<Problem>>(
    timeout: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, Problem> {
    let unanswered = |_| {
        tracing::warn!(?timeout, "Redis did not answer in time while a request was answered");
        Problem::of_redis(ErrorKind::Unreachable)
    };
    tokio::time::timeout(timeout, call).await.map_err(unanswered)?.map_err(Into::into)
}

/// Timeout of the calls of most routes.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of an erasure, which looks through every delivery and every refused event that is kept.
pub(crate) const ERASE_TIMEOUT: Duration = Duration::from_secs(60);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ProblemParts { status, mut headers, body } = *self.0;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
        let text = serde_json::to_vec(&body).expect("strings and numbers are JSON");
        (status, headers, text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients distinguish problems by these members.
    #[test]
    fn a_problem_is_written_as_rfc_9457_says() {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "used up")
            .of_kind("https://example.com/used-up", "Used up")
            .members(&serde_json::json!({"subject": "alice"}));
        let text = serde_json::to_string(&problem.0.body).expect("JSON");
        assert_eq!(
            text,
            r#"{"type":"https://example.com/used-up","title":"Used up","status":429,"detail":"used up","subject":"alice"}"#
        );
    }
}
