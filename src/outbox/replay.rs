//! Dead deliveries again: the wrapper of `replay.lua`.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::schedule;
use crate::types::{DeliveryId, DeliveryState, Keys};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("replay.lua")));

/// The most deliveries one call of the script replays: it holds the server a few milliseconds.
pub const REPLAY_MAX: usize = 500;

/// What became of one id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The id.
    pub id: DeliveryId,
    /// The script's answer for it.
    pub answer: ReplayAnswer,
}

/// What became of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayAnswer {
    /// It is pending again and due now.
    Replayed,
    /// No such delivery, or its end was more than 14 days ago.
    Missing,
    /// It is not dead but in this state, and left alone.
    NotDead(DeliveryState),
}

/// What a replay of everything did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayedAll {
    /// Deliveries that are pending again.
    pub replayed: u64,
    /// Ids that were listed as dead but are gone.
    pub missing: u64,
}

/// Makes dead deliveries pending and due again, under the same ids. Others are left alone and said so.
///
/// The clock of `give_up_after` and the schedule of delays start over. Works in calls of [`REPLAY_MAX`]; repeatable.
///
/// # Errors
///
/// [`OutboxError`]; the calls before the failing one stand.
pub async fn replay(client: &RedisClient, keys: &Keys, ids: &[DeliveryId]) -> Result<Vec<Replayed>, OutboxError> {
    let mut replayed = Vec::with_capacity(ids.len());
    for ids in ids.chunks(REPLAY_MAX) {
        let mut call = schedule::call(&SCRIPT, keys);
        for id in ids {
            call = call.arg(id.as_str());
        }
        let answers: Vec<String> =
            call.run(client).await.map_err(OutboxError::redis(Operation::Replay, keys.stream()))?;
        for (id, answer) in ids.iter().zip(answers) {
            replayed.push(Replayed { id: id.clone(), answer: answer_of(&answer, id)? });
        }
    }
    Ok(replayed)
}

fn answer_of(answer: &str, id: &DeliveryId) -> Result<ReplayAnswer, OutboxError> {
    match answer {
        "replayed" => Ok(ReplayAnswer::Replayed),
        "missing" => Ok(ReplayAnswer::Missing),
        state => DeliveryState::from_stored(state).map(ReplayAnswer::NotDead).ok_or_else(|| OutboxError::Answer {
            operation: Operation::Replay,
            of: id.to_string(),
            answer: state.to_owned(),
        }),
    }
}

/// Replays every delivery that is dead at this moment. One that dies again meanwhile is not replayed again, so this ends.
///
/// # Errors
///
/// As [`replay`].
pub async fn replay_all(client: &RedisClient, keys: &Keys) -> Result<ReplayedAll, OutboxError> {
    let clock = client.server_time().await;
    let until = clock.map_err(OutboxError::redis(Operation::Query, "the server's clock"))?;
    let mut all = ReplayedAll::default();
    loop {
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg(keys.dead()).arg("-inf").arg(until.0).arg("LIMIT").arg(0).arg(REPLAY_MAX);
        let ids: Vec<String> =
            client.query(&command).await.map_err(OutboxError::redis(Operation::Replay, keys.stream()))?;
        let ids: Vec<DeliveryId> = ids.iter().map(|id| DeliveryId::from_stored(id)).collect();
        let answers = replay(client, keys, &ids).await?;
        let moved = |answer| answers.iter().filter(|replayed| replayed.answer == answer).count() as u64;
        all.replayed += moved(ReplayAnswer::Replayed);
        all.missing += moved(ReplayAnswer::Missing);
        // Both leave the list. Where neither happened, what is left is not ours to move, and looking again would never end.
        if moved(ReplayAnswer::Replayed) + moved(ReplayAnswer::Missing) == 0 {
            return Ok(all);
        }
    }
}
