//! Readiness: Redis answers and is fit, the scripts are loaded, nothing drains. SMTP and receivers never decide it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::wire::server::{ServerRole, UnsupportedServer, inspect};
use crate::wire::{RedisClient, ServerInfo};

/// A probe of readiness must not wait longer than what asks for it.
const DEADLINE: Duration = Duration::from_secs(1);

const STARTING: u8 = 0;
const RUNNING: u8 = 1;
const DRAINING: u8 = 2;

/// Whether the daemon can do its work.
#[derive(Debug, Default)]
pub struct Readiness {
    phase: AtomicU8,
    client: OnceLock<Arc<RedisClient>>,
}

/// Why it is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// Still starting: Redis was not reached yet.
    #[error("starting, Redis has not been reached yet")]
    Starting,
    /// On its way out.
    #[error("draining")]
    Draining,
    /// Redis does not answer.
    #[error("Redis does not answer")]
    Away,
    /// Redis is a replica now.
    #[error("Redis is a replica")]
    Replica,
    /// Redis is not one that can be relied on.
    #[error(transparent)]
    UnsupportedServer(#[from] UnsupportedServer),
}

impl Readiness {
    /// Start is over: Redis was reached, judged, and the scripts run.
    pub fn running(&self, client: Arc<RedisClient>) {
        let _ = self.client.set(client);
        self.phase.store(RUNNING, Ordering::Release);
    }

    /// The drain has begun.
    pub fn draining(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    /// Looks whether the daemon is ready, now.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub async fn check(&self) -> Result<(), NotReady> {
        match self.phase.load(Ordering::Acquire) {
            STARTING => return Err(NotReady::Starting),
            DRAINING => return Err(NotReady::Draining),
            _ => {}
        }
        let client = self.client.get().ok_or(NotReady::Starting)?;
        let info: ServerInfo = tokio::time::timeout(DEADLINE, inspect(client))
            .await
            .map_err(|_| NotReady::Away)?
            .map_err(|_| NotReady::Away)?;
        info.judge()?;
        if info.role == ServerRole::Replica {
            return Err(NotReady::Replica);
        }
        Ok(())
    }
}
