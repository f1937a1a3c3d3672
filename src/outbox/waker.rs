//! Wakes deliveries that wait for a contact when their subject's settings change.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::error::OutboxError;
use super::redis_outage::RedisOutage;
use super::wake::{wake_all, wake_subject};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::{Keys, Subject};
use crate::wire::RedisClient;

/// Turns changes of subjects into due deliveries. What it misses comes due by itself within a minute.
#[derive(Debug)]
pub struct Waker {
    client: Arc<RedisClient>,
    keys: Keys,
    changes: ChangeFeed,
    new_deliveries: Arc<Notify>,
}

impl Waker {
    /// A waker that does nothing until it runs.
    #[must_use]
    pub const fn new(client: Arc<RedisClient>, keys: Keys, changes: ChangeFeed, new_deliveries: Arc<Notify>) -> Self {
        Self { client, keys, changes, new_deliveries }
    }

    /// Wakes what changes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut outage = RedisOutage::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changes.arrived() => {}
            }
            match self.wake(self.changes.take()).await {
                Ok(0) => outage.worked(),
                Ok(_) => {
                    outage.worked();
                    self.new_deliveries.notify_one();
                }
                Err(error) => {
                    let wait = outage.failed(&error);
                    let _ = tokio::time::timeout(wait, stop.cancelled()).await;
                }
            }
        }
    }

    async fn wake(&self, change: SubjectChanges) -> Result<u64, OutboxError> {
        let subjects = match change {
            SubjectChanges::Any => return wake_all(&self.client, &self.keys).await,
            SubjectChanges::Of(subjects) => subjects,
        };
        let mut woken = 0;
        for subject in subjects.iter().filter_map(|bytes| Subject::parse(bytes).ok()) {
            woken += wake_subject(&self.client, &self.keys, &subject).await?;
        }
        Ok(woken)
    }
}
