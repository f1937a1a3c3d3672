//! Reads what a token shows.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::notice::PortalNotice;
use super::render::{Shown, rendered, rendered_last};
use super::state::{PortalState, ReadPortal, WithPortal};
use super::visitor::PortalVisitor;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::html::fields::Fields;

/// `GET /portal/{token}/`
pub(super) async fn show(State(portal): WithPortal, visitor: PortalVisitor, uri: Uri) -> Response {
    // What the form did that led here.
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let told = PortalNotice::from_stored(query.raw("told")).filter(|notice| notice.status() == StatusCode::OK);
    respond(&portal, visitor, Shown { told, ..Shown::default() }, uri.path()).await
}

/// The page, with the status of what it tells.
pub(super) async fn respond(
    portal: &Arc<PortalState>,
    PortalVisitor { token, access, language }: PortalVisitor,
    shown: Shown,
    path: &str,
) -> Response {
    let asked = Instant::now();
    let read = async {
        let _permit = portal.reads.acquire().await.expect("nobody closes it");
        portal.observer.portal(&access, portal.late_max, portal.history_days).await
    };
    let Ok(Some(view)) = within(CALL_TIMEOUT, read).await else {
        return rendered_last(portal, &token, shown.told, (&language, path));
    };
    let page = ReadPortal { access, language, view };
    let response = rendered(portal, &page, shown);
    let left = page.access.expires_at().since(page.view.read_at.0);
    portal.last_pages.keep(token, page, left, asked);
    response
}
