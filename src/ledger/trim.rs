//! The wrapper of `trim.lua`: the part of a commit's work that may be delayed.

use std::sync::LazyLock;

use redis::RedisResult;

use crate::redis_client::{RedisClient, Script};
use crate::types::Keys;
use crate::types::keys::GROUP;

use super::commit_settings::TrimPolicy;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("trim.lua")));

/// A deviation from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrimWarning {
    /// This consumer group prevents the trimming of counted entries.
    TrimHeld(String),
    /// A command failed; with its name and the server's message.
    CommandRefused {
        /// `group`, `trim` or `unlink`.
        what: String,
        /// The error.
        error: String,
    },
}

/// Moves the consumer group to the checkpoint, trims counted entries, and removes the ids of past windows. Repeatable.
pub async fn tidy(
    client: &RedisClient,
    keys: &Keys,
    trim: TrimPolicy,
    past_windows: &[u64],
) -> RedisResult<Vec<TrimWarning>> {
    let mut call = SCRIPT.call().key(keys.stream()).key(keys.checkpoint());
    for window in past_windows {
        call = call.key(keys.event_ids(*window));
    }
    let notes: Vec<String> = call.arg(GROUP).arg(trim.as_str()).run(client).await?;
    let warning = |pair: &[String]| match pair[0].as_str() {
        "held" => TrimWarning::TrimHeld(pair[1].clone()),
        what => TrimWarning::CommandRefused { what: what.to_owned(), error: pair[1].clone() },
    };
    Ok(notes.chunks_exact(2).map(warning).collect())
}
