//! Where pieces go: written to the target, or compared with what it has.

use redis::Value;

use crate::wire::Partitions;

use super::error::MigrationError;
use super::piece::Piece;

/// Elements that are written or compared in one write.
const ELEMENTS_AT_ONCE: u64 = 2_000;
/// Differences that are named.
const NAMED_MAX: usize = 10;

/// What is done with pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They are written.
    Copy,
    /// They are compared with what is there.
    Compare,
}

/// Takes pieces.
#[derive(Debug)]
pub(super) struct Target<'a> {
    partitions: &'a Partitions,
    purpose: Purpose,
    /// Of each partition, what is to be written or compared.
    pending: Vec<Vec<Piece>>,
    elements_pending: u64,
    /// Elements that were taken.
    pub(super) elements: u64,
    /// Keys of pieces that the target does not have as the source does, the first few, ...
    pub(super) differing: Vec<String>,
    /// ... and how many there are.
    pub(super) differences: u64,
}

impl<'a> Target<'a> {
    pub(super) fn new(partitions: &'a Partitions, purpose: Purpose) -> Self {
        let pending = vec![Vec::new(); partitions.iter().len()];
        Self { partitions, purpose, pending, elements_pending: 0, elements: 0, differing: Vec::new(), differences: 0 }
    }

    /// Takes a piece for a partition; one without elements is of a key that has expired meanwhile.
    pub(super) async fn take(&mut self, partition: u32, piece: Piece) -> Result<(), MigrationError> {
        self.elements += piece.len();
        self.elements_pending += piece.len();
        if piece.len() > 0 {
            self.pending[partition as usize].push(piece);
        }
        if self.elements_pending < ELEMENTS_AT_ONCE { Ok(()) } else { self.flush().await }
    }

    /// Writes or compares what was taken.
    pub(super) async fn flush(&mut self) -> Result<(), MigrationError> {
        self.elements_pending = 0;
        for (partition, pieces) in self.partitions.iter().zip(&mut self.pending) {
            let pieces = std::mem::take(pieces);
            if pieces.is_empty() {
                continue;
            }
            let redis = |what: &str| MigrationError::redis(format!("{what} {} and others", pieces[0].key));
            let mut pipeline = redis::pipe();
            if self.purpose == Purpose::Copy {
                pieces.iter().for_each(|piece| piece.write(&mut pipeline));
                let () = partition.client.pipe(&pipeline).await.map_err(redis("write"))?;
                continue;
            }
            pieces.iter().for_each(|piece| piece.read(&mut pipeline));
            let found: Vec<Value> = partition.client.pipe(&pipeline).await.map_err(redis("compare"))?;
            for (piece, found) in pieces.iter().zip(found.chunks_exact(2)) {
                let expires_at_ms = redis::from_redis_value_ref(&found[1]).unwrap_or(-2);
                // A key without an end lives longer than any.
                let expires_at_ms = if expires_at_ms == -1 { i64::MAX } else { expires_at_ms };
                if !piece.is_as_read(found[0].clone(), expires_at_ms).unwrap_or(false) {
                    self.differences += 1;
                    if self.differing.len() < NAMED_MAX {
                        self.differing.push(piece.key.clone());
                    }
                }
            }
        }
        Ok(())
    }
}
