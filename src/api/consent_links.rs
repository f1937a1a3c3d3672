//! `/confirm/{token}` and `/unsubscribe/{token}`: the links in emails, and the requests of mail providers (RFC 8058).
//!
//! Mail software opens links by itself, so opening a link shows a page and changes nothing. The page is the same for
//! every token, so that it tells nothing about tokens. Its button sends a POST. The token is the only secret that is
//! needed; an unreadable token is treated like an invalid one. A failure is logged where the error becomes a
//! [`Problem`].
//!
//! [`Problem`]: super::problem::Problem

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::json;

use super::consent_html::{HtmlState, html};
use super::operation::{Describe, OperationDoc};
use super::problem::{CALL_TIMEOUT, within};
use super::state::ApiState;
use crate::contacts::edit::VerifyOutcome;

type TokenPath = Result<Path<String>, PathRejection>;

impl Describe for TokenPath {
    fn describe(operation: &mut OperationDoc<'_>) {
        let schema = json!({"type": "string", "minLength": 1});
        operation.parameters.push(json!({"name": "token", "in": "path", "required": true, "schema": schema}));
    }
}

/// `GET /confirm/{token}`
pub(super) async fn show_confirm(_: TokenPath, headers: HeaderMap) -> Response {
    html(HtmlState::Confirm, None, &headers)
}

/// `POST /confirm/{token}`
pub(super) async fn confirm(State(api): State<Arc<ApiState>>, path: TokenPath, headers: HeaderMap) -> Response {
    let (state, subject) = match within(CALL_TIMEOUT, api.verification.confirm(&token_of(path))).await {
        Ok(Some((VerifyOutcome::Verified, subject))) => (HtmlState::Confirmed, Some(subject)),
        Ok(Some((VerifyOutcome::AlreadyVerified, subject))) => (HtmlState::ConfirmedBefore, Some(subject)),
        Ok(Some((VerifyOutcome::Outdated, _)) | None) => (HtmlState::NothingToConfirm, None),
        Err(_) => (HtmlState::ConfirmLater, None),
    };
    html(state, subject.as_ref(), &headers)
}

/// `GET /unsubscribe/{token}`
pub(super) async fn show_unsubscribe(_: TokenPath, headers: HeaderMap) -> Response {
    html(HtmlState::Unsubscribe, None, &headers)
}

/// `POST /unsubscribe/{token}`: mutes the contact, whatever the body is. May be repeated.
pub(super) async fn unsubscribe(State(api): State<Arc<ApiState>>, path: TokenPath, headers: HeaderMap) -> Response {
    let state = match within(CALL_TIMEOUT, api.verification.unsubscribe(&token_of(path))).await {
        Ok(true) => HtmlState::Unsubscribed,
        Ok(false) => HtmlState::NothingToUnsubscribe,
        Err(_) => HtmlState::UnsubscribeLater,
    };
    html(state, None, &headers)
}

fn token_of(path: TokenPath) -> String {
    path.map(|Path(token)| token).unwrap_or_default()
}
