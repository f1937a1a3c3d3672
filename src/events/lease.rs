//! The lease of the partition: one daemon reads, the others stand by.
//!
//! Decides who reads: acquires the lease, renews it while this daemon reads, and releases it, so that several daemons
//! do not read the same events. The lease does not decide what is counted. If two daemons read at once, because one was
//! paused or a failover lost the lease, the checkpoint lets only one of them commit each batch. Read next: `lease.lua`
//! of `crates/throttle`.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::redis_client::{RedisClient, error_kind};
use crate::types::Keys;
use quotabell_throttle::{Lease, LeaseDecision};

use super::daemon_name::DaemonName;
use super::known_deployment::{is_unnamed, stored_deployment};
use super::report::WorkerReport;
use super::session_error::SessionError;

/// How long the others wait for a daemon that was killed.
pub const PARTITION_LEASE_TTL: Duration = Duration::from_secs(5);
/// Two renewals may fail before the third comes too late.
const RENEW_EVERY: Duration = Duration::from_millis(1500);
/// How often a standby asks for the lease, so that it notices a released lease at once.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long releasing the lease may take. It only spares the next reader a wait, so a server that hangs must not delay
/// the drain.
const RELEASE_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(3 * RENEW_EVERY.as_millis() < PARTITION_LEASE_TTL.as_millis());

/// The lease of one partition, for one daemon.
#[derive(Debug)]
pub struct PartitionLease {
    keys: Keys,
    lease: Lease,
    /// Holders with names that have this prefix are dead; `None` once Redis has answered the first request.
    dead: Option<String>,
    /// Whether this daemon should read the partition. The sender is gone if partitions are not shared.
    assigned: watch::Receiver<bool>,
}

/// Who reads the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseStatus {
    /// This daemon reads.
    Held,
    /// Another daemon reads.
    HeldByOther,
    /// This daemon is stopping.
    Stopped,
}

impl PartitionLease {
    /// The lease of a daemon that should read the partition whenever `assigned` is true. It is not acquired yet.
    ///
    /// A previous holder with the same host and address is dead, so its successor takes the lease over at once. Only
    /// the first request assumes that: two containers with the same host name and address would otherwise take the
    /// lease from each other forever.
    pub fn new(keys: &Keys, name: &DaemonName, assigned: watch::Receiver<bool>) -> Self {
        let lease = Lease::new(name.as_str(), PARTITION_LEASE_TTL);
        Self { keys: keys.clone(), lease, dead: Some(name.address_prefix().to_owned()), assigned }
    }

    /// Waits until this daemon should read the partition and holds the lease, or `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// The failure of Redis or the connection. The next request then still takes over from a dead predecessor.
    pub(super) async fn wait(
        &mut self,
        client: &RedisClient,
        report: &mut WorkerReport,
        stop: &CancellationToken,
    ) -> Result<LeaseStatus, SessionError> {
        loop {
            if stop.is_cancelled() {
                return Ok(LeaseStatus::Stopped);
            }
            if !*self.assigned.borrow() {
                report.not_assigned();
                stop.run_until_cancelled(until(self.assigned.clone(), true)).await;
                continue;
            }
            let expires_in = match self.ask(client).await.map_err(|source| self.failed(source))? {
                LeaseDecision::Acquired => {
                    report.lease_acquired();
                    return Ok(LeaseStatus::Held);
                }
                LeaseDecision::HeldByOther { expires_in } => expires_in,
            };
            if !report.is_standing_by() {
                report.stands_by(&self.holder(client).await);
            }
            // Read while another daemon reads, so that this one knows the deployment if it has to take over.
            match stored_deployment(client, &self.keys.checkpoint()).await {
                Ok(None) => match is_unnamed(client, &self.keys).await {
                    Ok(true) => report.deployment = None,
                    Ok(false) => report.deployment_found(None),
                    Err(_) => {}
                },
                Ok(stored) => report.deployment_found(stored.as_ref()),
                Err(_) => {}
            }
            stop.run_until_cancelled(tokio::time::sleep(expires_in.min(ASK_EVERY))).await;
        }
    }

    /// Runs `session`, which ends soon after `over` is cancelled, and renews the lease while it runs. Cancels `over`
    /// when another daemon holds the lease or should read the partition. In the second case it releases the lease after
    /// the session has ended.
    ///
    /// # Errors
    ///
    /// The session's error, unless another daemon holds the lease: then the checkpoint decides. Also a failure to renew
    /// that waiting does not fix.
    pub(super) async fn keep_during(
        &self,
        client: &RedisClient,
        over: &CancellationToken,
        session: impl Future<Output = Result<(), SessionError>>,
    ) -> Result<LeaseStatus, SessionError> {
        let mut session = pin!(session);
        let lost = tokio::select! {
            // The session first: no renewal delays a commit.
            biased;
            ended = &mut session => return ended.map(|()| LeaseStatus::Stopped),
            lost = self.renew_until_lost(client) => lost,
            () = until(self.assigned.clone(), false) => Ok(()),
        };
        over.cancel();
        if let Err(error) = session.await {
            tracing::debug!(%error, "the session ended with its lease");
        }
        if !*self.assigned.borrow() {
            self.release(client).await;
        }
        lost.map(|()| LeaseStatus::HeldByOther)
    }

    /// Releases the lease, so that the next daemon need not wait for its end. If that fails, the lease expires.
    pub(super) async fn release(&self, client: &RedisClient) {
        let mut connection = client.connection();
        let released = tokio::time::timeout(RELEASE_MAX, self.lease.release(&mut connection, &self.keys.lease())).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!(key = self.keys.lease(), "the lease could not be released: it ends by itself");
        }
    }

    async fn ask(&mut self, client: &RedisClient) -> RedisResult<LeaseDecision> {
        let dead = self.dead.as_deref().unwrap_or_default();
        let held = self.lease.acquire_from_dead(&mut client.connection(), &self.keys.lease(), dead).await?;
        self.dead = None;
        Ok(held)
    }

    /// Renews the lease until another daemon holds it.
    async fn renew_until_lost(&self, client: &RedisClient) -> Result<(), SessionError> {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.lease.acquire(&mut client.connection(), &self.keys.lease()).await {
                Ok(LeaseDecision::Acquired) => {}
                Ok(LeaseDecision::HeldByOther { .. }) => return Ok(()),
                // The session has the same problem, and reports it.
                Err(error) if error_kind(&error).is_transient() => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// The holder's name, for the log.
    async fn holder(&self, client: &RedisClient) -> String {
        let holder: RedisResult<Option<String>> = client.query(redis::cmd("GET").arg(self.keys.lease())).await;
        holder.ok().flatten().unwrap_or_default()
    }

    fn failed(&self, source: redis::RedisError) -> SessionError {
        SessionError::Lease { key: self.keys.lease(), source }
    }
}

/// Waits until `assigned` has the wanted value.
async fn until(mut assigned: watch::Receiver<bool>, wanted: bool) {
    if assigned.wait_for(|is_assigned| *is_assigned == wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}
