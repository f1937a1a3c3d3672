//! A page that says what is wrong, with a way on.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use minijinja::context;
use redis::RedisError;

use super::render::rendered_html;
use super::session::Visitor;
use crate::api::problem::Problem;

/// Why a page can't be shown.
#[derive(Debug)]
pub struct ConsoleError {
    status: StatusCode,
    detail: String,
}

impl ConsoleError {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }
}

impl From<Problem> for ConsoleError {
    fn from(problem: Problem) -> Self {
        Self::new(problem.status(), problem.detail())
    }
}

impl From<RedisError> for ConsoleError {
    fn from(error: RedisError) -> Self {
        Problem::from(error).into()
    }
}

impl IntoResponse for ConsoleError {
    fn into_response(self) -> Response {
        let Self { status, detail } = self;
        let title = status.canonical_reason().unwrap_or("Error");
        (status, rendered_html("error.html", &Visitor::Unknown, context! { title, detail })).into_response()
    }
}
