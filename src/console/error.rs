//! A page that says what is wrong, with a way on.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use minijinja::context;
use redis::RedisError;

use super::render::rendered_html;
use super::session::Visitor;
use crate::api::problem::Problem;

/// Why a page can't be shown, or an action was not done.
#[derive(Debug)]
pub enum ConsoleError {
    /// A page says what is wrong, and where to go on.
    Told { status: StatusCode, detail: String, way_on: String },
    /// A page that was rendered already.
    Rendered(Box<Response>),
}

impl ConsoleError {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::Told { status, detail: detail.into(), way_on: String::new() }
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The same with a link to this page.
    #[must_use]
    pub fn with_way_to(self, page: &str) -> Self {
        match self {
            Self::Told { status, detail, .. } => Self::Told { status, detail, way_on: page.to_owned() },
            Self::Rendered(_) => self,
        }
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
        match self {
            Self::Told { status, detail, way_on } => {
                let title = status.canonical_reason().unwrap_or("Error");
                let content = context! { title, detail, way_on };
                (status, rendered_html("error.html", &Visitor::Unknown, content)).into_response()
            }
            Self::Rendered(response) => *response,
        }
    }
}
