//! The worker of a partition: reads and commits while it holds the lease, and starts again after every failure.
//!
//! The reaction to every failure is the same: drop what was read and what is in memory, and start from the stored
//! checkpoint. Read next: [`super::session`], the loop on one connection.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::redis_client::ErrorKind;
use crate::redis_client::backoff::{Backoff, BackoffPolicy};

use super::lease::{LeaseStatus, PartitionLease};
use super::session::Session;
use super::session_error::SessionError;

pub use super::worker_context::{EventWorker, EventWorkerParts};

/// Maximum number of restarts without a commit that may be lost races. After more, the worker waits before each try.
const RESTARTS_AT_ONCE: u32 = 3;

impl EventWorker {
    /// Reads and commits until stopped, while this daemon holds the lease. A running commit is finished first. Waits
    /// during outages. Returns before it is stopped only if everything was moved to another deployment.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut lease = self.parts.lease.take();
        self.run_sessions(lease.as_mut(), &stop).await;
        if let Some(lease) = lease {
            lease.release(&self.parts.client).await;
        }
    }

    /// Runs one session after another until `stop`, or until nothing is left to read here.
    async fn run_sessions(&mut self, mut lease: Option<&mut PartitionLease>, stop: &CancellationToken) {
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        loop {
            let before = self.report.commits;
            let error = match self.run_with_lease(lease.as_deref_mut(), stop).await {
                Ok(LeaseStatus::Stopped) => return,
                Ok(LeaseStatus::Held | LeaseStatus::HeldByOther) => {
                    retries.reset();
                    continue;
                }
                Err(error) => error,
            };
            if self.report.commits > before {
                retries.reset();
                self.restarts = 0;
            }
            if matches!(error, SessionError::Read(_)) {
                self.read_sizer.failed();
            }
            let delay = match error.error_kind() {
                None => {
                    self.restarts += 1;
                    tracing::debug!(reason = %error, "reading again");
                    if self.restarts == RESTARTS_AT_ONCE + 1 {
                        self.report.makes_no_progress(&error);
                    }
                    if self.restarts > RESTARTS_AT_ONCE { retries.next_delay() } else { Duration::ZERO }
                }
                Some(ErrorKind::MovedAway) => {
                    tracing::debug!(%error, "the partition was moved away");
                    return;
                }
                Some(kind) => {
                    self.report.redis_failed(kind, &error);
                    retries.next_delay()
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    /// Waits for the lease, and works on one connection while this daemon holds it.
    async fn run_with_lease(
        &mut self,
        lease: Option<&mut PartitionLease>,
        stop: &CancellationToken,
    ) -> Result<LeaseStatus, SessionError> {
        let Some(lease) = lease else { return self.run_session(stop).await.map(|()| LeaseStatus::Stopped) };
        if lease.wait(&self.parts.client, &mut self.report, stop).await? == LeaseStatus::Stopped {
            return Ok(LeaseStatus::Stopped);
        }
        let (client, over) = (Arc::clone(&self.parts.client), stop.child_token());
        lease.keep_during(&client, &over, self.run_session(&over)).await
    }

    /// Works on one connection until stopped (`Ok`) or until it must start again.
    async fn run_session(&mut self, stop: &CancellationToken) -> Result<(), SessionError> {
        let mut session = Session::start(self).await?;
        let ended = session.run(stop).await;
        session.end();
        ended
    }
}
