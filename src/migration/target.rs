//! Where chunks go: written to the target, or compared with what it has.

use std::collections::HashMap;

use redis::Value;

use crate::wire::Partitions;

use super::error::MigrationError;
use super::key_chunk::{Elements, KeyChunk};

/// Elements that are written or compared in one write.
const ELEMENTS_AT_ONCE: u64 = 2_000;
/// Differences that are named.
const NAMED_MAX: usize = 10;

/// What is done with chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They are written.
    Copy,
    /// They are compared with what is there.
    Compare,
}

/// Takes chunks.
#[derive(Debug)]
pub(super) struct Target<'a> {
    partitions: &'a Partitions,
    purpose: Purpose,
    /// Of each partition, what is to be written or compared.
    pending: Vec<Vec<KeyChunk>>,
    elements_pending: u64,
    /// Elements that were taken.
    pub(super) elements: u64,
    /// Keys of chunks that the target does not have as the source does, the first few, ...
    pub(super) differing: Vec<String>,
    /// ... and how many there are.
    pub(super) differences: u64,
    /// How many fields each hash has that comes in several chunks, by its partition and key.
    sizes: HashMap<(u32, String), u64>,
}

impl<'a> Target<'a> {
    pub(super) fn new(partitions: &'a Partitions, purpose: Purpose) -> Self {
        let pending = vec![Vec::new(); partitions.iter().len()];
        let (differing, sizes) = (Vec::new(), HashMap::new());
        Self { partitions, purpose, pending, elements_pending: 0, elements: 0, differing, differences: 0, sizes }
    }

    /// Takes a chunk for a partition; one without elements is of a key that has expired meanwhile.
    pub(super) async fn take(&mut self, partition: u32, chunk: KeyChunk) -> Result<(), MigrationError> {
        self.elements += chunk.len();
        self.elements_pending += chunk.len();
        if let (Purpose::Compare, Elements::SomeFields(fields)) = (self.purpose, &chunk.content) {
            *self.sizes.entry((partition, chunk.key.clone())).or_default() += fields.len() as u64;
        }
        if chunk.len() > 0 {
            self.pending[partition as usize].push(chunk);
        }
        if self.elements_pending < ELEMENTS_AT_ONCE { Ok(()) } else { self.flush().await }
    }

    /// Writes or compares what was taken.
    pub(super) async fn flush(&mut self) -> Result<(), MigrationError> {
        self.elements_pending = 0;
        let partitions = self.partitions;
        let pending = std::mem::replace(&mut self.pending, vec![Vec::new(); partitions.iter().len()]);
        for (partition, chunks) in partitions.iter().zip(pending) {
            if chunks.is_empty() {
                continue;
            }
            let redis = |what: &str| MigrationError::redis(format!("{what} {} and others", chunks[0].key));
            let mut pipeline = redis::pipe();
            if self.purpose == Purpose::Copy {
                chunks.iter().for_each(|chunk| chunk.write(&mut pipeline));
                let () = partition.client.pipe(&pipeline).await.map_err(redis("write"))?;
                continue;
            }
            chunks.iter().for_each(|chunk| chunk.read(&mut pipeline));
            let found: Vec<Value> = partition.client.pipe(&pipeline).await.map_err(redis("compare"))?;
            for (chunk, found) in chunks.iter().zip(found.chunks_exact(2)) {
                let expires_at_ms = redis::from_redis_value_ref(&found[1]).unwrap_or(-2);
                // A key without an end lives longer than any.
                let expires_at_ms = if expires_at_ms == -1 { i64::MAX } else { expires_at_ms };
                if !chunk.is_as_read(found[0].clone(), expires_at_ms).unwrap_or(false) {
                    self.differs(&chunk.key);
                }
            }
        }
        Ok(())
    }

    /// Whether the hashes that came in several chunks have other fields beside; after everything was compared.
    pub(super) async fn compare_sizes(&mut self) -> Result<(), MigrationError> {
        let sizes: Vec<_> = std::mem::take(&mut self.sizes).into_iter().collect();
        for (number, partition) in (0..).zip(self.partitions.iter()) {
            let own: Vec<_> = sizes.iter().filter(|((of, _), _)| *of == number).collect();
            for hashes in own.chunks(ELEMENTS_AT_ONCE as usize) {
                let mut pipeline = redis::pipe();
                hashes.iter().for_each(|((_, key), _)| {
                    pipeline.cmd("HLEN").arg(key);
                });
                let redis = MigrationError::redis(format!("compare how many fields {} and others have", hashes[0].0.1));
                let found: Vec<u64> = partition.client.pipe(&pipeline).await.map_err(redis)?;
                for (((_, key), size), found) in hashes.iter().zip(found) {
                    if found > *size {
                        self.differs(key);
                    }
                }
            }
        }
        Ok(())
    }

    fn differs(&mut self, key: &str) {
        self.differences += 1;
        if self.differing.len() < NAMED_MAX {
            self.differing.push(key.to_owned());
        }
    }
}
