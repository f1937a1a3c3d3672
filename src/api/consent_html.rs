//! The pages that people see: of confirm links and of unsubscribe links. They load nothing, are not cached, and send no referrer.

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use minijinja::{Environment, UndefinedBehavior, context};

use crate::types::{Subject, nonce};

const TEMPLATE: &str = "consent.html";

/// The name ends with `.html`, so every value is escaped.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates
        .add_template(TEMPLATE, include_str!("../../templates/consent.html"))
        .expect("a test renders the template");
    templates
});

/// What a page says; the template has a text for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HtmlState {
    /// A button confirms the address.
    Confirm,
    /// The address is confirmed.
    Confirmed,
    /// It was before.
    ConfirmedBefore,
    /// The confirm link is no good any more.
    NothingToConfirm,
    /// The button could not do it now.
    ConfirmLater,
    /// A button mutes the contact.
    Unsubscribe,
    /// The contact is muted.
    Unsubscribed,
    /// The unsubscribe link belongs to nothing.
    NothingToUnsubscribe,
    /// The button could not do it now.
    UnsubscribeLater,
}

impl HtmlState {
    /// Every state.
    #[cfg(test)]
    const ALL: [Self; 9] = [
        Self::Confirm,
        Self::Confirmed,
        Self::ConfirmedBefore,
        Self::NothingToConfirm,
        Self::ConfirmLater,
        Self::Unsubscribe,
        Self::Unsubscribed,
        Self::NothingToUnsubscribe,
        Self::UnsubscribeLater,
    ];

    const fn status(self) -> StatusCode {
        match self {
            Self::Confirm | Self::Confirmed | Self::ConfirmedBefore | Self::Unsubscribe | Self::Unsubscribed => {
                StatusCode::OK
            }
            Self::NothingToConfirm | Self::NothingToUnsubscribe => StatusCode::GONE,
            Self::ConfirmLater | Self::UnsubscribeLater => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The name by which the template knows it.
    const fn name(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Confirmed => "confirmed",
            Self::ConfirmedBefore => "confirmed_before",
            Self::NothingToConfirm => "nothing_to_confirm",
            Self::ConfirmLater => "confirm_later",
            Self::Unsubscribe => "unsubscribe",
            Self::Unsubscribed => "unsubscribed",
            Self::NothingToUnsubscribe => "nothing_to_unsubscribe",
            Self::UnsubscribeLater => "unsubscribe_later",
        }
    }
}

/// The page of a state, with whose alerts it is about where that may be told.
pub(super) fn html(state: HtmlState, subject: Option<&Subject>) -> Response {
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
    (state.status(), headers, render(state, subject.map(Subject::as_str), &nonce)).into_response()
}

fn render(state: HtmlState, subject: Option<&str>, nonce: &str) -> String {
    let state = state.name();
    let template = TEMPLATES.get_template(TEMPLATE);
    let rendered = template.and_then(|template| template.render(context! { state, subject, nonce }));
    rendered.expect("a test renders every page")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that can't be rendered would be seen by the first customer.
    #[test]
    fn every_page_renders_and_those_that_ask_have_a_button() {
        let mut texts = std::collections::BTreeSet::new();
        for state in HtmlState::ALL {
            let html = render(state, Some("alice"), "0123");
            let asks = matches!(state, HtmlState::Confirm | HtmlState::Unsubscribe);
            let button = asks || state.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(html.contains("<form method=\"post\">"), button, "{html}");
            assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<style nonce=\"0123\">"), "{html}");
            assert!(!html.contains("http://") && !html.contains("https://"), "it loads something: {html}");
            assert!(texts.insert(html), "{state:?} has a text of its own");
        }
    }

    /// A subject is whatever somebody named it.
    #[test]
    fn a_subject_is_text_and_not_part_of_the_page() {
        let html = render(HtmlState::Confirmed, Some("<script>alert('x')</script>\"&"), "0123");
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
    }
}
