//! Keeping the embedded Redis: started, started again when it dies, left at the end.

use std::time::{Duration, Instant};

use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::redis_client::embedded::{EmbeddedStart, StopOutcome};
use crate::redis_client::{EmbeddedError, EmbeddedServer, RedisConfig};

/// A server that lived this long did not die of its start.
const SETTLED: Duration = Duration::from_secs(60);

/// Keeps the embedded server, where one is configured.
#[derive(Debug)]
pub(super) struct EmbeddedSupervisor<'a> {
    config: &'a RedisConfig,
    server: Option<EmbeddedServer>,
}

impl<'a> EmbeddedSupervisor<'a> {
    /// Starts or adopts the server, and says so.
    pub(super) async fn begin(config: &'a RedisConfig) -> Result<Self, EmbeddedError> {
        let server = if config.is_embedded() { Some(ensure(config).await?) } else { None };
        Ok(Self { config, server })
    }

    /// Starts the server again whenever it dies. Returns only when that is impossible. May be given up at any moment.
    pub(super) async fn supervise(&mut self) -> EmbeddedError {
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        loop {
            let Some(server) = &mut self.server else { return std::future::pending().await };
            let begun = Instant::now();
            server.ended().await;
            if begun.elapsed() > SETTLED {
                retries.reset();
            }
            tracing::error!("the embedded redis has ended: starting it again");
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
            Ok(StopOutcome::StillInUse) => tracing::info!("the embedded redis goes on: another quotabell uses it"),
            Err(error) => tracing::error!(%error, "the embedded redis could not be stopped"),
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
