//! `POST /v1/reload`: the daemon reads its plans again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::path::{self, Query};
use super::problem::Problem;
use super::state::{ApiState, ReloadError, ReloadMode};
use super::subjects::answer;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadQuery {
    force: Option<String>,
}

/// `POST /v1/reload`
pub(super) async fn reload(
    State(api): State<Arc<ApiState>>,
    Query(query): Query<ReloadQuery>,
) -> Result<Response, Problem> {
    let force = path::parameter("force", query.force.as_deref())?.unwrap_or(false);
    let mode = if force { ReloadMode::Forced } else { ReloadMode::Guarded };
    match (api.reload_plans)(mode).await {
        Ok(plans) => Ok(answer(&plans)),
        Err(ReloadError(reason)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason)),
    }
}
