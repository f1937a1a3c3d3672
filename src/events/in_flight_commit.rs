//! The commit that is under way while the next batch is read: one at most, because each names the checkpoint of the one before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisResult;

use crate::ledger::{Batch, CommitOutcome, Committer};
use crate::wire::RedisClient;

/// A commit that has an answer.
pub(super) struct FinishedCommit {
    /// What was to be committed.
    pub(super) batch: Batch,
    /// What became of it.
    pub(super) answer: RedisResult<CommitOutcome>,
    /// Its round trip.
    pub(super) took: Duration,
}

/// The commit that is under way, if there is one.
#[derive(Default)]
pub(super) struct InFlightCommit(Option<Pin<Box<dyn Future<Output = FinishedCommit> + Send>>>);

impl InFlightCommit {
    /// A commit that begins when it is first waited for.
    pub(super) fn of(batch: Batch, committer: &Arc<Committer>, client: &Arc<RedisClient>) -> Self {
        let (committer, client) = (Arc::clone(committer), Arc::clone(client));
        Self(Some(Box::pin(async move {
            let began = Instant::now();
            let answer = committer.commit(&client, &batch).await;
            FinishedCommit { batch, answer, took: began.elapsed() }
        })))
    }

    /// Whether there is one.
    pub(super) const fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Its answer; never, if there is none. May be given up at any moment and asked again.
    pub(super) async fn finished(&mut self) -> FinishedCommit {
        match &mut self.0 {
            Some(future) => {
                let done = future.await;
                self.0 = None;
                done
            }
            None => std::future::pending().await,
        }
    }
}
