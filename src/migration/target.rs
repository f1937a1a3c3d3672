//! The destination of chunks: writes them to the target, or compares them with its data.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use redis::Value;

use crate::redis_client::Partitions;

use super::error::MigrationError;
use super::key_chunk::{Elements, KeyChunk};

/// Number of elements per write or comparison.
const ELEMENTS_AT_ONCE: u64 = 2_000;
/// Maximum number of differences that are named.
const NAMED_MAX: usize = 10;

/// What to do with chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Write them.
    Copy,
    /// Compare them with the target's data.
    Compare,
}

/// Receives chunks.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) partitions: &'a Partitions,
    purpose: Purpose,
    /// The pending chunks of each partition.
    pending: Vec<Vec<KeyChunk>>,
    elements_pending: u64,
    /// Number of elements received.
    pub(super) elements: u64,
    /// The first keys that differ between source and target.
    pub(super) differing: Vec<String>,
    /// Number of keys that differ.
    pub(super) differences: u64,
    hasher: RandomState,
    /// The expected number of elements of each key, by partition and digest of the key. A digest of 64 bits, because
    /// there are millions of keys.
    sizes: HashMap<(u32, u64), u64>,
    /// Digests of the elements that several source partitions may have.
    shared: HashSet<u64>,
}

impl<'a> Target<'a> {
    pub(super) fn new(partitions: &'a Partitions, purpose: Purpose) -> Self {
        Self {
            partitions,
            purpose,
            pending: vec![Vec::new(); partitions.iter().len()],
            elements_pending: 0,
            elements: 0,
            differing: Vec::new(),
            differences: 0,
            hasher: RandomState::new(),
            sizes: HashMap::new(),
            shared: HashSet::new(),
        }
    }

    /// Receives a chunk for a partition; its elements occur once. A chunk without elements belongs to a key that has
    /// expired meanwhile.
    pub(super) async fn write_chunk(&mut self, partition: u32, chunk: KeyChunk) -> Result<(), MigrationError> {
        let elements = chunk.len();
        self.take_with(partition, chunk, elements).await
    }

    /// Receives a chunk whose elements other source partitions may have too.
    pub(super) async fn take_shared(&mut self, partition: u32, chunk: KeyChunk) -> Result<(), MigrationError> {
        let new = match &chunk.content {
            // A list keeps duplicates.
            Elements::Values(values) => values.len(),
            _ => {
                let Self { hasher, shared, .. } = self;
                let of = |name: &Vec<u8>| hasher.hash_one((partition, &chunk.key, name));
                chunk.names().filter(|name| shared.insert(of(name))).count()
            }
        };
        self.take_with(partition, chunk, new as u64).await
    }

    /// Receives a chunk unless its key was received before.
    pub(super) async fn take_first(&mut self, partition: u32, chunk: KeyChunk) -> Result<(), MigrationError> {
        if self.size_of(partition, &chunk.key) > 0 { Ok(()) } else { self.write_chunk(partition, chunk).await }
    }

    async fn take_with(&mut self, partition: u32, chunk: KeyChunk, new: u64) -> Result<(), MigrationError> {
        if chunk.len() == 0 {
            return Ok(());
        }
        self.elements += chunk.len();
        self.elements_pending += chunk.len();
        *self.sizes.entry((partition, self.hasher.hash_one(&chunk.key))).or_default() += new;
        self.pending[partition as usize].push(chunk);
        if self.elements_pending < ELEMENTS_AT_ONCE { Ok(()) } else { self.flush().await }
    }

    /// The expected number of elements of a key.
    pub(super) fn size_of(&self, partition: u32, key: &str) -> u64 {
        self.sizes.get(&(partition, self.hasher.hash_one(key))).copied().unwrap_or(0)
    }

    /// Writes or compares the pending chunks.
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
                // A key without an expiry outlives all others.
                let expires_at_ms = if expires_at_ms == -1 { i64::MAX } else { expires_at_ms };
                if !chunk.is_as_read(found[0].clone(), expires_at_ms).unwrap_or(false) {
                    self.differs(&chunk.key);
                }
            }
        }
        Ok(())
    }

    /// Records that a key differs between source and target.
    pub(super) fn differs(&mut self, key: &str) {
        self.differences += 1;
        if self.differing.len() < NAMED_MAX {
            self.differing.push(key.to_owned());
        }
    }
}
