//! Gauges that are read from Redis at each scrape, so that nothing is counted twice or becomes stale.

use std::collections::HashSet;
use std::time::Duration;

use metrics::{Label, gauge};
use tokio::task::JoinSet;

use crate::channels::REGISTRY;
use crate::ledger::query::lag;
use crate::ledger::usage_profiles::{self, PassMark};
use crate::outbox::{DestinationCounts, totals};
use crate::redis_client::{Partition, Partitions};
use crate::types::{Destination, meters};

use super::ready::Readiness;

/// A scrape must not hang when Redis does.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Open circuits of one partition that are looked at. More receivers than the alert rule asks for are all the same.
const OPEN_CIRCUITS_MAX: usize = 1000;

/// Sets every gauge. Where Redis does not answer in time the gauges keep their last values and `quotabell_ready` is 0.
pub(super) async fn refresh(partitions: &Partitions, readiness: &Readiness) {
    let ready = readiness.check().await.is_ok();
    gauge!(meters::READY).set(if ready { 1.0 } else { 0.0 });
    let mut readings: JoinSet<Option<Vec<String>>> = partitions.iter().cloned().map(read).collect();
    let all = async {
        let mut open = Some(HashSet::new());
        while let Some(circuits) = readings.join_next().await {
            // Without those of one partition the number would be too low.
            open = open.zip(circuits.ok().flatten()).map(|(open, circuits)| open.into_iter().chain(circuits).collect());
        }
        open
    };
    match tokio::time::timeout(TIMEOUT, all).await {
        Ok(Some(mut open)) => {
            let servers = REGISTRY.into_iter().filter(|definition| definition.server_absence.is_some());
            let servers: Vec<Destination> =
                servers.map(|definition| Destination::derive(definition.channel, None)).collect();
            open.retain(|name: &String| servers.iter().all(|server| server.as_str() != name));
            gauge!(meters::RECEIVERS_FAILING).set(open.len() as f64);
        }
        Ok(None) => {}
        Err(_) => tracing::debug!("Redis did not answer in time: gauges keep their last values"),
    }
}

/// Sets the gauges of a partition. The destinations whose circuit is open, which partitions may have in common.
async fn read(partition: Partition) -> Option<Vec<String>> {
    let Partition { client, keys } = &partition;
    let set = |name, value| meters::of_partition(name, partition.number()).set(value);
    for definition in REGISTRY.into_iter().filter(|definition| definition.server_absence.is_some()) {
        let server = Destination::derive(definition.channel, None);
        let mut command = redis::cmd("ZSCORE");
        command.arg(keys.circuits()).arg(server.as_str());
        if let Ok(open) = client.query::<Option<f64>>(&command).await {
            let mut labels = meters::labels_of(partition.number());
            labels.push(Label::new("channel", definition.channel.as_str()));
            gauge!(meters::SERVER_CIRCUIT, labels).set(if open.is_some() { 1.0 } else { 0.0 });
        }
    }
    if let Ok(entries) = lag(client, keys).await {
        set(meters::LAG, entries as f64);
    }
    if let Ok(PassMark { passed: Some(began), .. }) = usage_profiles::mark(&partition).await {
        set(meters::HOURLY_PASS, began.0 as f64 / 1000.0);
    }
    if let Ok(totals) = totals(client, keys).await {
        let age_ms = totals.oldest_pending.map_or(0, |oldest| (totals.now.0 - oldest.0).max(0));
        set(meters::OLDEST_PENDING, age_ms as f64 / 1000.0);
        set(meters::DELIVERIES_PENDING, totals.pending as f64);
        set(meters::DELIVERIES_WITHOUT_CONTACT, totals.waiting as f64);
        set(meters::DELIVERIES_DEAD, totals.dead_kept as f64);
        set(meters::OUTBOX_ENTRIES, totals.outbox as f64);
        set(meters::DELIVERIES_PAUSED, if totals.is_paused { 1.0 } else { 0.0 });
        let DestinationCounts { healthy, unhealthy, open } = totals.destinations;
        for (state, count) in [("healthy", healthy), ("unhealthy", unhealthy), ("open", open)] {
            let mut labels = meters::labels_of(partition.number());
            labels.push(Label::new("state", state));
            gauge!(meters::DESTINATIONS, labels).set(count as f64);
        }
    }
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.circuits()).arg(0).arg(OPEN_CIRCUITS_MAX - 1);
    client.query(&command).await.ok()
}
