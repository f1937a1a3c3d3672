//! Supervises the embedded Redis: starts it, restarts it when it dies, stops it at the end.

use std::time::{Duration, Instant};

use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::redis_client::embedded::{EmbeddedStart, StopOutcome};
use crate::redis_client::{EmbeddedError, EmbeddedServer, RedisConfig};

/// After this uptime the cause of the server's end was not its start.
const SETTLED: Duration = Duration::from_secs(60);

/// Supervises the embedded server, if one is configured.
#[derive(Debug)]
pub(super) struct EmbeddedSupervisor<'a> {
    config: &'a RedisConfig,
    server: Option<EmbeddedServer>,
}

impl<'a> EmbeddedSupervisor<'a> {
    /// Starts or adopts the server, and logs that.
    pub(super) async fn begin(config: &'a RedisConfig) -> Result<Self, EmbeddedError> {
        let server = if config.is_embedded() { Some(ensure(config).await?) } else { None };
        Ok(Self { config, server })
    }

    /// Restarts the server when it dies. Returns only if that is impossible. Safe to cancel at any time.
    pub(super) async fn supervise(&mut self) -> EmbeddedError {
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        loop {
            let Some(server) = &mut self.server else { return std::future::pending().await };
            let begun = Instant::now();
            server.ended().await;
            if begun.elapsed() > SETTLED {
                retries.reset();
            }
            tracing::error!("the embedded redis ended: starting it again");
            tokio::time::sleep(retries.next_delay()).await;
            match ensure(self.config).await {
                Ok(server) => self.server = Some(server),
                Err(error) => return error,
            }
        }
    }

    /// Stops the server, unless another daemon uses it.
    pub(super) async fn end(self) {
        let Some(server) = self.server else { return };
        match server.stop().await {
            Ok(StopOutcome::Stopped) => tracing::info!("the embedded redis has stopped, its data is on disk"),
            Ok(StopOutcome::StillInUse) => {
                tracing::info!("the embedded redis keeps running: another quotabell uses it")
            }
            Err(error) => tracing::error!(%error, "could not stop the embedded redis"),
        }
    }
}

async fn ensure(config: &RedisConfig) -> Result<EmbeddedServer, EmbeddedError> {
    let server = EmbeddedServer::ensure(config).await?;
    let how = match server.started() {
        EmbeddedStart::Started => "started",
        EmbeddedStart::Adopted => "adopted, it was still running",
    };
    tracing::info!(
        "embedded redis {how}: producers use redis://127.0.0.1:{}, password and data in {}",
        server.port(),
        server.data_dir().display()
    );
    Ok(server)
}
