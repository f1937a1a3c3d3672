//! The wrapper of `tidy.lua`: what follows a commit and may wait.

use redis::RedisResult;

use crate::types::{Keys, keys};
use crate::wire::{RedisClient, Script};

use super::commit_settings::TrimPolicy;

/// Tidies one partition.
#[derive(Debug)]
pub struct Tidier {
    keys: Keys,
    trim: TrimPolicy,
    script: Script,
}

/// Something that did not go as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TidyWarning {
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

impl Tidier {
    /// For the partition with these keys.
    pub fn new(keys: Keys, trim: TrimPolicy) -> Self {
        Self { keys, trim, script: Script::with_prelude(include_str!("tidy.lua")) }
    }

    /// Moves the consumer group to the checkpoint, trims what has been counted, and removes the ids of windows that are
    /// past. Repeatable.
    pub async fn tidy(&self, client: &RedisClient, past_windows: &[u64]) -> RedisResult<Vec<TidyWarning>> {
        let mut call = self.script.call().key(self.keys.stream()).key(self.keys.checkpoint());
        for window in past_windows {
            call = call.key(self.keys.event_ids(*window));
        }
        let notes: Vec<String> = call.arg(keys::GROUP).arg(self.trim.as_str()).run(client).await?;
        let warning = |pair: &[String]| match pair[0].as_str() {
            "held" => TidyWarning::TrimHeld(pair[1].clone()),
            what => TidyWarning::CommandRefused { what: what.to_owned(), error: pair[1].clone() },
        };
        Ok(notes.chunks_exact(2).map(warning).collect())
    }
}
