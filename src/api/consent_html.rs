//! The pages of confirm and unsubscribe links. They load nothing, are not cached, and send no referrer.

use std::sync::LazyLock;

use axum::http::header::{
    ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use minijinja::{Environment, UndefinedBehavior, context};

use crate::types::text::printable;
use crate::types::text_form::text_enum;
use crate::types::{Locale, Subject, nonce};

const TEMPLATE: &str = "consent.html";
/// The languages of the pages, the default first.
const LANGUAGES: [&str; 2] = ["en", "vi"];

/// The name ends with `.html`, so every value is escaped.
static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, source) in [
        (TEMPLATE, include_str!("../../templates/consent.html")),
        ("en/consent_body.html", include_str!("../../templates/consent_body.html")),
        ("vi/consent_body.html", include_str!("../../templates/vi/consent_body.html")),
    ] {
        templates.add_template(name, source).expect("a test renders the template");
    }
    templates
});

text_enum! {
    /// The state that a page shows. The template has a text for each, under its name.
    pub enum HtmlState {
        Confirm = "confirm",
        Confirmed = "confirmed",
        /// It was confirmed before.
        ConfirmedBefore = "confirmed_before",
        NothingToConfirm = "nothing_to_confirm",
        /// The confirmation failed and can be tried again.
        ConfirmLater = "confirm_later",
        Unsubscribe = "unsubscribe",
        Unsubscribed = "unsubscribed",
        NothingToUnsubscribe = "nothing_to_unsubscribe",
        /// Unsubscribing failed and can be tried again.
        UnsubscribeLater = "unsubscribe_later",
    }
}

impl HtmlState {
    const fn status(self) -> StatusCode {
        match self {
            Self::Confirm | Self::Confirmed | Self::ConfirmedBefore | Self::Unsubscribe | Self::Unsubscribed => {
                StatusCode::OK
            }
            Self::NothingToConfirm | Self::NothingToUnsubscribe => StatusCode::GONE,
            Self::ConfirmLater | Self::UnsubscribeLater => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Renders the page of a state, in the language of the request's headers. It names the subject only if the reader may
/// know it.
pub(super) fn html(state: HtmlState, subject: Option<&Subject>, asked: &HeaderMap) -> Response {
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
        (VARY, "accept-language"),
    ];
    (
        state.status(),
        headers,
        render(state, subject.map(|subject| printable(subject.as_str())).as_deref(), language(asked), &nonce),
    )
        .into_response()
}

fn language(asked: &HeaderMap) -> &'static str {
    preferred(asked, LANGUAGES).unwrap_or(LANGUAGES[0])
}

/// The first language of the request that is one of these. Browsers list the user's preferred language first.
pub(crate) fn preferred<'a>(asked: &HeaderMap, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let header = asked.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let locales = header.split(',').filter_map(|one| Locale::parse(one.split(';').next()?.trim()).ok());
    let mut readable = locales.flat_map(|locale| locale.fallbacks().collect::<Vec<_>>());
    readable.find_map(|locale| known.clone().into_iter().find(|language| *language == locale.as_str()))
}

fn render(state: HtmlState, subject: Option<&str>, language: &str, nonce: &str) -> String {
    let (template, state) = (TEMPLATES.get_template(TEMPLATE), state.as_str());
    let rendered = template.and_then(|template| template.render(context! { state, subject, language, nonce }));
    rendered.expect("a test renders every page")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the first customer would find a page that can't be rendered.
    #[test]
    fn every_page_renders_and_those_that_ask_have_a_button() {
        let mut texts = std::collections::BTreeSet::new();
        let pages = HtmlState::ALL.into_iter().flat_map(|state| LANGUAGES.map(|language| (state, language)));
        for (state, language) in pages {
            let html = render(state, Some("alice"), language, "0123");
            assert!(html.contains(&format!("<html lang=\"{language}\"")), "{html}");
            let asks = matches!(state, HtmlState::Confirm | HtmlState::Unsubscribe);
            let button = asks || state.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(html.contains("<form method=\"post\">"), button, "{html}");
            assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<style nonce=\"0123\">"), "{html}");
            assert!(!html.contains("http://") && !html.contains("https://"), "it loads something: {html}");
            assert!(texts.insert(html), "{state:?} has a text of its own in {language}");
        }
    }

    /// A reader of a Vietnamese message must be able to read what the button does.
    #[test]
    fn a_page_is_in_the_first_language_of_the_browser_that_it_has() {
        for (asked, expected) in [
            ("vi-VN,vi;q=0.9,en;q=0.8", "vi"),
            ("fr-FR, fr;q=0.9, vi;q=0.5, en;q=0.4", "vi"),
            ("en-US,en;q=0.9,vi;q=0.8", "en"),
            ("ja", "en"),
            ("*", "en"),
            ("", "en"),
            ("vi_VN;;,,", "en"),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_LANGUAGE, asked.parse().expect("legal"))]);
            assert_eq!(language(&headers), expected, "{asked}");
        }
        assert_eq!(language(&HeaderMap::new()), "en");
    }

    /// A subject may have any name.
    #[test]
    fn a_subject_is_text_and_not_part_of_the_page() {
        let html = render(HtmlState::Confirmed, Some("<script>alert('x')</script>\"&"), "vi", "0123");
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
    }
}
