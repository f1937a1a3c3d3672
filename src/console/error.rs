//! A page that says what is wrong, with a way on.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use minijinja::context;
use redis::RedisError;
use serde::Serialize;

use super::render::{rendered_html, shown};
use super::session::Visitor;
use crate::api::problem::Problem;
use crate::html::fields::SentFields;
use crate::html::href::up_from;

/// Why a page can't be shown, or an action was not done.
#[derive(Debug)]
pub enum ConsoleError {
    /// A page says what is wrong, and where to go on.
    Told { status: StatusCode, detail: String, way_on: String, refused: Option<Box<RefusedForm>>, up: String },
    /// A page that was rendered already.
    Rendered(Box<Response>),
}

/// A form that was refused.
#[derive(Debug, Serialize)]
pub struct RefusedForm {
    action: String,
    shown: SentFields,
    hidden: SentFields,
}

impl ConsoleError {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::Told { status, detail: detail.into(), way_on: String::new(), refused: None, up: String::new() }
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The same with a link to this page.
    #[must_use]
    pub fn with_way_to(self, page: &str) -> Self {
        match self {
            Self::Told { status, detail, refused, up, .. } => {
                Self::Told { status, detail, way_on: page.to_owned(), refused, up }
            }
            Self::Rendered(_) => self,
        }
    }

    /// The same with the form, so that it can be corrected: the fields that are shown, and the hidden ones, as sent.
    #[must_use]
    pub fn with_form(mut self, action: &str, (shown, hidden): (SentFields, SentFields)) -> Self {
        if let Self::Told { refused, .. } = &mut self {
            *refused = Some(Box::new(RefusedForm { action: action.to_owned(), shown, hidden }));
        }
        self
    }

    /// The same with links for a page at this path.
    #[must_use]
    pub fn at(mut self, path: &str) -> Self {
        if let Self::Told { up, .. } = &mut self {
            *up = up_from(path);
        }
        self
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
            Self::Told { status, detail, way_on, refused, up } => {
                let title = match status {
                    StatusCode::BAD_REQUEST => "This can't be done",
                    _ => status.canonical_reason().unwrap_or("Error"),
                };
                let content = context! { title, detail, way_on, refused => shown(&refused), up };
                (status, rendered_html("error.html", &Visitor::Unknown, content)).into_response()
            }
            Self::Rendered(response) => *response,
        }
    }
}
