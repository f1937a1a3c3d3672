//! `/confirm/{token}`: the page of a confirm link.
//!
//! Mail software opens links by itself, so opening shows a page and changes nothing; its button posts. The token is the only secret
//! that is needed. The page loads nothing, is not cached, and sends no referrer.

use std::error::Error as _;
use std::sync::{Arc, LazyLock};

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use minijinja::{Environment, UndefinedBehavior, context};

use super::state::ApiState;
use crate::types::{Subject, nonce};
use crate::verification::ConfirmOutcome;

const TEMPLATE: &str = "confirm.html";

/// The name ends with `.html`, so every value is escaped.
static PAGES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut pages = Environment::new();
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    pages.add_template(TEMPLATE, include_str!("../../templates/confirm.html")).expect("a test renders the template");
    pages
});

/// `GET /confirm/{token}`. The same page for every token, so that it tells nothing about tokens.
pub(super) async fn show() -> Response {
    answer(StatusCode::OK, "ask", None)
}

/// `POST /confirm/{token}`
pub(super) async fn confirm(State(api): State<Arc<ApiState>>, token: Result<Path<String>, PathRejection>) -> Response {
    let outcome = match token {
        Ok(Path(token)) => api.verification.confirm(&token).await,
        Err(_) => Ok(ConfirmOutcome::Invalid),
    };
    match outcome {
        Ok(ConfirmOutcome::Verified(subject)) => answer(StatusCode::OK, "confirmed", Some(&subject)),
        Ok(ConfirmOutcome::AlreadyVerified(subject)) => answer(StatusCode::OK, "before", Some(&subject)),
        Ok(ConfirmOutcome::Invalid) => answer(StatusCode::GONE, "gone", None),
        Err(error) => {
            let source = error.source().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, source, "a confirm link could not be used");
            answer(StatusCode::SERVICE_UNAVAILABLE, "away", None)
        }
    }
}

/// The page in one of the states that its template knows.
fn answer(status: StatusCode, state: &str, subject: Option<&Subject>) -> Response {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (CONTENT_SECURITY_POLICY, &policy),
    ];
    (status, headers, render(state, subject.map(Subject::as_str), &nonce)).into_response()
}

fn render(state: &str, subject: Option<&str>, nonce: &str) -> String {
    let page = PAGES.get_template(TEMPLATE).and_then(|page| page.render(context! { state, subject, nonce }));
    page.expect("a test renders every page")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that can't be rendered would be seen by the first customer.
    #[test]
    fn every_page_renders_and_only_two_have_a_button() {
        for (state, subject, button) in [
            ("ask", None, true),
            ("away", None, true),
            ("confirmed", Some("alice"), false),
            ("before", Some("alice"), false),
            ("gone", None, false),
        ] {
            let html = render(state, subject, "0123");
            assert_eq!(html.contains("<form method=\"post\">"), button, "{html}");
            assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<style nonce=\"0123\">"), "{html}");
            assert!(!html.contains("http://") && !html.contains("https://"), "it loads something: {html}");
        }
    }

    /// A subject is whatever somebody named it.
    #[test]
    fn a_subject_is_text_and_not_part_of_the_page() {
        let html = render("confirmed", Some("<script>alert('x')</script>\"&"), "0123");
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
    }
}
