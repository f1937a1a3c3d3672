//! What concerns all subjects: pauses and resumes sending, and reloads the plans.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::error::ConsoleError;
use super::form::{Done, SentForm};
use super::state::{ConsoleState, WithConsole};
use crate::actions::sending::{pause, resume};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::api::state::{ReloadError, ReloadMode};
use crate::types::text::pluralize;

/// `POST /sending`
pub(super) async fn sending(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    form.once(console, "./".to_owned(), change_sending).await
}

async fn change_sending(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let partitions = &console.observer.partitions;
    let (action, message) = match fields.raw("do") {
        "pause" => {
            let state = within(CALL_TIMEOUT, pause(partitions, fields.text("reason"))).await?;
            let left = pluralize(state.in_flight, "attempt is", "attempts are");
            ("pauseDeliveries", format!("Sending is paused for all daemons; {left} still under way."))
        }
        "resume" => {
            within(CALL_TIMEOUT, resume(partitions)).await?;
            ("resumeDeliveries", "Sending continues.".to_owned())
        }
        _ => return Err(Problem::bad_request("do: must be pause or resume").into()),
    };
    Ok(Done { message, action: action.to_owned(), count: 1, ..Done::default() })
}

/// `POST /reload`
pub(super) async fn reload(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    form.once(console, "system".to_owned(), reload_plans).await
}

async fn reload_plans(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let mode = if fields.raw("force").is_empty() { ReloadMode::Guarded } else { ReloadMode::Forced };
    let reloaded = (console.reload_plans)(mode).await;
    let reloaded = reloaded.map_err(|ReloadError(reason)| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason))?;
    let differs = if reloaded.changed { "have changed" } else { "are as before" };
    let fingerprint = reloaded.fingerprint;
    let message =
        format!("This daemon has read its configuration again. Limits and thresholds {differs} ({fingerprint}).");
    Ok(Done { message, action: "reload".to_owned(), count: 1, ..Done::default() })
}
