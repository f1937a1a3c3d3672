//! `/confirm/{token}`: the page behind a confirm link.
//!
//! Mail software opens links by itself, so opening shows a page and changes nothing; its button posts. The token is the secret: the
//! page needs no other. It loads nothing, is stored nowhere, and tells no other site where its reader came from.

use std::sync::{Arc, LazyLock};

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use minijinja::{Environment, UndefinedBehavior, context};

use super::Api;
use crate::types::nonce;
use crate::verification::Confirmed;

const TEMPLATE: &str = "confirm.html";

/// The name ends with `.html`, so every value is escaped.
static PAGES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut pages = Environment::new();
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    pages.add_template(TEMPLATE, include_str!("../../templates/confirm.html")).expect("a test renders the template");
    pages
});

/// What the page says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Page {
    /// A button.
    Ask,
    /// Done, for this subject.
    Confirmed(String),
    /// Done a moment ago, for this subject.
    Before(String),
    /// Used up, run out, or never there.
    Gone,
    /// Redis is away.
    Away,
}

/// `GET /confirm/{token}`. The same for every token: whoever tries tokens learns nothing here.
pub(super) async fn ask() -> Response {
    Page::Ask.into_response()
}

/// `POST /confirm/{token}`
pub(super) async fn confirm(State(api): State<Arc<Api>>, token: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(token)) = token else { return Page::Gone.into_response() };
    let page = match api.contacts.confirm(&token).await {
        Ok(Confirmed::Verified(subject)) => Page::Confirmed(subject.to_string()),
        Ok(Confirmed::Before(subject)) => Page::Before(subject.to_string()),
        Ok(Confirmed::Gone) => Page::Gone,
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, source, "a confirm link could not be used");
            Page::Away
        }
    };
    page.into_response()
}

impl Page {
    const fn state(&self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Confirmed(_) => "confirmed",
            Self::Before(_) => "before",
            Self::Gone => "gone",
            Self::Away => "away",
        }
    }

    const fn status(&self) -> StatusCode {
        match self {
            Self::Ask | Self::Confirmed(_) | Self::Before(_) => StatusCode::OK,
            Self::Gone => StatusCode::GONE,
            Self::Away => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn render(&self, nonce: &str) -> String {
        let subject = if let Self::Confirmed(subject) | Self::Before(subject) = self { Some(subject) } else { None };
        let page = PAGES
            .get_template(TEMPLATE)
            .and_then(|page| page.render(context! { state => self.state(), subject => subject, nonce => nonce }));
        page.expect("a test renders every page")
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let nonce = nonce();
        (self.status(), headers(&nonce), self.render(&nonce)).into_response()
    }
}

fn headers(nonce: &str) -> HeaderMap {
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    let mut headers: HeaderMap =
        fixed.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::try_from(policy).expect("hex digits fit into a header"));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that can't be rendered would be seen by the first customer.
    #[test]
    fn every_page_renders_and_only_two_have_a_button() {
        let alice = || "alice".to_owned();
        let done = [Page::Confirmed(alice()), Page::Before(alice()), Page::Gone].map(|page| (page, false));
        for (page, button) in [(Page::Ask, true), (Page::Away, true)].into_iter().chain(done) {
            let html = page.render("0123");
            assert_eq!(html.contains("<form method=\"post\">"), button, "{html}");
            assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<style nonce=\"0123\">"), "{html}");
            assert!(!html.contains("http://") && !html.contains("https://"), "it loads something: {html}");
        }
    }

    /// A subject is whatever somebody named it.
    #[test]
    fn a_subject_is_text_and_not_part_of_the_page() {
        let html = Page::Confirmed("<script>alert('x')</script>\"&".to_owned()).render("0123");
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
    }
}
