//! Builds every part, spawns the long-lived tasks, drains.
//!
//! Only this file and `workers` spawn tasks that live as long as the daemon; `tasks` tracks them and ends them with it.
//! A loop that fails logs the reason and continues after a delay, even if only an operator can fix the cause (for
//! example a key of another type); the other tasks continue meanwhile. Read next: `parts`, built from the
//! configuration; [`startup`], which connects to Redis and checks it; `workers`, the tasks that count and deliver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::api::server::ServerLimits;
use crate::config::Config;
use crate::console;
use crate::portal::with_portal;
use crate::redis_client::EmbeddedServer;

mod deployment_record;
mod embedded_supervisor;
mod log_cap;
mod log_queue;
pub mod logging;
mod parts;
mod plan_reload;
mod signals;
pub mod startup;
mod supervisor;
mod tasks;
mod workers;
mod zone_updates;

use embedded_supervisor::EmbeddedSupervisor;
pub use log_queue::wait_until_writable;
use parts::Parts;
use plan_reload::ReadConfig;
use signals::{SAME_SIGNAL, Signals};
pub use signals::{hold_hangup, release_hangup};
use startup::StartupError;
use supervisor::DaemonState;
use tasks::{CLOSE_TIMEOUT, CONSOLE, HTTP, Tasks, drain};
use workers::Workers;

/// How often the recorder of metrics removes old samples.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// A second signal ended the daemon.
#[derive(Debug, thiserror::Error)]
#[error("ended by a second signal before the drain was over")]
pub struct DrainInterrupted;

/// Runs the daemon until a signal ends it. `read` reads the configuration again, for reloads.
///
/// # Errors
///
/// Errors that retries can't fix: invalid templates, an address in use, a Redis that is too old, evicts keys, or
/// refuses the user. [`DrainInterrupted`] after a second signal.
pub async fn run(config: Config, read: ReadConfig) -> anyhow::Result<()> {
    let recorder = api::recorder::install().context("install the recorder of metrics")?;
    // Early: in a container the daemon is process 1, which loses signals without a listener.
    let mut signals = Signals::listen().context("listen to signals")?;
    let hangup = signals::hangup().context("listen to SIGHUP")?;
    // Reading the configuration has already reported mistakes in settings. Later failures have other causes.
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    let (listener, address) = listen(&config.http.listen).await?;
    if config.redis.is_embedded() {
        // The parts read the password, which the first start generates.
        EmbeddedServer::prepare(&config.redis)?;
    }
    let parts = Parts::build(&config, read, recorder.clone())?;
    let serving = CancellationToken::new();
    let mut tasks = Tasks::default();
    let routes = with_portal(api::router::routes(parts.api.clone()), parts.portal()?);
    tasks.spawn(HTTP, api::server::serve(routes, listener, ServerLimits::DAEMON, serving.clone()));
    if let Some((listener, address)) = console::listen(&config.console).await {
        let routes = console::routes(parts.console(address)?);
        tasks.spawn(CONSOLE, api::server::serve(routes, listener, console::LIMITS, serving.clone()));
    }
    tasks.spawn("upkeep", upkeep(recorder));
    tasks.spawn("reload", Arc::clone(&parts.reloader).on_signal(hangup));
    tasks.spawn("zones", zone_updates::run(Arc::clone(&parts.reloader)));

    let mut redis = tokio::select! {
        begun = EmbeddedSupervisor::begin(&config.redis) => begun?,
        // A server that loads or writes a large file keeps running, and the next start adopts it.
        () = signals.stop() => return Ok(()),
    };
    let ended = Daemon { tasks, address, serving }.run(parts, &mut redis, &mut signals).await;
    redis.end().await;
    if let RunEnd::Drained = ended? {
        tracing::info!("drained");
    }
    Ok(())
}

/// Binds the HTTP listener and returns its real address, because the configuration may leave the port to the system.
async fn listen(address: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        StartupError::new(
            format_args!("listen on {address} (http.listen): {error}"),
            "another program has the address, or it is not this machine's: set http.listen",
        )
    })?;
    let address = listener.local_addr().context("ask where http listens")?;
    tracing::info!(%address, "http listens");
    Ok((listener, address))
}

async fn upkeep(recorder: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        recorder.run_upkeep();
    }
}

/// How a run without an error ended.
enum RunEnd {
    /// A signal arrived before Redis was ready.
    NotStarted,
    /// A signal arrived, and the drain is complete.
    Drained,
}

/// A daemon that already serves HTTP.
struct Daemon {
    tasks: Tasks,
    address: SocketAddr,
    /// Stops the HTTP server.
    serving: CancellationToken,
}

impl Daemon {
    /// Waits for Redis, works until a signal or a failure, and drains.
    async fn run(
        mut self,
        parts: Parts<'_>,
        redis: &mut EmbeddedSupervisor<'_>,
        signals: &mut Signals,
    ) -> anyhow::Result<RunEnd> {
        let Parts { config, endpoint, partitions, api, .. } = &parts;
        let settings = tokio::select! {
            ready = parts.wait_until_ready() => ready?,
            lost = redis.supervise() => return Err(lost.into()),
            () = signals.stop() => {
                tracing::info!("stopped before Redis was ready");
                return Ok(RunEnd::NotStarted);
            }
        };
        let stop = CancellationToken::new();
        let workers = Workers { parts: &parts, settings, address: self.address, stop: &stop, serving: &self.serving };
        workers.spawn(&mut self.tasks)?;
        api.checks.check_connection().await;
        api.readiness.set_running();
        supervisor::notify(DaemonState::Ready);
        tracing::info!(
            redis = endpoint.connected_to(),
            stream = config.stream.key,
            partitions = partitions.count(),
            "quotabell is ready"
        );

        let failed = tokio::select! {
            () = signals.stop() => None,
            task = self.tasks.one_failed() => Some(match parts.unfit_for_stored().await {
                Some(unfit) => unfit.into(),
                None => anyhow::anyhow!("the task {task} ended unexpectedly"),
            }),
            lost = redis.supervise() => Some(lost.into()),
        };
        self.drain(&parts, &stop, signals).await?;
        failed.map_or(Ok(RunEnd::Drained), Err)
    }

    /// Stops the workers, then the HTTP server, then the connections to mail servers.
    async fn drain(
        &mut self,
        Parts { config, api, channels, .. }: &Parts<'_>,
        stop: &CancellationToken,
        signals: &mut Signals,
    ) -> Result<(), DrainInterrupted> {
        api.readiness.set_draining();
        supervisor::notify(DaemonState::Stopping);
        tracing::info!(deadline = ?config.shutdown.drain, "draining; another signal after {SAME_SIGNAL:?} stops at once");
        stop.cancel();
        tokio::select! {
            () = drain(&mut self.tasks, &self.serving, config.shutdown.drain) => {}
            () = signals.stop_again() => {
                tracing::warn!("a second signal ended the drain; the next start continues the unfinished work");
                return Err(DrainInterrupted);
            }
        }
        // A connected mail server gets a QUIT; a hanging one is not waited for.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, channels.close()).await;
        Ok(())
    }
}
