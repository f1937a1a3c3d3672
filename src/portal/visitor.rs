//! Who looks at a page: somebody with a token that was verified.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;

use super::error::{FailedVisit, language_of};
use super::notice::{PortalFailure, PortalNotice};
use super::render::rendered_last;
use super::state::PortalState;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::contacts::text_settings::read_locale;
use crate::signing::PortalAccess;
use crate::signing::portal_gate::open;

/// A visitor, with what its token permits.
#[derive(Debug)]
pub(super) struct PortalVisitor {
    pub(super) token: String,
    pub(super) access: PortalAccess,
    /// The language of its pages.
    pub(super) language: String,
}

/// A visitor who may change the subject's own contacts.
#[derive(Debug)]
pub(super) struct ContactsVisitor(pub(super) PortalVisitor);

impl FromRequestParts<Arc<PortalState>> for PortalVisitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<PortalState>) -> Result<Self, Response> {
        let token = Path::<String>::from_request_parts(parts, portal).await.map(|Path(token)| token);
        let token = token.unwrap_or_default();
        let path = parts.uri.path();
        let language = language_of(portal, &parts.headers, path);
        verified(parts, portal, token.clone()).await.map_err(|failed| match failed.failure {
            // A form did nothing then.
            PortalFailure::Later => {
                let told = (parts.method != Method::GET).then_some(PortalNotice::Unavailable);
                rendered_last(portal, &token, told, (&language, path))
            }
            _ => {
                portal.last_pages.forget(|known| *known == token);
                failed.into_response(portal, &language, path)
            }
        })
    }
}

async fn verified(parts: &Parts, portal: &PortalState, token: String) -> Result<PortalVisitor, FailedVisit> {
    let first = portal.observer.partitions.first();
    let opened = tokio::time::timeout(CALL_TIMEOUT, open(first, &token)).await;
    let access = opened.map_err(|_| PortalFailure::Later)??;
    let stored = match access.locale() {
        Some(locale) => Some(locale.clone()),
        None => {
            let read = read_locale(&first.client, &first.keys, access.subject());
            within(CALL_TIMEOUT, read).await.map_err(|_| PortalFailure::Later)?
        }
    };
    let language = portal.html.language(stored.as_ref(), &parts.headers);
    Ok(PortalVisitor { token, access, language })
}

impl FromRequestParts<Arc<PortalState>> for ContactsVisitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<PortalState>) -> Result<Self, Response> {
        let visitor = PortalVisitor::from_request_parts(parts, portal).await?;
        match visitor.access.may_change_contacts() {
            true => Ok(Self(visitor)),
            false => {
                let failed = FailedVisit::from(PortalFailure::ViewOnly);
                Err(failed.into_response(portal, &visitor.language, parts.uri.path()))
            }
        }
    }
}
