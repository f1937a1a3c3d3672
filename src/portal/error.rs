//! Pages that say why something can't be shown, and what to do.

use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use minijinja::context;

use super::state::PortalState;
use crate::html::href::up_from;
use crate::signing::portal_gate::PortalRefusal;
use crate::types::text_form::text_enum;

text_enum! {
    /// Why a page can't be shown. The templates have a text for each, under its name.
    pub enum PortalFailure {
        NoSuchAddress = "no_such_address",
        /// The address takes only forms.
        OnlyForms = "only_forms",
        /// The token is not whole, or of somebody else.
        Cut = "cut",
        Expired = "expired",
        Revoked = "revoked",
        /// The token permits only viewing.
        ViewOnly = "view_only",
        /// Redis does not answer.
        Later = "later",
    }
}

impl PortalFailure {
    const fn status(self) -> StatusCode {
        match self {
            Self::NoSuchAddress | Self::Cut => StatusCode::NOT_FOUND,
            Self::OnlyForms => StatusCode::METHOD_NOT_ALLOWED,
            Self::Expired | Self::Revoked => StatusCode::GONE,
            Self::ViewOnly => StatusCode::FORBIDDEN,
            Self::Later => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The page, in the language of the request's headers. It names no subject.
    pub(super) fn into_response(self, portal: &PortalState, asked: &HeaderMap, path: &str) -> Response {
        self.in_language(portal, &portal.html.language(None, asked), path)
    }

    pub(super) fn in_language(self, portal: &PortalState, language: &str, path: &str) -> Response {
        let content = context! { failure => self.as_str(), up => up_from(path) };
        (self.status(), Html(portal.html.render(language, content))).into_response()
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
