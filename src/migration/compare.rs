//! Compares streams entry by entry, in any order: the target must have each entry of the source equally often.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions};
use crate::types::StreamId;

use super::append::{CopiedStream, PartitionedEntry};

/// Counts entries of a stream by their content.
#[derive(Debug)]
pub(super) struct EntryComparison {
    stream: CopiedStream,
    hasher: RandomState,
    /// By partition of the target and digest of an entry: how many more copies the source has than the target.
    lacking: Vec<HashMap<u64, u64>>,
    /// Number of entries that only the target has.
    surplus: u64,
}

impl EntryComparison {
    pub(super) fn new(stream: CopiedStream, to: &Partitions) -> Self {
        let lacking = vec![HashMap::new(); to.iter().len()];
        Self { stream, hasher: RandomState::new(), lacking, surplus: 0 }
    }

    /// Adds the copied entries of a source partition after `after`. Producers may append more meanwhile.
    pub(super) async fn take_source(&mut self, from: &Partition, after: StreamId, to: &Partitions) -> RedisResult<()> {
        let mut copied = Vec::new();
        for Partition { client, keys } in to.iter() {
            let field = self.stream.copied_field(&from.keys);
            let last: Option<String> = client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg(field)).await?;
            copied.push(last.and_then(|id| id.parse().ok()).unwrap_or(StreamId::ZERO));
        }
        let mut after = after.to_string();
        while let Some((last, entries)) = self.stream.next(from, &after, to.count()).await? {
            after = last;
            for PartitionedEntry { partition, id, values } in entries {
                if id.parse::<StreamId>().is_ok_and(|id| id <= copied[partition as usize]) {
                    *self.lacking[partition as usize].entry(self.hasher.hash_one(values)).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Adds the entries of the target.
    pub(super) async fn take_target(&mut self, to: &Partitions) -> RedisResult<()> {
        for (partition, lacking) in to.iter().zip(&mut self.lacking) {
            let mut after = StreamId::ZERO.to_string();
            loop {
                let entries = self.stream.entries(partition, &after).await?;
                let Some((last, _)) = entries.last() else { break };
                after.clone_from(last);
                for (_, values) in entries {
                    match lacking.get_mut(&self.hasher.hash_one(values)).filter(|times| **times > 0) {
                        Some(times) => *times -= 1,
                        None => self.surplus += 1,
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of entries that only the target has.
    pub(super) const fn surplus(&self) -> u64 {
        self.surplus
    }

    /// Number of differing entries. Producers may already have written events to the target's stream.
    pub(super) fn differences(&self) -> u64 {
        let lacking: u64 = self.lacking.iter().flat_map(HashMap::values).sum();
        lacking + if self.stream == CopiedStream::Usage { 0 } else { self.surplus }
    }
}
