//! `POST /v1/reload`: the daemon reads its plans again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::problem::Problem;
use super::state::{ApiState, ReloadError};
use super::subjects::answer;

/// `POST /v1/reload`
pub(super) async fn reload(State(api): State<Arc<ApiState>>) -> Result<Response, Problem> {
    let reload_plans = Arc::clone(&api.reload_plans);
    let reloaded = tokio::task::spawn_blocking(move || reload_plans()).await;
    let reloaded = reloaded.unwrap_or_else(|error| Err(ReloadError(error.to_string())));
    match reloaded {
        Ok(plans) => Ok(answer(&plans)),
        Err(ReloadError(reason)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason)),
    }
}
