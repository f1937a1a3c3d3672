//! The long-lived tasks of the daemon: spawns, tracks, restarts after errors, drains.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::outbox::OutboxError;
use crate::redis_client::ErrorKind;
use crate::redis_client::backoff::{Backoff, BackoffPolicy};

/// After this running time a loop has recovered from its last error.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Maximum time for open connections to close at the end: to the mail server, and of running HTTP requests.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Tasks that live as long as the daemon.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    set: JoinSet<&'static str>,
    /// Number of tasks that end with the drain; the drain ends the others.
    work: usize,
}

pub(super) const HTTP: &str = "http";
pub(super) const CONSOLE: &str = "console";

/// Tasks that serve the others and end after them.
const SERVICES: [&str; 6] = [HTTP, CONSOLE, "upkeep", "checks", "reload", "zones"];

impl Tasks {
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        if !SERVICES.contains(&name) {
            self.work += 1;
        }
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    /// Spawns a loop that runs until stopped, and restarts it after an error. If everything was moved to another
    /// deployment, the loop ends for good.
    pub(super) fn spawn_restarted<F>(
        &mut self,
        name: &'static str,
        stop: &CancellationToken,
        run: impl FnMut(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), OutboxError>> + Send + 'static,
    {
        self.spawn(name, restart_on_error(name, stop.clone(), run));
    }

    /// Waits for a task that ends although the daemon was not stopped, and returns its name. The task's thread has
    /// already printed a panic.
    pub(super) async fn one_failed(&mut self) -> &'static str {
        match self.set.join_next().await {
            Some(Ok(name)) => {
                self.ended(name);
                name
            }
            Some(Err(error)) => {
                tracing::error!(%error, "a task panicked");
                self.work = self.work.saturating_sub(1);
                "(panicked)"
            }
            None => std::future::pending().await,
        }
    }

    fn ended(&mut self, name: &'static str) {
        if !SERVICES.contains(&name) {
            self.work = self.work.saturating_sub(1);
        }
    }

    async fn work_ended(&mut self) {
        while self.work > 0 {
            self.one_failed().await;
        }
    }

    async fn has_ended(&mut self, name: &str) {
        while self.one_failed().await != name {}
    }
}

async fn restart_on_error<F>(name: &'static str, stop: CancellationToken, mut run: impl FnMut(CancellationToken) -> F)
where
    F: Future<Output = Result<(), OutboxError>>,
{
    let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
    let mut logged = String::new();
    while !stop.is_cancelled() {
        let begun = Instant::now();
        match run(stop.clone()).await {
            Ok(()) => return,
            Err(error) if error.error_kind() == ErrorKind::MovedAway => {
                tracing::debug!(task = name, %error, "the partition was moved away");
                return;
            }
            Err(error) => {
                if begun.elapsed() > STABLE_AFTER {
                    retries.reset();
                    logged.clear();
                }
                error.error_kind().count(name);
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                let failure = format!("{error}: {source}");
                if logged != failure {
                    logged = failure;
                    tracing::error!(task = name, %error, source, "the task failed; the daemon restarts it until the cause is fixed");
                }
            }
        }
        stop.run_until_cancelled(tokio::time::sleep(retries.next_delay())).await;
    }
}

/// Waits until every task has ended, the HTTP server last, so that `/readyz` returns 503 meanwhile. Drops tasks that
/// still run at the deadline: their leases end, and commits are atomic.
pub(super) async fn drain(tasks: &mut Tasks, serving: &CancellationToken, deadline: Duration) {
    if tokio::time::timeout(deadline, tasks.work_ended()).await.is_err() {
        tracing::warn!("the drain's deadline passed; the next start continues the unfinished work");
    }
    serving.cancel();
    // Complete requests get their response; incomplete ones are dropped.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tasks.has_ended(HTTP)).await;
    tasks.set.shutdown().await;
}
