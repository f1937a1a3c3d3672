//! The operator's actions on deliveries: the wrapper of `action.lua`.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::{ENDED_DELIVERY_TTL, schedule};
use crate::redis_client::{RedisClient, Script};
use crate::types::text_form::text_enum;
use crate::types::{DeliveryId, DeliveryState, Keys};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("action.lua")));

/// Maximum number of deliveries per call of the script, which blocks the server for a few milliseconds.
pub const ACTION_MAX: usize = 500;

text_enum! {
    /// An operator's action on deliveries.
    pub enum DeliveryAction {
        /// Dead deliveries become pending and due now, under the same ids.
        Replay = "replay",
        /// Pending deliveries become due now, even behind an open circuit; dead ones are replayed.
        Retry = "retry",
        /// Pending deliveries end `cancelled`.
        Cancel = "cancel",
        /// Dead deliveries are acknowledged: they stay readable, but no longer count as dead.
        Discard = "discard",
    }
}

impl DeliveryAction {
    /// The past participle of the action, such as `replayed`.
    pub const fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Retry => "retried",
            Self::Cancel => "cancelled",
            Self::Discard => "discarded",
        }
    }

    /// The states that the action accepts. The first is the default.
    pub const fn takes(self) -> &'static [DeliveryState] {
        match self {
            Self::Replay | Self::Discard => &[DeliveryState::Dead],
            Self::Retry => &[DeliveryState::Pending, DeliveryState::Dead],
            Self::Cancel => &[DeliveryState::Pending],
        }
    }

    /// The state of a delivery after the action.
    pub const fn state_after(self) -> DeliveryState {
        match self {
            Self::Replay | Self::Retry => DeliveryState::Pending,
            Self::Cancel => DeliveryState::Cancelled,
            Self::Discard => DeliveryState::Dead,
        }
    }
}

/// The result for one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionReply {
    /// The action was applied.
    Done,
    /// The delivery is being attempted and was not changed.
    Leased,
    /// There is no such delivery, or it ended more than 14 days ago.
    Missing,
    /// The action does not accept this state; the delivery was not changed.
    InState(DeliveryState),
}

impl ActionReply {
    /// The result in one word, for programs.
    pub fn word(self, action: DeliveryAction) -> &'static str {
        match self {
            Self::Done => action.done(),
            Self::Leased => "leased",
            Self::InState(_) if action.takes() == [DeliveryState::Dead] => "not_dead",
            Self::InState(_) => "ended",
            Self::Missing => "unknown",
        }
    }

    /// The state of the delivery now; `None` if there is none.
    pub const fn state(self, action: DeliveryAction) -> Option<DeliveryState> {
        match self {
            Self::Done => Some(action.state_after()),
            Self::Leased => Some(DeliveryState::Pending),
            Self::InState(state) => Some(state),
            Self::Missing => None,
        }
    }
}

/// Applies an operator's action to at most [`ACTION_MAX`] deliveries. Returns a reply for each, in the order of `ids`.
/// Does not change deliveries in states that the action does not accept. Repeatable; `action.lua` explains why.
///
/// # Errors
///
/// [`OutboxError`]: the action may have been applied.
pub async fn act(
    client: &RedisClient,
    keys: &Keys,
    action: DeliveryAction,
    ids: &[DeliveryId],
) -> Result<Vec<ActionReply>, OutboxError> {
    assert!(ids.len() <= ACTION_MAX, "the caller cuts its list");
    let texts: Vec<&str> = ids.iter().map(DeliveryId::as_str).collect();
    let call = schedule::call(&SCRIPT, keys).arg(action.as_str()).arg(ENDED_DELIVERY_TTL.as_secs()).arg(&texts);
    let replies: Vec<String> = call.run(client).await.map_err(OutboxError::redis(Operation::Act, keys.stream()))?;
    ids.iter().zip(replies).map(|(id, reply)| reply_of(&reply, id)).collect()
}

fn reply_of(reply: &str, id: &DeliveryId) -> Result<ActionReply, OutboxError> {
    match reply {
        "done" => Ok(ActionReply::Done),
        "leased" => Ok(ActionReply::Leased),
        "missing" => Ok(ActionReply::Missing),
        state => match DeliveryState::from_stored(state) {
            Some(state) => Ok(ActionReply::InState(state)),
            None => Err(OutboxError::answer(Operation::Act, id, state)),
        },
    }
}
