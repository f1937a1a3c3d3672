//! The page with everything that a token shows: the present one, or the one that was read last.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use minijinja::context;

use super::chart::PortalChart;
use super::notice::{PortalFailure, PortalNotice};
use super::state::{PortalState, ReadPortal};
use crate::html::environment::shown;
use crate::types::Channel;

/// What a page shows beside the view.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) told: Option<PortalNotice>,
    /// The secret of a contact that was added: its only chance to be seen.
    pub(super) secret: Option<String>,
    /// Whether it is an earlier page, because Redis is away: without forms.
    pub(super) is_last: bool,
}

/// The page, with the status of what it tells.
pub(super) fn rendered(portal: &PortalState, page: &ReadPortal, Shown { told, secret, is_last }: Shown) -> Response {
    let ReadPortal { access, language, view } = page;
    let content = context! {
        failure => (), up => "../", view => shown(view), charts => shown(&PortalChart::all(view)), secret, is_last,
        may_change => access.may_change_contacts() && !is_last, return_url => access.return_url(),
        expires_at => access.expires_at().to_string(), channels => shown(&Channel::SENDING),
        told => told.map(PortalNotice::as_str), is_fault => told.is_some_and(|told| told.status() != StatusCode::OK),
    };
    portal.html.rendered(told.map_or(StatusCode::OK, PortalNotice::status), language, content)
}

/// The page that was read last with a token, because Redis is away; or a page that says so.
pub(super) fn rendered_last(
    portal: &PortalState,
    token: &str,
    told: Option<PortalNotice>,
    (headers, uri): (&HeaderMap, &Uri),
) -> Response {
    match portal.last_pages.get(token, Instant::now()) {
        Some(page) => rendered(portal, &page, Shown { told, secret: None, is_last: true }),
        None => PortalFailure::Later.into_response(portal, headers, uri.path()),
    }
}
