//! `/v1/subjects/{id}/portal`: links with which a customer opens its portal.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::body::Json;
use super::operation::{JsonReply, NoBody};
use super::path::SubjectPath;
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use crate::actions::contacts::{ContactActionError, check_levels};
use crate::actions::portal::{self, NewPortal, PortalError, PortalInvitation};

/// `POST /v1/subjects/{id}/portal`
pub(super) async fn create(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Json(new): Json<NewPortal>,
) -> Result<JsonReply<PortalInvitation>, Problem> {
    check_levels(&api.partitions.first().keys, &subject, false).map_err(ContactActionError::from)?;
    let created = api.portal_links.create(new, subject.clone());
    let invitation = within(CALL_TIMEOUT, created).await?;
    tracing::info!(%subject, expires_at = %invitation.expires_at, "a link to the portal is made");
    Ok(JsonReply(invitation))
}

/// `DELETE /v1/subjects/{id}/portal`
pub(super) async fn revoke(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<NoBody<204>, Problem> {
    within(CALL_TIMEOUT, portal::revoke(api.partitions.first(), &subject)).await?;
    tracing::info!(%subject, "the links to the portal are revoked");
    Ok(NoBody)
}

impl From<PortalError> for Problem {
    fn from(error: PortalError) -> Self {
        match error {
            PortalError::Redis(error) => error.into(),
            PortalError::NotPublic => Self::new(StatusCode::CONFLICT, error.to_string()),
            PortalError::Invalid(problem) => Self::bad_request(problem),
        }
    }
}
