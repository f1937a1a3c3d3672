//! Spawns the tasks that count and deliver, after the connection to Redis succeeded.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use super::tasks::Tasks;
use crate::channels::Caps;
use crate::contacts::resolver::ContactResolver;
use crate::evaluation::{EndsLoop, HourlyLoop, StoredNoticeJudge};
use crate::events::worker::EventWorkerParts;
use crate::events::{DaemonName, EventWorker, Membership, PartitionLease};
use crate::ledger::Committer;
use crate::ledger::commit_settings::CommitSettings;
use crate::ledger::ends_feed::EndsFeed;
use crate::outbox::alert_log;
use crate::outbox::{
    ChannelNotifier, ConsentRequests, ContactChangeListener, DigestLoop, DispatcherConfig, FanOutLoop, LEASE_MARGIN,
    OutboxContext, Slots,
};
use crate::redis_client::Partition;
use crate::redis_client::endpoint::Deployment;
use crate::subjects::watch::{ChangeFeed, ChangeListener};
use crate::types::Keys;

pub(super) struct Workers<'a> {
    pub(super) parts: &'a Parts<'a>,
    pub(super) settings: CommitSettings,
    /// The daemon's address, which distinguishes daemons on the same host.
    pub(super) address: SocketAddr,
    /// Stops the workers.
    pub(super) stop: &'a CancellationToken,
    /// Stops the HTTP server, after the workers.
    pub(super) serving: &'a CancellationToken,
}

impl Workers<'_> {
    /// Spawns every worker.
    pub(super) fn spawn(self, tasks: &mut Tasks) -> anyhow::Result<()> {
        let Self { parts, stop, serving, .. } = self;
        let partitions: Vec<&Partition> = parts.partitions.iter().collect();
        let feeds: Vec<ChangeFeed> = partitions.iter().map(|_| ChangeFeed::default()).collect();
        feeds.iter().cloned().for_each(|holder| parts.reloader.add_feed(holder));
        let ends_feeds: Vec<ChangeFeed> = partitions.iter().map(|_| ChangeFeed::default()).collect();
        ends_feeds.iter().cloned().for_each(|holder| parts.reloader.add_feed(holder));
        let waker_changes = ChangeFeed::default();
        let mut readers = [feeds.clone(), ends_feeds.clone()].concat();
        readers.extend([waker_changes.clone(), parts.check_changes.clone(), parts.console_changes.clone()]);
        let changes = ChangeListener::new(parts.endpoint.clone(), &parts.partitions.first().keys, readers);
        tasks.spawn("watch", changes.run(stop.clone()));
        if parts.endpoint.deployment() != Deployment::Standalone {
            tasks.spawn("primaries", parts.endpoint.clone().watch(stop.clone()));
        }
        let (checks, serving) = (Arc::clone(&parts.api.checks), serving.clone());
        tasks.spawn("checks", async move { checks.watch_connection(serving).await });

        let host = nix::unistd::gethostname().context("ask for this machine's name")?;
        let name = DaemonName::new(&host.to_string_lossy(), self.address);
        let name = if parts.config.delivery.send { name } else { name.without_sending() };
        let membership = Membership::new(&parts.partitions, name.clone(), parts.plans.clone());
        let Partition { client, keys } = parts.partitions.first();
        // In the first partition, so that a cap holds for all partitions together.
        let caps = Caps::new(Arc::clone(client), keys.clone());
        let consents: Arc<dyn ConsentRequests> = parts.verification.clone();
        let (channels, retry) = (Arc::clone(&parts.channels), parts.config.retry.clone());
        let notifier = ChannelNotifier::new(channels, caps, retry, Arc::clone(&consents), parts.plans.clone());
        let judge = StoredNoticeJudge { partitions: parts.partitions.clone(), plans: parts.plans.clone() };
        let urls = parts.config.portal_urls(&parts.partitions);
        let notifier = notifier.with_judge(Arc::new(judge)).with_portal(urls);
        let outbox = SharedByOutboxes {
            contacts: Arc::new(parts.config.contact_resolver()),
            consents,
            notifier: Arc::new(notifier),
            slots: Slots::new(&parts.config.delivery),
        };
        let waker_contacts = Arc::clone(&outbox.contacts);
        for ((partition, changes), judged) in partitions.into_iter().zip(feeds).zip(ends_feeds) {
            let judged = EndsFeed::new(judged);
            let new_alerts = Arc::new(Notify::new());
            let lease = PartitionLease::new(&partition.keys, &name, membership.assigned(partition.number()));
            self.spawn_counting(tasks, &partition.keys, lease, (changes, judged.clone()), &new_alerts)?;
            let partition_of_pass = Partition {
                // A separate client, so that a pass delays nothing else.
                client: Arc::new(parts.endpoint.client(partition.keys.stream())?),
                keys: partition.keys.clone(),
            };
            let (plans, daemon) = (parts.plans.clone(), name.as_str().to_owned());
            let new_notices = Arc::clone(&new_alerts);
            let ends = EndsLoop {
                partition: partition_of_pass.clone(),
                plans: plans.clone(),
                contacts: Arc::clone(&outbox.contacts),
                daemon: daemon.clone(),
                feed: judged,
                late_max: parts.config.stream.late_max,
                new_notices: Arc::clone(&new_notices),
            };
            tasks.spawn("ends", ends.run(stop.clone()));
            let passes = HourlyLoop { partition: partition_of_pass, plans, daemon, new_notices };
            tasks.spawn("hourly", passes.run(stop.clone()));
            self.spawn_deliveries(tasks, partition, &new_alerts, &outbox);
        }
        tasks.spawn("membership", membership.run(stop.clone()));
        tasks.spawn("record", parts.deployment_record().keep(parts.partitions.clone(), stop.clone()));
        if let Some(daily) = parts.config.operator.daily() {
            let (partitions, new_deliveries) = (parts.partitions.clone(), parts.new_deliveries.clone());
            let digests = DigestLoop { partitions, contacts: Arc::clone(&outbox.contacts), daily, new_deliveries };
            tasks.spawn_restarted("digest", stop, move |stop| digests.clone().run(stop));
        }
        let days = parts.config.history.alerts_days;
        tasks.spawn("alert_log", alert_log::keep_retention(parts.partitions.clone(), days, stop.clone()));
        tasks.spawn("verification", Arc::clone(&parts.verification).run_removal(stop.clone()));
        let contact_change_listener = ContactChangeListener {
            partitions: parts.partitions.clone(),
            contacts: waker_contacts,
            changes: waker_changes,
            new_deliveries: parts.new_deliveries.clone(),
        };
        tasks.spawn("contact_change_listener", contact_change_listener.run(stop.clone()));
        Ok(())
    }

    /// Spawns the loop that reads the usage stream of a partition and commits.
    fn spawn_counting(
        &self,
        tasks: &mut Tasks,
        keys: &Keys,
        lease: PartitionLease,
        (changes, judged): (ChangeFeed, EndsFeed),
        new_alerts: &Arc<Notify>,
    ) -> anyhow::Result<()> {
        let Parts { config, plans, endpoint, .. } = self.parts;
        let partitions = keys.partition().count() as usize;
        let worker = EventWorker::new(EventWorkerParts {
            endpoint: endpoint.clone(),
            // A separate client, so that commits never queue behind other calls.
            client: Arc::new(endpoint.client(keys.stream())?),
            lease: Some(lease),
            keys: keys.clone(),
            config: config.stream.clone(),
            history: config.history,
            committer: Arc::new(Committer::new(keys.clone(), self.settings.clone())),
            plans: plans.clone(),
            // One daemon may have to read all partitions.
            cache_entries: config.subjects.cache_entries.div_ceil(partitions),
            changes,
            judged,
            new_alerts: Arc::clone(new_alerts),
            status: self.parts.counting.clone(),
        });
        tasks.spawn("worker", worker.run(self.stop.clone()));
        Ok(())
    }

    /// Spawns the loops that create the deliveries of a partition and send those that are due.
    fn spawn_deliveries(
        &self,
        tasks: &mut Tasks,
        partition: &Partition,
        new_alerts: &Arc<Notify>,
        shared: &SharedByOutboxes,
    ) {
        let Partition { client, keys } = partition.clone();
        let SharedByOutboxes { contacts, consents, notifier, slots } = shared.clone();
        let outbox = OutboxContext {
            client,
            keys,
            contacts,
            on_multiple: self.parts.config.alerts.on_multiple,
            new_deliveries: Arc::clone(self.parts.new_deliveries.signal_of(partition.number())),
        };
        let (fan_out, new_alerts) = (outbox.clone(), Arc::clone(new_alerts));
        let fan_out = move |stop| FanOutLoop::new(fan_out.clone(), Arc::clone(&new_alerts)).run(stop);
        tasks.spawn_restarted("fan-out", self.stop, fan_out);

        let config = self.parts.config.delivery.clone();
        if !config.send {
            tracing::warn!(
                stream = outbox.keys.stream(),
                "this daemon sends nothing: delivery.send is false, or --no-send was given"
            );
            return;
        }
        let give_up_after = self.parts.config.retry.give_up_after;
        let dispatcher = move || DispatcherConfig {
            outbox: outbox.clone(),
            notifier: Arc::clone(&notifier),
            consents: Arc::clone(&consents),
            slots: slots.clone(),
            config: config.clone(),
            give_up_after,
            lease_margin: LEASE_MARGIN,
        };
        tasks.spawn_restarted("dispatcher", self.stop, move |stop| dispatcher().run(stop));
    }
}

/// Shared parts of the outboxes of all partitions.
#[derive(Clone)]
struct SharedByOutboxes {
    contacts: Arc<ContactResolver>,
    consents: Arc<dyn ConsentRequests>,
    notifier: Arc<ChannelNotifier>,
    slots: Slots,
}
