//! The page with everything that a token shows: the present one, or the one that was read last.

use std::time::Instant;

use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;

use super::chart::PortalChart;
use super::error::FailedVisit;
use super::notice::{PortalFailure, PortalNotice};
use super::state::{PortalState, ReadPortal};
use crate::html::environment::shown;
use crate::html::fields::Fields;
use crate::types::Channel;

/// What a page shows beside the view.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) told: Option<PortalNotice>,
    /// The secret of a contact that was added: its only chance to be seen.
    pub(super) secret: Option<String>,
    /// The form that did nothing, for a text beside it.
    pub(super) refused: Option<Fields>,
    /// Whether it is an earlier page, because Redis is away: without forms.
    pub(super) is_last: bool,
}

/// The page, with the status of what it tells.
pub(super) fn rendered(
    portal: &PortalState,
    page: &ReadPortal,
    Shown { told, secret, refused, is_last }: Shown,
) -> Response {
    let ReadPortal { access, language, view } = page;
    let refused = refused.filter(|form| !is_last && is_there(form, page)).map(|form| {
        let [contact, action, channel] = ["contact", "do", "channel"].map(|name| form.raw(name).to_owned());
        let [address, thresholds] = ["address", "thresholds"].map(|name| form.raw(name).to_owned());
        context! { contact, action, channel, address, thresholds }
    });
    let content = context! {
        failure => (), up => "../", view => shown(view), charts => shown(&PortalChart::all(view)), secret, is_last,
        may_change => access.may_change_contacts() && !is_last, return_url => access.return_url(),
        expires_at => access.expires_at().to_string(), channels => shown(&Channel::SENDING),
        told => told.map(PortalNotice::as_str), is_fault => told.is_some_and(|told| told.status() != StatusCode::OK),
        refused,
    };
    portal.html.rendered(told.map_or(StatusCode::OK, PortalNotice::status), language, content)
}

/// Whether the page has the form: that of a contact, or the one that adds a contact.
fn is_there(form: &Fields, page: &ReadPortal) -> bool {
    let contact = form.raw("contact");
    contact.is_empty() || page.view.contacts.iter().any(|of| of.id.as_str() == contact)
}

/// The page that was read last with a token, because Redis is away; or a page that says so.
pub(super) fn rendered_last(
    portal: &PortalState,
    token: &str,
    told: Option<PortalNotice>,
    (language, path): (&str, &str),
) -> Response {
    match portal.last_pages.get(token, Instant::now()) {
        Some(page) => rendered(portal, &page, Shown { told, is_last: true, ..Shown::default() }),
        None => FailedVisit::from(PortalFailure::Later).into_response(portal, language, path),
    }
}
