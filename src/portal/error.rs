//! Pages that say why something can't be shown, and what to do.

use axum::http::HeaderMap;
use axum::response::Response;
use minijinja::context;

use super::notice::PortalFailure;
use super::state::PortalState;
use crate::html::href::up_from;
use crate::signing::portal_gate::PortalRefusal;

impl PortalFailure {
    /// The page, in the language of the request's headers. It names no subject.
    pub(super) fn into_response(self, portal: &PortalState, asked: &HeaderMap, path: &str) -> Response {
        self.in_language(portal, &portal.html.language(None, asked), path)
    }

    pub(super) fn in_language(self, portal: &PortalState, language: &str, path: &str) -> Response {
        let content = context! { failure => self.as_str(), up => up_from(path) };
        portal.html.rendered(self.status(), language, content)
    }
}

impl From<PortalRefusal> for PortalFailure {
    fn from(refusal: PortalRefusal) -> Self {
        match refusal {
            PortalRefusal::Unsigned => Self::Cut,
            PortalRefusal::Expired(_) => Self::Expired,
            PortalRefusal::Revoked => Self::Revoked,
            PortalRefusal::Redis(error) => {
                tracing::warn!(%error, "Redis failed while a link to the portal was verified");
                Self::Later
            }
        }
    }
}
