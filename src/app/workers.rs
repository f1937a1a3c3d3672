//! Spawns the tasks that count and deliver, once Redis has been reached.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use super::tasks::{Tasks, restart_on_error};
use crate::channels::Caps;
use crate::contacts::resolver::ContactResolver;
use crate::events::worker::EventWorkerParts;
use crate::events::{EventWorker, PartitionLease};
use crate::ledger::Committer;
use crate::ledger::commit_settings::CommitSettings;
use crate::outbox::{
    ChannelNotifier, ConsentRequests, Dispatcher, DispatcherParts, FanOutLoop, FanOutParts, LEASE_MARGIN, Waker, slots,
};
use crate::subjects::watch::{ChangeFeed, ChangeListener};
use crate::wire::endpoint::Deployment;

/// What the workers have in common.
pub(super) struct Workers<'a> {
    pub(super) parts: &'a Parts<'a>,
    pub(super) settings: CommitSettings,
    /// Where this daemon listens. It tells the daemon from others on the same host.
    pub(super) address: SocketAddr,
    /// Ends the workers.
    pub(super) stop: &'a CancellationToken,
    /// Ends what serves the HTTP routes, after the workers.
    pub(super) serving: &'a CancellationToken,
}

impl Workers<'_> {
    /// Spawns every worker.
    ///
    /// # Errors
    ///
    /// When a client can't be built, or this machine has no name.
    pub(super) fn spawn(self, tasks: &mut Tasks) -> anyhow::Result<()> {
        let Self { parts, stop, serving, .. } = self;
        let new_alerts = Arc::new(Notify::new());
        let (worker_changes, waker_changes) = (ChangeFeed::default(), ChangeFeed::default());
        let readers = vec![worker_changes.clone(), waker_changes.clone(), parts.check_changes.clone()];
        let changes = ChangeListener::new(parts.endpoint.clone(), &parts.keys, readers);
        tasks.spawn("watch", changes.run(stop.clone()));
        if parts.endpoint.deployment() != Deployment::Standalone {
            tasks.spawn("primaries", parts.endpoint.clone().watch(stop.clone()));
        }
        let (checks, serving) = (Arc::clone(&parts.api.checks), serving.clone());
        tasks.spawn("checks", async move { checks.watch_connection(serving).await });
        self.spawn_counting(tasks, &new_alerts, worker_changes)?;
        self.spawn_deliveries(tasks, &new_alerts, waker_changes);
        Ok(())
    }

    /// Reads the usage stream and commits.
    fn spawn_counting(&self, tasks: &mut Tasks, new_alerts: &Arc<Notify>, changes: ChangeFeed) -> anyhow::Result<()> {
        let Parts { config, keys, plans, endpoint, .. } = self.parts;
        let host = nix::unistd::gethostname().context("ask for this machine's name")?;
        let worker = EventWorker::new(EventWorkerParts {
            target: endpoint.clone(),
            // Of its own, so that commits never queue behind other calls.
            client: Arc::new(endpoint.client(keys.stream())?),
            lease: Some(PartitionLease::new(keys, &host.to_string_lossy(), self.address)),
            keys: keys.clone(),
            config: config.stream.clone(),
            history: config.history,
            committer: Committer::new(keys.clone(), self.settings.clone()),
            plans: plans.clone(),
            cache_entries: config.subjects.cache_entries,
            changes,
            raised: Arc::clone(new_alerts),
        });
        tasks.spawn("worker", worker.run(self.stop.clone()));
        Ok(())
    }

    /// Turns alerts into deliveries, and sends those that are due.
    fn spawn_deliveries(&self, tasks: &mut Tasks, new_alerts: &Arc<Notify>, changes: ChangeFeed) {
        let Parts { config, keys, client, channels, new_deliveries, .. } = self.parts;
        let consents: Arc<dyn ConsentRequests> = self.parts.verification.clone();
        let contacts = Arc::new(ContactResolver::new(keys.clone(), config.fallback.contacts.clone()));
        let fan_out = {
            let (client, keys, contacts) = (Arc::clone(client), keys.clone(), Arc::clone(&contacts));
            let jump = config.alerts.jump;
            let (new_alerts, new_deliveries) = (Arc::clone(new_alerts), Arc::clone(new_deliveries));
            move || {
                FanOutLoop::new(FanOutParts {
                    jump,
                    client: Arc::clone(&client),
                    keys: keys.clone(),
                    contacts: Arc::clone(&contacts),
                    new_alerts: Arc::clone(&new_alerts),
                    new_deliveries: Arc::clone(&new_deliveries),
                })
            }
        };
        let token = self.stop.clone();
        let fan_out = restart_on_error(self.stop.clone(), "fan-out", move || fan_out().run(token.clone()));
        tasks.spawn("fan-out", fan_out);

        let dispatcher = {
            let (client, keys, new_deliveries) = (Arc::clone(client), keys.clone(), Arc::clone(new_deliveries));
            let caps = Caps::new(Arc::clone(&client), keys.clone());
            let notifier =
                ChannelNotifier::new(Arc::clone(channels), caps, config.retry.clone(), Arc::clone(&consents));
            let (notifier, slots) = (Arc::new(notifier), slots(&config.delivery));
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
        let token = self.stop.clone();
        let dispatcher = restart_on_error(self.stop.clone(), "dispatcher", move || dispatcher().run(token.clone()));
        tasks.spawn("dispatcher", dispatcher);
        let waker = Waker::new(Arc::clone(client), keys.clone(), changes, Arc::clone(new_deliveries));
        tasks.spawn("waker", waker.run(self.stop.clone()));
    }
}
