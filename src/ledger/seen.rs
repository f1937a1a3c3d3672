//! The wrapper of `seen.lua`: which events of a batch were counted before.

use redis::RedisResult;

use crate::types::{Keys, StreamId};
use crate::wire::{RedisClient, Script};

use super::batch::window_of;

/// Looks event ids up.
#[derive(Debug)]
pub struct SeenLookup {
    keys: Keys,
    script: Script,
}

/// What was found, and as of which checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenAnswer {
    /// The checkpoint at the time of the look-up. The answers are valid for a batch that was read from it.
    pub checkpoint: StreamId,
    /// For each member asked about, in order: whether an event with that id was counted.
    pub counted: Vec<bool>,
}

/// An event id to look up.
#[derive(Debug, Clone, Copy)]
pub struct SeenQuery<'a> {
    /// The window of the event's own entry.
    pub window: u64,
    /// As [`super::SeenId::member`] makes it.
    pub member: &'a [u8],
}

impl SeenLookup {
    /// A look-up in the partition with these keys.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self { keys, script: Script::new(include_str!("seen.lua")) }
    }

    /// Looks each member up in its own window and the one before it, as of one checkpoint.
    ///
    /// `from` is the checkpoint that the batch was read from: only its window and the one before it can hold ids, later windows
    /// are filled by later commits. Writes nothing.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said.
    pub async fn look_up(
        &self,
        client: &RedisClient,
        from: StreamId,
        queries: &[SeenQuery<'_>],
    ) -> RedisResult<SeenAnswer> {
        let last = window_of(from);
        let stored = [last.checked_sub(1), Some(last)].into_iter().flatten();
        let mut call = self.script.call().key(self.keys.checkpoint());
        let mut asked: Vec<Vec<usize>> = Vec::new();
        for window in stored {
            let relevant = |query: &SeenQuery<'_>| query.window == window || query.window == window + 1;
            let which: Vec<usize> = (0..queries.len()).filter(|at| relevant(&queries[*at])).collect();
            if which.is_empty() {
                continue;
            }
            call = call.key(self.keys.seen(window)).arg(which.len());
            for at in &which {
                call = call.arg(queries[*at].member);
            }
            asked.push(which);
        }
        let reply: Vec<String> = call.run(client).await?;
        let mut counted = vec![false; queries.len()];
        for (which, flags) in asked.iter().zip(reply.iter().skip(1)) {
            for (at, flag) in which.iter().zip(flags.bytes()) {
                counted[*at] |= flag == b'1';
            }
        }
        let checkpoint = reply.first().and_then(|id| id.parse().ok()).unwrap_or(StreamId::ZERO);
        Ok(SeenAnswer { checkpoint, counted })
    }
}
