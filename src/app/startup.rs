//! Connects to Redis at start: waits if waiting can help, and otherwise refuses with a reason.

use std::fmt;

use super::deployment_record::DeploymentRecord;
use super::parts::Parts;
use crate::config::Config;
use crate::ledger::commit_settings::{CHILDREN_DAYS_LEAST, CommitSettings, FORMAT};
use crate::ledger::dry_run::{DryRunError, dry_run};
use crate::ledger::stored_partitions::{
    OtherPartitions, StoredCheckpoint, StoredPartitions, WrongKeyType, stored_partitions,
};
use crate::migration;
use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::redis_client::client::RESPONSE_TIMEOUT;
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::server::{InspectError, ServerReadiness};
use crate::redis_client::{
    DeploymentError, ErrorKind, Partition, Partitions, RedisEndpoint, ServerInfo, error_kind, inspect,
};
use crate::types::DeploymentId;
use crate::types::text::pluralize;
use crate::views::changed_separator;

/// Hint for a database that the server does not have.
pub const NO_DATABASE_HINT: &str =
    "a server has 16 databases unless its setting `databases` says otherwise: end redis.url with a number, /0 to /15";

/// Hint for a cluster node in a URL of a single server.
pub const CLUSTER_NODE_HINT: &str = "this is a node of a cluster: name the cluster with some of its nodes, redis.url = \"redis+cluster://host:port,host2:port2\"";

/// A failure that waiting can't fix, with its hint.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct StartupError {
    pub problem: String,
    pub hint: String,
}

impl StartupError {
    pub(super) fn new(problem: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self { problem: problem.to_string(), hint: hint.to_string() }
    }
}

enum StartFailure {
    Transient(String),
    Permanent(StartupError),
}

impl Parts<'_> {
    /// Retries until Redis answers, is supported, and the commit's dry run has passed. Safe to cancel at any time.
    pub(super) async fn wait_until_ready(&self) -> anyhow::Result<CommitSettings> {
        let stream = &self.config.stream;
        let settings = CommitSettings {
            trim: stream.trim,
            partitions: stream.partitions,
            plans: self.plans.clone(),
            children_days: self.config.history.days.max(CHILDREN_DAYS_LEAST),
        };
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        let mut logged = String::new();
        loop {
            match self.examine(&settings).await {
                Ok(servers) => {
                    if servers.iter().any(|server| !server.aof_enabled) {
                        tracing::warn!(
                            "this Redis keeps no append-only file: a crash of the server loses all data since its last snapshot"
                        );
                    }
                    return Ok(settings);
                }
                Err(StartFailure::Permanent(cannot)) => return Err(cannot.into()),
                Err(StartFailure::Transient(reason)) => {
                    self.endpoint.forget_primaries();
                    if logged != reason {
                        tracing::warn!(redis = %self.endpoint, reason, "waiting for Redis");
                        logged = reason;
                    }
                    tokio::time::sleep(retries.next_delay()).await;
                }
            }
        }
    }

    async fn examine(&self, settings: &CommitSettings) -> Result<Vec<ServerInfo>, StartFailure> {
        let infos = self.examine_servers().await?;
        let first = &self.partitions.first().keys;
        let reading = || format!("read {}", first.checkpoint());
        let stored = stored_partitions(&self.partitions).await;
        let stored = stored.map_err(|error| self.failure_of(&error, &reading()))?;
        check_stored_layout(&self.partitions, &stored).map_err(StartFailure::Permanent)?;
        if stored.checkpoints.iter().all(|stored| stored.format.is_none()) {
            self.check_new_deployment()?;
        }
        let differs = |stored: &StoredCheckpoint| {
            stored.fingerprint.as_deref().is_some_and(|fingerprint| *fingerprint != *settings.plans.fingerprint())
        };
        if stored.checkpoints.iter().any(differs) {
            tracing::warn!(
                plans = %settings.plans.fingerprint(),
                "the plans of this daemon differ from those of the last commit: they apply to the partitions that this \
                 daemon reads; all running daemons should have the same plans"
            );
        }
        let changed = changed_separator::warning(&self.partitions).await;
        if let Some(warning) = changed.map_err(|error| self.failure_of(&error, &reading()))? {
            tracing::warn!("{warning}");
        }
        if let Some(warning) = unread_streams(&stored) {
            tracing::warn!("{warning}");
        }
        let nonce = format!("{:016x}", rand::random::<u64>());
        for Partition { client, keys } in self.partitions.iter() {
            dry_run(client, keys, settings, &nonce).await.map_err(|error| self.dry_run_failed(&error))?;
        }
        self.share_instance().await.map_err(|error| self.failure_of(&error, &"name the deployment"))?;
        Ok(infos)
    }

    /// Whether an empty Redis has always been empty, according to the record.
    fn check_new_deployment(&self) -> Result<(), StartFailure> {
        let record = self.deployment_record();
        let path = record.path().display();
        let why = match record.read() {
            Ok(None) => return Ok(()),
            Ok(Some(recorded)) => format!("but {path} says that it held the deployment {recorded}"),
            Err(error) => format!("and a record of its deployment can't be read from {path} ({error})"),
        };
        Err(StartFailure::Transient(format!(
            "Redis is empty, {why}: restore a backup (docs/operations.md), or delete that file to confirm a new \
             deployment"
        )))
    }

    /// Why a daemon would not start with the current stored state: a task that ended may have found a migration. `None`
    /// if the state fits, or if Redis does not answer in time.
    pub(super) async fn unfit_for_stored(&self) -> Option<StartupError> {
        let stored = tokio::time::timeout(RESPONSE_TIMEOUT, stored_partitions(&self.partitions)).await.ok()?.ok()?;
        check_stored_layout(&self.partitions, &stored).err()
    }

    /// The record of the deployment that this daemon has seen in its Redis.
    pub(super) fn deployment_record(&self) -> DeploymentRecord {
        let Config { redis, stream, .. } = self.config;
        DeploymentRecord::new(&redis.data_dir, &self.endpoint.to_string(), &stream.key)
    }

    fn dry_run_failed(&self, error: &DryRunError) -> StartFailure {
        match error {
            DryRunError::Redis { source, .. } | DryRunError::Lease { source, .. } => self.failure_of(source, error),
            DryRunError::Refused { .. } => permanent(
                error,
                "grant the user this command (docs/operations.md lists them), or set stream.trim = \"never\"",
            ),
            DryRunError::Answer { .. } => StartFailure::Transient(error.to_string()),
        }
    }

    /// Gives all of several partitions the same deployment id. A single partition gets its id from its reader.
    async fn share_instance(&self) -> redis::RedisResult<()> {
        if self.partitions.count() == 1 {
            return Ok(());
        }
        let mut instance = DeploymentId::random().as_str().to_owned();
        for Partition { client, keys } in self.partitions.iter() {
            let checkpoint = keys.checkpoint();
            let mut claim = redis::cmd("HSETNX");
            match client.query::<bool>(claim.arg(&checkpoint).arg("instance").arg(&instance)).await {
                Ok(true) => {}
                Ok(false) if keys.partition().get() == 0 => {
                    instance = client.query(redis::cmd("HGET").arg(&checkpoint).arg("instance")).await?;
                }
                Ok(false) => {}
                // Each reader then draws its own id; alert ids stay distinct, because a subject has one partition.
                Err(error) if error_kind(&error) == ErrorKind::Full => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Checks that every server that holds keys is supported and ready: in a cluster a subject's key may be on any of
    /// them.
    async fn examine_servers(&self) -> Result<Vec<ServerInfo>, StartFailure> {
        let finding = |error: redis::RedisError| self.failure_of(&error, &"find the primaries of Redis");
        self.endpoint.check_slots().await.map_err(finding)?;
        let mut infos = Vec::new();
        for server in self.partitions.first().client.primaries().await.map_err(finding)? {
            let info = inspect(&server).await.map_err(|error| match &error {
                InspectError::Redis(source) => self.failure_of(source, &error),
                _ => permanent(&error, error.hint()),
            })?;
            check_server(&info, &self.endpoint).map_err(StartFailure::Permanent)?;
            let reason = match info.readiness() {
                ServerReadiness::Ready => {
                    infos.push(info);
                    continue;
                }
                ServerReadiness::Replica => "the server is a replica, until it is promoted",
                ServerReadiness::Loading => "the server is loading its data",
            };
            return Err(StartFailure::Transient(reason.to_owned()));
        }
        Ok(infos)
    }

    /// Classifies a failed call to Redis as transient or permanent; a permanent error names the server.
    fn failure_of(&self, source: &redis::RedisError, whole: &dyn fmt::Display) -> StartFailure {
        if error_kind(source).is_transient() {
            return StartFailure::Transient(source.to_string());
        }
        if let Some(error) = DeploymentError::find_in(source) {
            return permanent(format_args!("{}: {error}", self.endpoint), error.hint());
        }
        let hint = match error_kind(source) {
            ErrorKind::Login => "check user and password in redis.url or in the file of redis.url_file",
            ErrorKind::Denied => {
                "grant the user what docs/operations.md lists: the keys quota_* and the stream, and their commands"
            }
            ErrorKind::Database => {
                let problem =
                    format!("{whole} ({}): the server has no database {}: {source}", self.endpoint, self.endpoint.db());
                return permanent(problem, NO_DATABASE_HINT);
            }
            ErrorKind::WrongType => "a key of quotabell holds unexpected data: inspect it, then rename or delete it",
            _ => "docs/operations.md says which servers are supported",
        };
        permanent(format_args!("{whole} ({}): {source}", self.endpoint), hint)
    }
}

/// Checks that this server is supported.
pub fn check_server(info: &ServerInfo, endpoint: &RedisEndpoint) -> Result<(), StartupError> {
    info.check_supported().map_err(|unfit| StartupError::new(&unfit, unfit.hint()))?;
    if info.cluster_enabled && endpoint.deployment() != Deployment::Cluster {
        return Err(StartupError::new(
            format_args!("the server at {endpoint} is a node of a cluster"),
            CLUSTER_NODE_HINT,
        ));
    }
    Ok(())
}

/// Refuses another layout or another number of partitions, so that the daemon does not touch the stored data.
pub fn check_stored_layout(partitions: &Partitions, stored: &StoredPartitions) -> Result<(), StartupError> {
    for (Partition { keys, .. }, stored) in partitions.iter().zip(&stored.checkpoints) {
        check_checkpoint(&keys.checkpoint(), stored)?;
    }
    check_partition_count(partitions, stored)
}

/// Checks that the stored number of partitions is the configured one.
///
/// # Errors
///
/// [`StartupError`] if the numbers differ: an appended event would be refused or read by nobody, and counts would be
/// read from the wrong partition.
pub fn check_partition_count(partitions: &Partitions, stored: &StoredPartitions) -> Result<(), StartupError> {
    let count = partitions.count();
    let own = partitions.iter().zip(&stored.checkpoints);
    let differing = own.filter_map(|(Partition { keys, .. }, stored)| Some((keys.checkpoint(), stored.partitions?)));
    let mut differing = differing.filter(|(_, begun)| *begun != count);
    let other = stored.others.as_ref().map(|OtherPartitions { checkpoint, count }| (checkpoint.clone(), *count));
    match differing.next().or(other) {
        Some((checkpoint, begun)) => Err(StartupError::new(
            format_args!(
                "{checkpoint} belongs to {}, but stream.partitions is {count}",
                pluralize(begun, "partition", "partitions")
            ),
            format_args!(
                "set stream.partitions = {begun}, the number that the stream was begun with; quotabell migrate takes everything to another (docs/scaling.md)"
            ),
        )),
        None => Ok(()),
    }
}

/// A warning about streams with names of another number of partitions.
pub fn unread_streams(stored: &StoredPartitions) -> Option<String> {
    let StoredPartitions { unread, .. } = stored;
    (!unread.is_empty()).then(|| {
        format!("nobody reads {}: a producer uses another number of partitions (stream.partitions)", unread.join(", "))
    })
}

fn check_checkpoint(checkpoint: &str, stored: &StoredCheckpoint) -> Result<(), StartupError> {
    if let Some(WrongKeyType { key, found, wanted }) = &stored.misplaced {
        return Err(StartupError::new(
            format_args!("{key} is a {found}, not a {wanted}"),
            "a key of quotabell holds unexpected data: rename it (RENAME) or delete it, or set another stream.key",
        ));
    }
    if let Some(format) = stored.format.as_deref().filter(|format| *format != FORMAT) {
        return Err(StartupError::new(
            format_args!("{checkpoint} was written in format {format}, this quotabell knows {FORMAT}"),
            "run the version of quotabell that wrote it, or a newer one",
        ));
    }
    if let Some(moved_to) = &stored.moved_to {
        return Err(StartupError::new(
            format_args!("{checkpoint} says that everything was moved to {moved_to}"),
            "start the daemon there. `quotabell migrate --undo` with its --to and --partitions gives up a move that is not complete",
        ));
    }
    if stored.migration.as_deref().is_some_and(|state| state.starts_with(migration::COPYING)) {
        return Err(StartupError::new(
            format_args!("the migration to {checkpoint} is not complete"),
            "run quotabell migrate again: it continues where it stopped",
        ));
    }
    Ok(())
}

fn permanent(problem: impl fmt::Display, hint: &str) -> StartFailure {
    StartFailure::Permanent(StartupError::new(problem, hint))
}
