//! `POST /v1/reload`: the daemon reads its plans again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::operation::JsonReply;
use super::path::Query;
use super::problem::Problem;
use super::state::{ApiState, ReloadError, ReloadMode, ReloadedPlans};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// Put a file into effect that is empty, removes `http.token` or drops a plan which a subject names.
    #[serde(default)]
    force: bool,
}

/// `POST /v1/reload`
pub(super) async fn reload(
    State(api): State<Arc<ApiState>>,
    Query(ReloadQuery { force }): Query<ReloadQuery>,
) -> Result<JsonReply<ReloadedPlans>, Problem> {
    let mode = if force { ReloadMode::Forced } else { ReloadMode::Guarded };
    match (api.reload_plans)(mode).await {
        Ok(plans) => Ok(JsonReply(plans)),
        Err(ReloadError(reason)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason)),
    }
}
