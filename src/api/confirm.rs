//! `/confirm/{token}`: the page of a confirm link.
//!
//! Mail software opens links by itself, so opening shows a page and changes nothing; its button posts. The token is the only secret
//! that is needed. The page loads nothing, is not cached, and sends no referrer.

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

use super::state::ApiState;
use crate::types::nonce;
use crate::verification::ConfirmOutcome;

const TEMPLATE: &str = "confirm.html";

/// The name ends with `.html`, so every value is escaped.
static PAGES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut pages = Environment::new();
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    pages.add_template(TEMPLATE, include_str!("../../templates/confirm.html")).expect("a test renders the template");
    pages
});

/// The states of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ConfirmPage {
    /// A button.
    Ask,
    /// The contact of this subject is verified.
    Confirmed(String),
    /// It was verified before.
    AlreadyConfirmed(String),
    /// The link was used, has expired, or never existed.
    Invalid,
    /// Redis does not answer.
    Unavailable,
}

/// `GET /confirm/{token}`. The same page for every token, so that it tells nothing about tokens.
pub(super) async fn show() -> Response {
    ConfirmPage::Ask.into_response()
}

/// `POST /confirm/{token}`
pub(super) async fn confirm(State(api): State<Arc<ApiState>>, token: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(token)) = token else { return ConfirmPage::Invalid.into_response() };
    let page = match api.verification.confirm(&token).await {
        Ok(ConfirmOutcome::Verified(subject)) => ConfirmPage::Confirmed(subject.to_string()),
        Ok(ConfirmOutcome::AlreadyVerified(subject)) => ConfirmPage::AlreadyConfirmed(subject.to_string()),
        Ok(ConfirmOutcome::Invalid) => ConfirmPage::Invalid,
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, source, "a confirm link could not be used");
            ConfirmPage::Unavailable
        }
    };
    page.into_response()
}

impl ConfirmPage {
    const fn state(&self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Confirmed(_) => "confirmed",
            Self::AlreadyConfirmed(_) => "before",
            Self::Invalid => "gone",
            Self::Unavailable => "away",
        }
    }

    const fn status(&self) -> StatusCode {
        match self {
            Self::Ask | Self::Confirmed(_) | Self::AlreadyConfirmed(_) => StatusCode::OK,
            Self::Invalid => StatusCode::GONE,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn render(&self, nonce: &str) -> String {
        let subject =
            if let Self::Confirmed(subject) | Self::AlreadyConfirmed(subject) = self { Some(subject) } else { None };
        let page = PAGES
            .get_template(TEMPLATE)
            .and_then(|page| page.render(context! { state => self.state(), subject => subject, nonce => nonce }));
        page.expect("a test renders every page")
    }
}

impl IntoResponse for ConfirmPage {
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
        let done = [ConfirmPage::Confirmed(alice()), ConfirmPage::AlreadyConfirmed(alice()), ConfirmPage::Invalid]
            .map(|page| (page, false));
        for (page, button) in [(ConfirmPage::Ask, true), (ConfirmPage::Unavailable, true)].into_iter().chain(done) {
            let html = page.render("0123");
            assert_eq!(html.contains("<form method=\"post\">"), button, "{html}");
            assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<style nonce=\"0123\">"), "{html}");
            assert!(!html.contains("http://") && !html.contains("https://"), "it loads something: {html}");
        }
    }

    /// A subject is whatever somebody named it.
    #[test]
    fn a_subject_is_text_and_not_part_of_the_page() {
        let html = ConfirmPage::Confirmed("<script>alert('x')</script>\"&".to_owned()).render("0123");
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
    }
}
