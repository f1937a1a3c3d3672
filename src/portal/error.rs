//! Pages that say why something can't be shown, and what to do.

use axum::http::HeaderMap;
use axum::response::Response;
use minijinja::context;

use super::notice::PortalFailure;
use super::state::PortalState;
use crate::html::href::up_from;
use crate::signing::UnverifiedToken;
use crate::signing::portal_gate::PortalRefusal;

/// Why a visitor sees no page, and the address that a token of this deployment leads back to.
#[derive(Debug)]
pub(super) struct FailedVisit {
    pub(super) failure: PortalFailure,
    pub(super) return_url: Option<String>,
}

impl PortalFailure {
    /// The page, in the language of the token or else of the headers. It names no subject.
    pub(super) fn into_response(self, portal: &PortalState, asked: &HeaderMap, path: &str) -> Response {
        FailedVisit::from(self).into_response(portal, &language_of(portal, asked, path), path)
    }
}

impl FailedVisit {
    /// The page in this language.
    pub(super) fn into_response(self, portal: &PortalState, language: &str, path: &str) -> Response {
        let Self { failure, return_url } = self;
        let is_of_token = match failure {
            PortalFailure::ViewOnly | PortalFailure::Later => true,
            PortalFailure::NoSuchAddress => token_of(path).is_some(),
            PortalFailure::Cut | PortalFailure::Expired | PortalFailure::Revoked => false,
        };
        let up = up_from(path);
        let way_on = up.strip_prefix("../").filter(|_| is_of_token).map(|up| format!("{up}./"));
        let content = context! { failure => failure.as_str(), up, way_on, return_url };
        portal.html.rendered(failure.status(), language, content)
    }
}

/// The language that the token of a path names, or else that of the headers.
pub(super) fn language_of(portal: &PortalState, asked: &HeaderMap, path: &str) -> String {
    portal.html.language(token_of(path).as_ref().and_then(UnverifiedToken::locale), asked)
}

fn token_of(path: &str) -> Option<UnverifiedToken<'_>> {
    UnverifiedToken::read(path.split('/').nth(1)?)
}

impl From<PortalFailure> for FailedVisit {
    fn from(failure: PortalFailure) -> Self {
        Self { failure, return_url: None }
    }
}

impl From<PortalRefusal> for FailedVisit {
    fn from(refusal: PortalRefusal) -> Self {
        match refusal {
            PortalRefusal::Unsigned => PortalFailure::Cut.into(),
            PortalRefusal::Expired { at: _, return_url } => Self { failure: PortalFailure::Expired, return_url },
            PortalRefusal::Revoked => PortalFailure::Revoked.into(),
            PortalRefusal::Redis(error) => {
                tracing::warn!(%error, "Redis failed while a link to the portal was verified");
                PortalFailure::Later.into()
            }
        }
    }
}
