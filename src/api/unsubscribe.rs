//! `/unsubscribe/{token}`: the page of an unsubscribe link, and what mail providers post there (RFC 8058).
//!
//! Mail software opens links by itself, so opening shows a page and changes nothing. A POST mutes the contact, whatever its body says,
//! and again as often as it comes.

use std::error::Error as _;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::consent_html::{HtmlState, html};
use super::state::ApiState;
use crate::verification::UnsubscribeOutcome;

/// `GET /unsubscribe/{token}`. The same page for every token, so that it tells nothing about tokens.
pub(super) async fn show(headers: HeaderMap) -> Response {
    html(HtmlState::Unsubscribe, None, &headers)
}

/// `POST /unsubscribe/{token}`
pub(super) async fn unsubscribe(
    State(api): State<Arc<ApiState>>,
    token: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let outcome = match token {
        Ok(Path(token)) => api.verification.unsubscribe(&token).await,
        Err(_) => Ok(UnsubscribeOutcome::Invalid),
    };
    match outcome {
        Ok(UnsubscribeOutcome::Muted) => html(HtmlState::Unsubscribed, None, &headers),
        Ok(UnsubscribeOutcome::Invalid) => html(HtmlState::NothingToUnsubscribe, None, &headers),
        Err(error) => {
            let source = error.source().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, source, "an unsubscribe link could not be used");
            html(HtmlState::UnsubscribeLater, None, &headers)
        }
    }
}
