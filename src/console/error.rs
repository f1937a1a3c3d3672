//! A page that says what is wrong, with a way on.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use minijinja::context;
use redis::RedisError;
use serde::Serialize;

use super::render::{ERROR, rendered_html, shown};
use super::sentence::labelled;
use super::session::Visitor;
use crate::api::problem::Problem;
use crate::html::fields::SentFields;
use crate::html::href::up_from;
use crate::types::Channel;

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
    /// The fields in which people may change something.
    shown: BTreeMap<String, String>,
    hidden: SentFields,
}

impl RefusedForm {
    fn hidden(&self, name: &str) -> &str {
        self.hidden.iter().find(|(named, _)| named == name).map_or("", |(_, value)| value)
    }

    /// The title of the page that shows it again; `None` for one that can only be sent again.
    fn title(&self) -> Option<String> {
        let what = match self.action.as_str() {
            _ if self.shown.is_empty() => return None,
            "mute" => "Mute",
            "contacts" => "Add a contact to",
            "portal" => "Portal link of",
            _ => return None,
        };
        Some(format!("{what} {}", self.hidden("subject")))
    }
}

impl ConsoleError {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::Told { status, detail: detail.into(), way_on: String::new(), refused: None, up: String::new() }
    }

    /// A page that shows the fault beside its form.
    pub fn rendered(status: StatusCode, page: Response) -> Self {
        Self::Rendered(Box::new((status, page).into_response()))
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
            let shown = shown.into_iter().collect();
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
                let of_status = match status {
                    StatusCode::BAD_REQUEST => "This can't be done",
                    _ => status.canonical_reason().unwrap_or("Error"),
                };
                let title = refused.as_ref().and_then(|form| form.title()).unwrap_or_else(|| of_status.to_owned());
                let asked = refused.as_ref().map_or("", |form| form.hidden("do"));
                let channels = shown(&Channel::SENDING);
                let detail = labelled(&detail);
                // A form is sent again by its own button, or from its page.
                let again = status == StatusCode::SERVICE_UNAVAILABLE && way_on.is_empty() && refused.is_none();
                let content =
                    context! { title, detail, way_on, again, asked, channels, refused => shown(&refused), up };
                (status, rendered_html(ERROR, &Visitor::Unknown, content)).into_response()
            }
            Self::Rendered(response) => *response,
        }
    }
}
