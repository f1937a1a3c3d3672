//! `/confirm/{token}`: the page of a confirm link.
//!
//! Mail software opens links by itself, so opening shows a page and changes nothing; its button posts. The token is the only secret
//! that is needed.

use std::error::Error as _;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::consent_html::{HtmlState, html};
use super::state::ApiState;
use crate::verification::ConfirmOutcome;

/// `GET /confirm/{token}`. The same page for every token, so that it tells nothing about tokens.
pub(super) async fn show(headers: HeaderMap) -> Response {
    html(HtmlState::Confirm, None, &headers)
}

/// `POST /confirm/{token}`
pub(super) async fn confirm(
    State(api): State<Arc<ApiState>>,
    token: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let outcome = match token {
        Ok(Path(token)) => api.verification.confirm(&token).await,
        Err(_) => Ok(ConfirmOutcome::Invalid),
    };
    match outcome {
        Ok(ConfirmOutcome::Verified(subject)) => html(HtmlState::Confirmed, Some(&subject), &headers),
        Ok(ConfirmOutcome::AlreadyVerified(subject)) => html(HtmlState::ConfirmedBefore, Some(&subject), &headers),
        Ok(ConfirmOutcome::Invalid) => html(HtmlState::NothingToConfirm, None, &headers),
        Err(error) => {
            let source = error.source().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, source, "a confirm link could not be used");
            html(HtmlState::ConfirmLater, None, &headers)
        }
    }
}
