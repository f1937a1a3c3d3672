//! The wrapper of `trim.lua`: what follows a commit and may wait.

use redis::RedisResult;

use crate::redis_client::{RedisClient, Script};
use crate::types::{Keys, keys};

use super::commit_settings::TrimPolicy;

/// Tidies one partition.
#[derive(Debug)]
pub struct StreamTrimmer {
    keys: Keys,
    trim: TrimPolicy,
    script: Script,
}

/// Something that did not go as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrimWarning {
    /// This consumer group keeps counted entries from being trimmed.
    TrimHeld(String),
    /// A command failed: which, and the server's words.
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

    /// Moves the consumer group to the checkpoint, trims what has been counted, and removes the ids of windows that are
    /// past. Repeatable.
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
