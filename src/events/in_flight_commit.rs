//! The commit that runs while the next batch is built. There is one at most, because each commit names the checkpoint
//! of the one before it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio_util::task::AbortOnDropHandle;

use crate::ledger::{Batch, CommitReply, Committer};
use crate::redis_client::RedisClient;

use super::batch_sizer::BatchSizer;

/// A commit that has an answer.
pub(super) struct FinishedCommit {
    /// The batch that the commit was to store.
    pub(super) batch: Batch,
    /// Expected cost for the server ([`BatchBounds::cost`](super::batch_builder::BatchBounds::cost)).
    pub(super) cost: usize,
    /// The reply of Redis.
    pub(super) answer: RedisResult<CommitReply>,
    /// The round-trip time.
    pub(super) took: Duration,
}

impl FinishedCommit {
    /// Adapts the bounds of the next batches.
    pub(super) fn adjust(&self, sizer: &mut BatchSizer) {
        match &self.answer {
            Ok(CommitReply::Committed { ran, .. }) => sizer.committed(self.cost, self.took, *ran),
            Ok(CommitReply::Old) | Err(_) => sizer.failed(),
            Ok(_) => {}
        }
    }
}

/// The running commit, if there is one.
#[derive(Default)]
pub(super) struct InFlightCommit(Option<AbortOnDropHandle<FinishedCommit>>);

impl InFlightCommit {
    /// Starts a commit as a task of its own, so that it is sent while the worker builds the next batch.
    pub(super) fn begin(batch: Batch, cost: usize, committer: &Arc<Committer>, client: &Arc<RedisClient>) -> Self {
        let (committer, client) = (Arc::clone(committer), Arc::clone(client));
        Self(Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let began = Instant::now();
            let answer = committer.commit(&client, &batch).await;
            FinishedCommit { batch, cost, answer, took: began.elapsed() }
        }))))
    }

    /// Whether a commit runs.
    pub(super) const fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the reply; forever if no commit runs. Cancel-safe.
    pub(super) async fn finished(&mut self) -> FinishedCommit {
        match &mut self.0 {
            Some(commit) => {
                let done = commit.await;
                self.0 = None;
                done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DeploymentId, StreamId};

    /// Otherwise a commit that is too slow or too old would be tried again forever, and a quick one would change
    /// nothing.
    #[test]
    fn the_next_batch_is_as_large_as_the_answer_allows() {
        let mut sizer = BatchSizer::new();
        let first = sizer.bounds().cost;
        let mut bound_after = |answer| {
            let batch = Batch::new(DeploymentId::from_stored("x"), StreamId::ZERO);
            let took = Duration::from_millis(1);
            FinishedCommit { batch, cost: sizer.bounds().cost, answer, took }.adjust(&mut sizer);
            sizer.bounds().cost
        };
        let ran = Some(Duration::from_micros(500));
        let grown = bound_after(Ok(CommitReply::Committed { not_raised: Vec::new(), ran, grants_due: None }));
        assert!(grown > first, "{first} {grown}");
        assert_eq!(bound_after(Ok(CommitReply::Lost)), grown, "it says nothing about the size");
        assert_eq!(bound_after(Ok(CommitReply::Old)), grown / 2);
        let failed = Err(redis::RedisError::from((redis::ErrorKind::Io, "no answer")));
        assert_eq!(bound_after(failed), grown / 4);
    }
}
