//! `GET /v1/actions`: who changed what.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::list_query::ListRequest;
use super::operation::JsonReply;
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use crate::types::StreamId;
use crate::views::Cursor;
use crate::views::actions::{ActionView, newest};

/// A page of actions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ActionList {
    actions: Vec<ActionView>,
    /// What `after` takes to get the next page; null at the end.
    next: Option<String>,
}

/// `GET /v1/actions`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    ListRequest { after, limit }: ListRequest<(u64, u64)>,
) -> Result<JsonReply<ActionList>, Problem> {
    let before = after.map(|(ms, seq)| StreamId { ms, seq });
    let (actions, next) = within(CALL_TIMEOUT, newest(&api.partitions, before.as_ref(), limit)).await?;
    Ok(JsonReply(ActionList { actions, next: next.map(|StreamId { ms, seq }| Cursor((ms, seq)).to_string()) }))
}
