//! `/v1/subjects/{id}/grants`: prepaid units, and more units for a period.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::body::Json;
use super::operation::{Describe, JsonReply, OperationDoc};
use super::path::{GrantPath, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::{ApiState, QueryState};
use crate::actions::grants::{self, AddedGrant, GrantError, NewGrant};
use crate::ledger::grants::AddGrantError;
use crate::views::GrantView;
use crate::views::grants::GrantList;

/// The grant, with 201 if it is new.
pub(super) struct AddedReply(AddedGrant);

impl Describe for AddedReply {
    fn describe(operation: &mut OperationDoc<'_>) {
        operation.answer::<GrantView>(201);
    }
}

impl IntoResponse for AddedReply {
    fn into_response(self) -> Response {
        let AddedGrant { grant, is_new } = self.0;
        if is_new { JsonReply::<_, 201>(grant).into_response() } else { JsonReply::<_, 200>(grant).into_response() }
    }
}

/// `GET /v1/subjects/{id}/grants`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<JsonReply<GrantList>, Problem> {
    let QueryState { partitions, plans, .. } = &api.reads;
    let read = crate::views::grants::read(partitions.partition_of(&subject), plans, &subject);
    within(CALL_TIMEOUT, read).await.map(JsonReply)
}

/// `POST /v1/subjects/{id}/grants`
pub(super) async fn add(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Json(new): Json<NewGrant>,
) -> Result<AddedReply, Problem> {
    let partition = api.partitions.partition_of(&subject);
    let added = within(CALL_TIMEOUT, grants::add(partition, &api.reads.plans, &subject, &new)).await?;
    if added.is_new {
        let GrantView { id, metric, units, window, .. } = &added.grant;
        tracing::info!(%subject, grant = %id, %metric, %units, %window, "a grant is added");
    }
    Ok(AddedReply(added))
}

/// `DELETE /v1/subjects/{id}/grants/{grant}`
pub(super) async fn revoke(
    State(api): State<Arc<ApiState>>,
    GrantPath(subject, grant): GrantPath,
) -> Result<JsonReply<GrantView>, Problem> {
    let partition = api.partitions.partition_of(&subject);
    let revoked = within(CALL_TIMEOUT, grants::revoke(partition, &api.reads.plans, &subject, &grant)).await?;
    tracing::info!(%subject, %grant, "a grant is revoked");
    Ok(JsonReply(revoked))
}

impl From<GrantError> for Problem {
    fn from(error: GrantError) -> Self {
        let status = match error {
            GrantError::Redis { source, .. } => return source.into(),
            GrantError::Level(_) | GrantError::Past { .. } | GrantError::AfterPeriod { .. } | GrantError::Note => {
                StatusCode::BAD_REQUEST
            }
            GrantError::NotFound { .. } => StatusCode::NOT_FOUND,
            GrantError::Add(AddGrantError::Conflict(_) | AddGrantError::TooMany(_) | AddGrantError::TooManyUnits)
            | GrantError::Unreadable { .. }
            | GrantError::NoLimit { .. } => StatusCode::CONFLICT,
            GrantError::Contended(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}
