//! What an operator does with deliveries: the wrapper of `action.lua`.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::{ENDED_DELIVERY_TTL, schedule};
use crate::redis_client::{RedisClient, Script};
use crate::types::text_form::text_enum;
use crate::types::{DeliveryId, DeliveryState, Keys};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("action.lua")));

/// The most deliveries that one call of the script changes: it holds the server a few milliseconds.
pub const ACTION_MAX: usize = 500;

text_enum! {
    /// What an operator does with deliveries.
    pub enum DeliveryAction {
        /// Dead ones are pending again and due now, under the same ids.
        Replay = "replay",
        /// Pending ones are due now, also behind an open circuit; dead ones are replayed.
        Retry = "retry",
        /// Pending ones end `cancelled`.
        Cancel = "cancel",
        /// Dead ones are acknowledged: they stay readable, and nothing counts them any more.
        Discard = "discard",
    }
}

impl DeliveryAction {
    /// What has become of a delivery, as `replayed`.
    pub const fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Retry => "retried",
            Self::Cancel => "cancelled",
            Self::Discard => "discarded",
        }
    }

    /// The states from which it takes deliveries; the first where nobody names one.
    pub const fn takes(self) -> &'static [DeliveryState] {
        match self {
            Self::Replay | Self::Discard => &[DeliveryState::Dead],
            Self::Retry => &[DeliveryState::Pending, DeliveryState::Dead],
            Self::Cancel => &[DeliveryState::Pending],
        }
    }

    /// Where a delivery stands afterwards.
    pub const fn leaves(self) -> DeliveryState {
        match self {
            Self::Replay | Self::Retry => DeliveryState::Pending,
            Self::Cancel => DeliveryState::Cancelled,
            Self::Discard => DeliveryState::Dead,
        }
    }
}

/// What became of one id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionResult {
    /// The id.
    pub id: DeliveryId,
    /// The script's answer for it.
    pub answer: ActionReply,
}

impl ActionResult {
    /// What became of it in one word, as programs are told.
    pub fn word(&self, action: DeliveryAction) -> &'static str {
        match self.answer {
            ActionReply::Done => action.done(),
            ActionReply::Leased => "leased",
            ActionReply::InState(_) if action.takes() == [DeliveryState::Dead] => "not_dead",
            ActionReply::InState(_) => "ended",
            ActionReply::Missing => "unknown",
        }
    }

    /// Where the delivery stands now; `None` where there is none.
    pub const fn state(&self, action: DeliveryAction) -> Option<DeliveryState> {
        match self.answer {
            ActionReply::Done => Some(action.leaves()),
            ActionReply::Leased => Some(DeliveryState::Pending),
            ActionReply::InState(state) => Some(state),
            ActionReply::Missing => None,
        }
    }
}

/// What became of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionReply {
    /// It is done.
    Done,
    /// It is being attempted right now, and left alone.
    Leased,
    /// No such delivery, or its end was more than 14 days ago.
    Missing,
    /// It is in this state, in which the action takes none, and left alone.
    InState(DeliveryState),
}

/// Does what an operator asks for with each of these deliveries, in calls of [`ACTION_MAX`]. Those that the action does
/// not take are left alone and said so. Repeatable. The argument is in `action.lua`.
///
/// # Errors
///
/// [`OutboxError`]; the calls before the failing one stand.
pub async fn act(
    client: &RedisClient,
    keys: &Keys,
    action: DeliveryAction,
    ids: &[DeliveryId],
) -> Result<Vec<ActionResult>, OutboxError> {
    let mut results = Vec::with_capacity(ids.len());
    for ids in ids.chunks(ACTION_MAX) {
        let mut call = schedule::call(&SCRIPT, keys).arg(action.as_str()).arg(ENDED_DELIVERY_TTL.as_secs());
        for id in ids {
            call = call.arg(id.as_str());
        }
        let answers: Vec<String> = call.run(client).await.map_err(OutboxError::redis(Operation::Act, keys.stream()))?;
        for (id, answer) in ids.iter().zip(answers) {
            results.push(ActionResult { id: id.clone(), answer: answer_of(&answer, id)? });
        }
    }
    Ok(results)
}

fn answer_of(answer: &str, id: &DeliveryId) -> Result<ActionReply, OutboxError> {
    match answer {
        "done" => Ok(ActionReply::Done),
        "leased" => Ok(ActionReply::Leased),
        "missing" => Ok(ActionReply::Missing),
        state => DeliveryState::from_stored(state).map(ActionReply::InState).ok_or_else(|| OutboxError::Answer {
            operation: Operation::Act,
            of: id.to_string(),
            answer: state.to_owned(),
        }),
    }
}
