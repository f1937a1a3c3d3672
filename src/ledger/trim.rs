//! The wrapper of `trim.lua`: cleanup after a commit, which may wait.

use redis::RedisResult;

use crate::redis_client::{RedisClient, Script};
use crate::types::{Keys, keys};

use super::commit_settings::TrimPolicy;

/// Cleans up one partition.
#[derive(Debug)]
pub struct StreamTrimmer {
    keys: Keys,
    trim: TrimPolicy,
    script: Script,
}

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

impl StreamTrimmer {
    /// For the partition with these keys.
    pub fn new(keys: Keys, trim: TrimPolicy) -> Self {
        Self { keys, trim, script: Script::with_prelude(include_str!("trim.lua")) }
    }

    /// Moves the consumer group to the checkpoint, trims counted entries, and removes the ids of past windows.
    /// Repeatable.
    pub async fn tidy(&self, client: &RedisClient, past_windows: &[u64]) -> RedisResult<Vec<TrimWarning>> {
        let mut call = self.script.call().key(self.keys.stream()).key(self.keys.checkpoint());
        for window in past_windows {
            call = call.key(self.keys.event_ids(*window));
        }
        let notes: Vec<String> = call.arg(keys::GROUP).arg(self.trim.as_str()).run(client).await?;
        let warning = |pair: &[String]| match pair[0].as_str() {
            "held" => TrimWarning::TrimHeld(pair[1].clone()),
            what => TrimWarning::CommandRefused { what: what.to_owned(), error: pair[1].clone() },
        };
        Ok(notes.chunks_exact(2).map(warning).collect())
    }
}
