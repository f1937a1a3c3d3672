//! Readiness: Redis answers and is fit, the scripts are loaded, nothing drains. SMTP and receivers never decide it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::types::{LOG_INTERVAL, LogLimiter};
use crate::wire::server::{ServerRole, UnsupportedServer, inspect};
use crate::wire::{Partitions, RedisClient};

/// Shorter than the timeouts of usual readiness probes.
const TIMEOUT: Duration = Duration::from_secs(1);

const STARTING: u8 = 0;
const RUNNING: u8 = 1;
const DRAINING: u8 = 2;

/// Whether the daemon can do its work.
#[derive(Debug)]
pub struct Readiness {
    phase: AtomicU8,
    partitions: Partitions,
    unsupported_log: LogLimiter,
}

#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("starting, Redis has not been reached yet")]
    Starting,
    #[error("draining")]
    Draining,
    #[error("Redis does not answer")]
    Away,
    #[error("Redis is a replica")]
    Replica,
    #[error(transparent)]
    UnsupportedServer(#[from] UnsupportedServer),
}

impl Readiness {
    /// Of a daemon that starts and works on these partitions.
    pub const fn new(partitions: Partitions) -> Self {
        let unsupported_log = LogLimiter::new(LOG_INTERVAL);
        Self { phase: AtomicU8::new(STARTING), partitions, unsupported_log }
    }

    /// Redis was reached and is fit, and the scripts run.
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
        let checked = tokio::time::timeout(TIMEOUT, self.check_servers()).await.map_err(|_| NotReady::Away)?;
        // Somebody has changed a setting of the server: whoever reads only the log is to find it there.
        if let Err(NotReady::UnsupportedServer(error)) = &checked
            && self.unsupported_log.admit((), Instant::now()).is_some()
        {
            tracing::error!(%error, "redis is not fit for quotabell any more, so the daemon is not ready");
        }
        checked
    }

    /// Whether the server of the only partition is fit; of several, every server that holds keys.
    async fn check_servers(&self) -> Result<(), NotReady> {
        let client = &self.partitions.first().client;
        if self.partitions.count() == 1 {
            return check_server(client).await;
        }
        for server in client.primaries().await.map_err(|_| NotReady::Away)? {
            check_server(&server).await?;
        }
        Ok(())
    }
}

async fn check_server(server: &RedisClient) -> Result<(), NotReady> {
    let info = inspect(server).await.map_err(|_| NotReady::Away)?;
    info.check_supported()?;
    if info.role == ServerRole::Replica { Err(NotReady::Replica) } else { Ok(()) }
}
