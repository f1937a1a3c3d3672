//! The long-lived tasks of the daemon: spawned, tracked, restarted on errors, drained.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::outbox::OutboxError;
use crate::redis_client::ErrorKind;
use crate::redis_client::backoff::{Backoff, BackoffPolicy};

/// A loop that ran for this long has recovered from the error that stopped it before.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// How long open connections may take to close at the end: to the mail server, and of HTTP requests that are being
/// answered.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Tasks that live as long as the daemon.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    set: JoinSet<&'static str>,
    /// Tasks that end with the drain; the others are ended by it.
    work: usize,
}

pub(super) const HTTP: &str = "http";

/// Tasks that serve the others and are ended after them.
const SERVICES: [&str; 5] = [HTTP, "upkeep", "checks", "reload", "zones"];

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

    /// Spawns a loop that runs until stopped, and is started again whenever it ended with an error. Where everything
    /// was moved to another deployment it ends for good.
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

    /// Waits for a task that ends although the daemon was not told to stop, and returns its name. A panic has been
    /// printed by its thread.
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
                    tracing::error!(task = name, %error, source, "the task failed and is retried until the cause is mended");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(retries.next_delay()) => {}
        }
    }
}

/// Waits until every task has ended, the HTTP server last, so that `/readyz` says 503 meanwhile. What is still running
/// at the deadline is dropped: leases run out and commits have been made or not.
pub(super) async fn drain(tasks: &mut Tasks, serving: &CancellationToken, deadline: Duration) {
    if tokio::time::timeout(deadline, tasks.work_ended()).await.is_err() {
        tracing::warn!("the drain's deadline passed; what was under way is taken up at the next start");
    }
    serving.cancel();
    // Requests that are complete get their answer; incomplete ones are not waited for.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tasks.has_ended(HTTP)).await;
    tasks.set.shutdown().await;
}
