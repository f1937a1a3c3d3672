//! Streams are compared entry by entry: whether the target has each of the source's as often as the source, in whatever
//! order.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions};
use crate::types::StreamId;

use super::append::{CopiedStream, PartitionedEntry};

/// Counts entries of a stream by what they hold.
#[derive(Debug)]
pub(super) struct EntryComparison {
    stream: CopiedStream,
    hasher: RandomState,
    /// By partition of the target, and by a digest of an entry: how often the source has it more often than the target.
    lacking: Vec<HashMap<u64, u64>>,
    /// Entries of the target that are not the source's.
    surplus: u64,
}

impl EntryComparison {
    pub(super) fn new(stream: CopiedStream, to: &Partitions) -> Self {
        let lacking = vec![HashMap::new(); to.iter().len()];
        Self { stream, hasher: RandomState::new(), lacking, surplus: 0 }
    }

    /// Takes the entries of a partition of the source behind `after`, as far as they were copied: producers may go on
    /// meanwhile.
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

    /// Takes the entries of the target.
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

    /// How many entries of the target are not the source's.
    pub(super) const fn surplus(&self) -> u64 {
        self.surplus
    }

    /// How many entries differ. The target's stream of events may have some that producers have written there already.
    pub(super) fn differences(&self) -> u64 {
        let lacking: u64 = self.lacking.iter().flat_map(HashMap::values).sum();
        lacking + if self.stream == CopiedStream::Usage { 0 } else { self.surplus }
    }
}
