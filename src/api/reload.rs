//! `POST /v1/reload`: the daemon reads its plans again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::operation::JsonAnswer;
use super::path::{self, Query};
use super::problem::Problem;
use super::state::{ApiState, ReloadError, ReloadMode, ReloadedPlans};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// Put a file into effect that is empty, removes `http.token` or drops a plan which a subject names.
    #[schemars(with = "Option<bool>", extend("default" = false))]
    force: Option<String>,
}

/// `POST /v1/reload`
pub(super) async fn reload(
    State(api): State<Arc<ApiState>>,
    Query(query): Query<ReloadQuery>,
) -> Result<JsonAnswer<ReloadedPlans>, Problem> {
    let force = path::parameter("force", query.force.as_deref())?.unwrap_or(false);
    let mode = if force { ReloadMode::Forced } else { ReloadMode::Guarded };
    match (api.reload_plans)(mode).await {
        Ok(plans) => Ok(JsonAnswer(plans)),
        Err(ReloadError(reason)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason)),
    }
}
