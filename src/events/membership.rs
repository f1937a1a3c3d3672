//! The list of live daemons, from which each daemon computes the partitions that it should read: the wrapper of
//! `membership.lua`.
//!
//! Sends the heartbeat. The list does not decide what is counted: the lease of a partition lets one daemon read, and
//! the checkpoint lets one commit. So a wrong list costs time but no event. Read next: [`super::assignment`], how
//! partitions are shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::redis_client::script::ScriptCall;
use crate::redis_client::{Partitions, RedisClient, Script, error_kind};
use crate::subjects::Plans;
use crate::types::{PartitionNumber, keys};

use super::assignment::partitions_of;
use super::daemon_name::{DaemonEntry, DaemonName};
use super::lease::PARTITION_LEASE_TTL;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("membership.lua")));

/// How often a daemon reports that it is alive, and learns which others are.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
/// How long a reply may take. A server that hangs is noticed before the list of live daemons is outdated.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a daemon counts as live after its last heartbeat. It is shorter than the leases, so the others know that a
/// daemon is dead before its leases expire.
const DAEMON_TTL: Duration = Duration::from_secs(3);

const _: () = assert!(DAEMON_TTL.as_millis() + HEARTBEAT_EVERY.as_millis() < PARTITION_LEASE_TTL.as_millis());

/// The heartbeat of one daemon.
#[derive(Debug)]
pub struct Membership {
    client: Arc<RedisClient>,
    name: DaemonName,
    /// The name of the streams. One Redis may have several usage streams, each with its own daemons.
    stream: String,
    plans: Plans,
    /// Fingerprints of other daemons' plans that differ from the own plans and were logged.
    other_plans: BTreeSet<String>,
    /// Whether this daemon should read each partition.
    assigned: Vec<watch::Sender<bool>>,
    /// Whether a heartbeat was answered. It removed earlier daemons of the same host and address from the list.
    has_joined: bool,
}

impl Membership {
    /// The membership for the partitions of one stream; sends nothing yet. If there is only one partition, it is
    /// assigned to every daemon and its lease alone decides, so that a daemon that starts later stands by and moves
    /// nothing.
    pub fn new(partitions: &Partitions, name: DaemonName, plans: Plans) -> Self {
        let first = partitions.first();
        let is_only = partitions.count() == 1;
        let assigned = partitions.iter().map(|_| watch::Sender::new(is_only)).collect();
        let (client, stream) = (Arc::clone(&first.client), first.keys.name().to_owned());
        Self { client, name, stream, plans, other_plans: BTreeSet::new(), assigned, has_joined: false }
    }

    /// Tells whether this daemon should read a partition.
    pub fn assigned(&self, partition: PartitionNumber) -> watch::Receiver<bool> {
        self.assigned[partition.get() as usize].subscribe()
    }

    /// Sends heartbeats and computes the assignment until stopped; then leaves the list, so that the others need not
    /// wait.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut failing = None;
        let mut known = Instant::now();
        loop {
            match self.heartbeat().await {
                Ok(daemons) => {
                    (known, failing) = (Instant::now(), None);
                    self.compare_plans(&daemons);
                    let names: BTreeSet<DaemonName> = daemons.into_iter().map(|daemon| daemon.name).collect();
                    self.share(&names.into_iter().collect::<Vec<_>>());
                }
                Err(error) => {
                    error_kind(&error).count("membership");
                    // While the live daemons are unknown, only the leases decide: one daemon that reads everything is
                    // better than a partition that nobody reads.
                    if known.elapsed() >= DAEMON_TTL {
                        for assigned in &self.assigned {
                            set(assigned, true);
                        }
                    }
                    if failing.replace(error_kind(&error)) != Some(error_kind(&error)) {
                        tracing::warn!(%error, key = keys::DAEMONS, "heartbeat not written: leases alone share the partitions");
                    }
                }
            }
            if stop.run_until_cancelled(tokio::time::sleep(HEARTBEAT_EVERY)).await.is_none() {
                break;
            }
        }
        let left: RedisResult<Vec<String>> = self.within_timeout(self.call("leave").run(&self.client)).await;
        if let Err(error) = left {
            tracing::debug!(%error, "not removed from the list of live daemons: the entry expires");
        }
    }

    /// Every live daemon of this stream, in the order of their heartbeats. After a change of its plans, a daemon is
    /// listed twice for some seconds.
    async fn heartbeat(&mut self) -> RedisResult<Vec<DaemonEntry>> {
        let dead = if self.has_joined { "" } else { self.name.address_prefix() };
        let call = self.call("alive").arg(DAEMON_TTL.as_millis() as u64).arg(dead);
        let members: Vec<String> = self.within_timeout(call.run(&self.client)).await?;
        self.has_joined = true;
        let daemons = members.iter().filter_map(|member| DaemonEntry::parse(member));
        Ok(daemons.filter(|daemon| daemon.stream == self.stream).collect())
    }

    fn call(&self, what: &'static str) -> ScriptCall<'_> {
        let plans = self.plans.fingerprint().to_string();
        let entry = DaemonEntry { name: self.name.clone(), stream: self.stream.clone(), plans };
        SCRIPT.call().key(keys::DAEMONS).arg(what).arg(entry.to_string())
    }

    async fn within_timeout<T>(&self, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let late = |_| RedisError::from((redis::ErrorKind::Io, "no answer in time"));
        tokio::time::timeout(HEARTBEAT_TIMEOUT, call).await.map_err(late)?
    }

    /// Warns of daemons with other plans, once for each: the plans of the daemon that reads decide which limits apply.
    fn compare_plans(&mut self, daemons: &[DaemonEntry]) {
        let own = self.plans.fingerprint();
        let newest: BTreeMap<&DaemonName, &str> = daemons.iter().map(|daemon| (&daemon.name, &*daemon.plans)).collect();
        let differing = newest.into_iter().filter(|(name, plans)| **name != self.name && **plans != *own);
        let mut other_plans = BTreeSet::new();
        for (name, plans) in differing {
            if other_plans.insert(plans.to_owned()) && !self.other_plans.contains(plans) {
                tracing::warn!(daemon = %name, plans, own = %own,
                    "another daemon has other plans: the plans of the reading daemon apply");
            }
        }
        self.other_plans = other_plans;
    }

    fn share(&self, daemons: &[DaemonName]) {
        if let [_only] = &self.assigned[..] {
            return;
        }
        let count = u32::try_from(self.assigned.len()).unwrap_or(u32::MAX);
        let mine = partitions_of(&self.name, daemons, count);
        let mut changed = false;
        for (number, assigned) in (0..).zip(&self.assigned) {
            changed |= set(assigned, mine.contains(&number));
        }
        if changed {
            tracing::info!(partitions = ?mine, of = count, daemons = daemons.len(), "the partitions that this daemon is to read");
        }
    }
}

/// Stores the value, and returns whether it has changed.
fn set(assigned: &watch::Sender<bool>, value: bool) -> bool {
    assigned.send_if_modified(|known| std::mem::replace(known, value) != value)
}
