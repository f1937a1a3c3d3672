//! Builds every part, spawns the long-lived tasks, drains.
//!
//! The only place that spawns anything that lives on; each task is tracked and ends with the daemon. A task that fails for a reason
//! that only an operator can mend (a key of another type, say) is started again and again, loudly, so that counting goes on where
//! it can and everything goes on once it is mended. Read next: [`start`], how Redis is reached and judged.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::{self, ApiState, CheckService, Gauges, Readiness, Token};
use crate::channels::{Caps, Channels};
use crate::config::Config;
use crate::contacts::book::ContactBook;
use crate::events::worker::EventWorkerParts;
use crate::events::{EventWorker, PartitionLease};
use crate::ledger::{CheckScript, Committer};
use crate::outbox::{
    ChannelNotifier, ConsentRequests, Dispatcher, DispatcherParts, FanOutLoop, FanOutParts, LEASE_MARGIN, OutboxError,
    Waker, slots,
};
use crate::subjects::watch::{ChangeFeed, ChangeListener};
use crate::subjects::{Plans, SettingsLookup};
use crate::types::{Keys, meters};
use crate::verification::{VerificationParts, VerificationService};
use crate::wire::RedisClient;
use crate::wire::backoff::{Backoff, BackoffPolicy};

mod embedded_supervisor;
pub mod logging;
mod signals;
pub mod start;

use embedded_supervisor::EmbeddedSupervisor;
use signals::Signals;
use start::{CannotStart, Start};

/// How often the recorder of metrics folds old samples.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// A loop that ran this long has got over what stopped it before.
const SETTLED: Duration = Duration::from_secs(60);

/// How long idle connections to the mail server, and callers who are being answered, may take to part.
const GOODBYE: Duration = Duration::from_secs(1);

/// The daemon was told twice to end.
#[derive(Debug, thiserror::Error)]
#[error("ended by a second signal before the drain was over")]
pub struct EndedEarly;

/// Runs the daemon until a signal ends it.
///
/// # Errors
///
/// What retrying can't mend: templates, an address in use, a Redis that is too old, evicts, or refuses the user. [`EndedEarly`]
/// after a second signal.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let channels = Arc::new(config.channels()?);
    for warning in channels.warnings() {
        tracing::warn!("{warning}");
    }
    let plans = Plans::new(&config.plans, &config.default_plan)?;
    let token = config.token()?;
    if let Some(warning) = token.as_ref().and_then(Token::warning) {
        tracing::warn!("{warning}");
    }
    // Before anything is bound or connected, so that a mistake in a setting is told as one.
    let target = config.target()?;
    let recorder = api::recorder::install().context("install the recorder of metrics")?;
    let mut signals = Signals::listen().context("listen to signals")?;

    let listener = TcpListener::bind(&config.http.listen).await.map_err(|error| CannotStart {
        problem: format!("listen on {} (http.listen): {error}", config.http.listen),
        hint: "another program has the address, or it is not this machine's: set http.listen".into(),
    })?;
    // The real port, where the configuration leaves it to the system.
    let address = listener.local_addr().context("ask where http listens")?;
    tracing::info!(%address, "http listens");
    let keys = config.keys();
    // Clients connect when they are first used.
    let client = Arc::new(RedisClient::new(target.client()?));
    let readiness = Arc::new(Readiness::new(Arc::clone(&client)));
    let new_deliveries = Arc::new(Notify::new());
    let verification = Arc::new(VerificationService::new(VerificationParts {
        client: Arc::clone(&client),
        keys: keys.clone(),
        config: config.verification.clone(),
        public_url: config.http.confirm_links_below(),
        new_deliveries: Arc::clone(&new_deliveries),
    })?);
    let for_checks = ChangeFeed::default();
    let checks = Arc::new(CheckService::new(
        config.check.clone(),
        // Of its own, so that no check queues behind a commit.
        Arc::new(RedisClient::new(target.client()?)),
        SettingsLookup::new(keys.clone(), plans.clone(), config.subjects.cache_entries, for_checks.clone()),
        CheckScript::new(keys.clone()),
    ));
    let api = Arc::new(ApiState {
        readiness: Arc::clone(&readiness),
        gauges: Gauges::new(keys.clone(), Arc::clone(&client)),
        recorder: recorder.clone(),
        token,
        checks: Arc::clone(&checks),
        verification: Arc::clone(&verification),
    });
    let serving = CancellationToken::new();
    let mut tasks = Tasks::default();
    tasks.spawn(HTTP, api::serve(Arc::clone(&api), listener, serving.clone()));
    tasks.spawn("upkeep", async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            recorder.run_upkeep();
        }
    });

    let start = Start { config: &config, keys: &keys, plans: &plans, target: &target, client: &client };
    let mut keeper = EmbeddedSupervisor::begin(&config.redis).await?;
    let reached = tokio::select! {
        reached = start.reach() => reached,
        lost = keeper.keep() => Err(lost.into()),
        () = signals.stop() => {
            tracing::info!("stopped before Redis was ready");
            keeper.end().await;
            return Ok(());
        }
    };
    let ready = match reached {
        Ok(ready) => ready,
        Err(cannot) => {
            keeper.end().await;
            return Err(cannot);
        }
    };
    let stop = CancellationToken::new();
    spawn_work(
        &mut tasks,
        &Work {
            config: &config,
            keys: &keys,
            ready: &ready,
            stop: &stop,
            address,
            checks: &checks,
            for_checks,
            serving: &serving,
        },
        plans,
        Arc::clone(&channels),
        verification,
        new_deliveries,
    )?;
    checks.check_connection().await;
    readiness.set_running();
    notify_supervisor(sd_notify::NotifyState::Ready);
    tracing::info!(redis = %ready.target.describe(), stream = keys.stream(), "quotabell is ready");

    let failed = tokio::select! {
        () = signals.stop() => None,
        task = tasks.one_failed() => Some(anyhow::anyhow!("the task {task} ended unexpectedly")),
        lost = keeper.keep() => Some(lost.into()),
    };
    readiness.set_draining();
    notify_supervisor(sd_notify::NotifyState::Stopping);
    tracing::info!(deadline = ?config.shutdown.drain, "draining: a second signal ends at once");
    stop.cancel();
    tokio::select! {
        () = drain(&mut tasks, &serving, config.shutdown.drain) => {}
        () = signals.stop() => {
            tracing::warn!("ended by a second signal; what was under way is taken up at the next start");
            keeper.end().await;
            return Err(EndedEarly.into());
        }
    }
    // A mail server is told goodbye where one is connected; one that hangs is not waited for.
    let _ = tokio::time::timeout(GOODBYE, channels.close()).await;
    keeper.end().await;
    match failed {
        Some(failed) => Err(failed),
        None => {
            tracing::info!("drained");
            Ok(())
        }
    }
}

/// What the working tasks have in common.
struct Work<'a> {
    config: &'a Config,
    keys: &'a Keys,
    ready: &'a start::Ready,
    stop: &'a CancellationToken,
    /// Where this daemon listens, which tells it from others of its host.
    address: SocketAddr,
    checks: &'a Arc<CheckService>,
    /// ChangeFeed of subjects that checks have to follow.
    for_checks: ChangeFeed,
    /// Ends after the work, with the HTTP server.
    serving: &'a CancellationToken,
}

fn spawn_work(
    tasks: &mut Tasks,
    work: &Work<'_>,
    plans: Plans,
    channels: Arc<Channels>,
    consents: Arc<dyn ConsentRequests>,
    new_deliveries: Arc<Notify>,
) -> anyhow::Result<()> {
    let Work { config, keys, ready, stop, address, checks, ref for_checks, serving } = *work;
    let (client, keys) = (Arc::clone(&ready.client), keys.clone());
    let new_alerts = Arc::new(Notify::new());
    let contacts = Arc::new(ContactBook::new(keys.clone(), config.fallback.contacts.clone()));
    let (for_worker, for_waker) = (ChangeFeed::default(), ChangeFeed::default());

    let readers = vec![for_worker.clone(), for_waker.clone(), for_checks.clone()];
    let watch = ChangeListener::new(ready.target.client_resp3()?, &keys, readers);
    tasks.spawn("watch", watch.run(stop.clone()));

    let (checks, token) = (Arc::clone(checks), serving.clone());
    tasks.spawn("checks", async move { checks.watch_connection(token).await });

    let host = nix::unistd::gethostname().context("ask for this machine's name")?;
    let worker = EventWorker::new(EventWorkerParts {
        target: ready.target.clone(),
        // Of its own, so that commits never queue behind other calls.
        client: Arc::new(RedisClient::new(ready.target.client()?)),
        lease: Some(PartitionLease::new(&keys, &host.to_string_lossy(), address)),
        keys: keys.clone(),
        config: config.stream.clone(),
        committer: Committer::new(keys.clone(), ready.settings.clone()),
        plans,
        cache_entries: config.subjects.cache_entries,
        changes: for_worker,
        raised: Arc::clone(&new_alerts),
    });
    tasks.spawn("worker", worker.run(stop.clone()));

    let fan_out = {
        let (client, keys, contacts) = (Arc::clone(&client), keys.clone(), Arc::clone(&contacts));
        let (new_alerts, new_deliveries) = (Arc::clone(&new_alerts), Arc::clone(&new_deliveries));
        move || {
            FanOutLoop::new(FanOutParts {
                client: Arc::clone(&client),
                keys: keys.clone(),
                contacts: Arc::clone(&contacts),
                new_alerts: Arc::clone(&new_alerts),
                new_deliveries: Arc::clone(&new_deliveries),
            })
        }
    };
    let token = stop.clone();
    tasks.spawn("fan-out", keep(stop.clone(), "fan-out", move || fan_out().run(token.clone())));

    let caps = Caps::new(Arc::clone(&client), keys.clone());
    let notifier = Arc::new(ChannelNotifier::new(channels, caps, config.retry.clone(), Arc::clone(&consents)));

    let slots = slots(&config.delivery);
    let dispatcher = {
        let (client, keys, new_deliveries) = (Arc::clone(&client), keys.clone(), Arc::clone(&new_deliveries));
        move || {
            Dispatcher::new(DispatcherParts {
                client: Arc::clone(&client),
                keys: keys.clone(),
                contacts: Arc::clone(&contacts),
                notifier: Arc::clone(&notifier),
                consents: Arc::clone(&consents),
                slots: Arc::clone(&slots),
                new_deliveries: Arc::clone(&new_deliveries),
                lease_margin: LEASE_MARGIN,
            })
        }
    };
    let token = stop.clone();
    tasks.spawn("dispatcher", keep(stop.clone(), "dispatcher", move || dispatcher().run(token.clone())));
    tasks.spawn("waker", Waker::new(client, keys, for_waker, new_deliveries).run(stop.clone()));
    Ok(())
}

/// Runs a loop again whenever it ended with an error that it could not wait out, until stopped.
async fn keep<F>(stop: CancellationToken, name: &'static str, mut run: impl FnMut() -> F)
where
    F: Future<Output = Result<(), OutboxError>>,
{
    let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
    let mut said = String::new();
    while !stop.is_cancelled() {
        let begun = Instant::now();
        match run().await {
            Ok(()) => return,
            Err(error) => {
                if begun.elapsed() > SETTLED {
                    retries.reset();
                    said.clear();
                }
                metrics::counter!(meters::REDIS_ERRORS, "operation" => name).increment(1);
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                let trouble = format!("{error}: {source}");
                if said != trouble {
                    tracing::error!(task = name, %error, source, "stopped until this is mended");
                    said = trouble;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(retries.next_delay()) => {}
        }
    }
}

/// Waits until every task has ended, the HTTP server last, so that `/readyz` says 503 meanwhile. What is still running at the
/// deadline is dropped: leases run out and commits have been made or not.
async fn drain(tasks: &mut Tasks, serving: &CancellationToken, deadline: Duration) {
    let worked_off = tasks.work_ended();
    if tokio::time::timeout(deadline, worked_off).await.is_err() {
        tracing::warn!("the drain's deadline passed; what was under way is taken up at the next start");
    }
    serving.cancel();
    // Whoever is being answered gets the answer; whoever sends half a request is not waited for.
    let _ = tokio::time::timeout(GOODBYE, tasks.has_ended(HTTP)).await;
    tasks.set.shutdown().await;
}

fn notify_supervisor(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the supervisor could not be told");
    }
}

/// Tasks that live as long as the daemon.
#[derive(Debug, Default)]
struct Tasks {
    set: JoinSet<&'static str>,
    /// Tasks that end with the drain; the others are ended by it.
    work: usize,
}

/// The HTTP server.
const HTTP: &str = "http";

/// Tasks that serve the others and are ended after them.
const SERVICES: [&str; 3] = [HTTP, "upkeep", "checks"];

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        if !SERVICES.contains(&name) {
            self.work += 1;
        }
        self.set.spawn(async move {
            task.await;
            name
        });
    }

    /// The name of a task that ended although nobody asked it to. A panic has been printed by its thread.
    async fn one_failed(&mut self) -> &'static str {
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
