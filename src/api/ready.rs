//! Readiness: Redis answers and is fit, the scripts are loaded, and the daemon does not drain. SMTP and receivers have
//! no influence.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::events::CountingStatus;
use crate::redis_client::server::{InspectError, ServerReadiness, UnsupportedServer, inspect};
use crate::redis_client::{ErrorKind, Partition, Partitions, RedisClient, error_kind};
use crate::types::ONCE_A_MINUTE;

/// Timeout of the check; shorter than the timeouts of usual readiness probes.
const TIMEOUT: Duration = Duration::from_secs(1);

const STARTING: u8 = 0;
const RUNNING: u8 = 1;
const DRAINING: u8 = 2;

/// Whether the daemon can do its work.
#[derive(Debug)]
pub struct Readiness {
    phase: AtomicU8,
    partitions: Partitions,
    counting: CountingStatus,
}

#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("starting, Redis has not been reached yet")]
    Starting,
    #[error("draining")]
    Draining,
    #[error("Redis does not answer")]
    Away,
    #[error("Redis refuses the user or the password")]
    LoginRefused,
    #[error("Redis is a replica")]
    Replica,
    #[error("Redis is loading its data")]
    Loading,
    /// With the error code of the reply.
    #[error("Redis refuses every write ({code}): its log says why")]
    RefusesWrites { code: String },
    #[error("the counting of partition {partition} has stopped ({kind}): the log says what to mend")]
    CountingStopped { partition: u32, kind: ErrorKind },
    #[error(transparent)]
    UnsupportedServer(#[from] UnsupportedServer),
}

impl Readiness {
    /// Readiness of a daemon that starts and works on these partitions.
    pub const fn new(partitions: Partitions, counting: CountingStatus) -> Self {
        Self { phase: AtomicU8::new(STARTING), partitions, counting }
    }

    /// Redis was reached and is fit, and the scripts work.
    pub fn set_running(&self) {
        self.phase.store(RUNNING, Ordering::Release);
    }

    /// The drain has begun.
    pub fn set_draining(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// Whether the daemon is ready now.
    pub async fn check(&self) -> Result<(), NotReady> {
        match self.phase.load(Ordering::Acquire) {
            STARTING => return Err(NotReady::Starting),
            DRAINING => return Err(NotReady::Draining),
            _ => {}
        }
        if let Some((partition, kind)) = self.counting.first_stopped() {
            return Err(NotReady::CountingStopped { partition, kind });
        }
        let all = async {
            self.check_servers().await?;
            self.check_writes().await
        };
        let checked = tokio::time::timeout(TIMEOUT, all).await.map_err(|_| NotReady::Away)?;
        // Somebody has changed a setting of the server: an operator who reads only the log must find it there.
        if let Err(NotReady::UnsupportedServer(error)) = &checked {
            tracing::error!(name: ONCE_A_MINUTE, %error, "redis is not fit for quotabell any more, so the daemon is not ready");
        }
        checked
    }

    /// Whether the server is fit; with several partitions, every server that holds keys.
    async fn check_servers(&self) -> Result<(), NotReady> {
        let client = &self.partitions.first().client;
        if self.partitions.count() == 1 {
            return check_server(client).await;
        }
        let servers = client.primaries().await.map_err(|_| NotReady::Away)?;
        all(servers.into_iter().map(|server| async move { check_server(&server).await })).await
    }

    /// Whether each server with a partition takes writes.
    async fn check_writes(&self) -> Result<(), NotReady> {
        let partitions = self.partitions.one_per_primary().await.map_err(|_| NotReady::Away)?;
        all(partitions.into_iter().map(check_write)).await
    }
}

/// Runs the checks at the same time, because together they could take longer than [`TIMEOUT`].
async fn all(
    checks: impl Iterator<Item: Future<Output = Result<(), NotReady>> + Send + 'static>,
) -> Result<(), NotReady> {
    let mut running: JoinSet<_> = checks.collect();
    while let Some(checked) = running.join_next().await {
        checked.expect("a check does not panic")?;
    }
    Ok(())
}

async fn check_server(server: &RedisClient) -> Result<(), NotReady> {
    let info = inspect(server).await.map_err(|error| match error {
        InspectError::Redis(error) if error_kind(&error) == ErrorKind::Login => NotReady::LoginRefused,
        _ => NotReady::Away,
    })?;
    info.check_supported()?;
    match info.readiness() {
        ServerReadiness::Ready => Ok(()),
        ServerReadiness::Replica => Err(NotReady::Replica),
        ServerReadiness::Loading => Err(NotReady::Loading),
    }
}

/// Tries a write that changes nothing: a checkpoint has no TTL to remove. INFO does not tell whether a server refuses
/// writes; that depends on its disk, its replicas and its settings. A full server accepts this write, as it accepts
/// commits.
async fn check_write(Partition { client, keys }: Partition) -> Result<(), NotReady> {
    let tried = client.query::<()>(redis::cmd("PERSIST").arg(keys.checkpoint())).await;
    let Err(error) = tried else { return Ok(()) };
    match (error_kind(&error), error.code()) {
        (ErrorKind::NotReady, Some(code @ ("MISCONF" | "NOREPLICAS"))) => {
            Err(NotReady::RefusesWrites { code: code.to_owned() })
        }
        (ErrorKind::NotReady, Some("LOADING")) => Err(NotReady::Loading),
        (ErrorKind::ReadOnly, _) => Err(NotReady::Replica),
        // A failure that waiting does not fix stops the counting, which is judged above.
        (kind, _) if kind.is_transient() => Err(NotReady::Away),
        _ => Ok(()),
    }
}
