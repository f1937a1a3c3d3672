//! A dry run of the lease and the commit at start, so that a missing right is found then and not under traffic.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{RedisError, RedisResult};

use crate::channels::Sample;
use crate::redis_client::{RedisClient, Script};
use crate::types::{DeploymentId, Keys, Percent, RaisedRecord, RefusalReason, StreamId, UnixMs, keys};
use quotabell_throttle::Lease;

use super::batch::{Batch, CounterGroup, MetricPeriod, NewAlert, RefusedEvent, Row};
use super::commit::{CommitReply, Committer};
use super::commit_settings::CommitSettings;
use super::event_ids::{EventIdDigest, window_of};
use super::trim::{TrimWarning, tidy};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("dry_run.lua")));

/// The dry run deletes its keys at once; if the daemon dies in between, they expire.
const DRY_RUN_TTL_S: u64 = 60;

/// Why the dry run failed.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    #[error("try a commit on {key}")]
    Redis {
        key: String,
        #[source]
        source: RedisError,
    },
    #[error("try the lease on {key}")]
    Lease {
        key: String,
        #[source]
        source: RedisError,
    },
    /// A command that is optional at run time, but configured.
    #[error("try a commit on {key}: {what} was refused: {error}")]
    Refused {
        key: String,
        /// `group`, `trim` or `unlink`.
        what: String,
        error: String,
    },
    #[error("try a commit on {key}: unexpected answer {answer}")]
    Answer { key: String, answer: String },
}

/// Commits one artificial batch under its own keys (a counter, an alert, a refusal, an event id, the group, trimming),
/// and hands a lease over. Leaves nothing behind.
///
/// # Errors
///
/// [`DryRunError`], which names the missing right.
pub async fn dry_run(
    client: &RedisClient,
    keys: &Keys,
    settings: &CommitSettings,
    nonce: &str,
) -> Result<(), DryRunError> {
    let keys = keys.dry_run(nonce);
    let key = keys.stream().to_owned();
    let redis = |source| DryRunError::Redis { key: key.clone(), source };
    hand_over(client, &keys).await?;
    let batch = add_entry(client, &keys).await.map_err(redis)?;
    let answer = Committer::new(keys.clone(), settings.clone()).commit(client, &batch).await;
    let windows: Vec<u64> = batch.event_ids.keys().copied().collect();
    let tidied = tidy(client, &keys, settings.trim, &windows).await;
    let deleted = delete_keys(client, &keys, &batch).await;
    match answer.map_err(redis)? {
        CommitReply::Committed { .. } => {
            for warning in tidied.map_err(redis)? {
                if let TrimWarning::CommandRefused { what, error } = warning {
                    return Err(DryRunError::Refused { key, what, error });
                }
            }
            deleted.map_err(redis)
        }
        answer => Err(DryRunError::Answer { key, answer: format!("{answer:?}") }),
    }
}

/// Takes a lease, fails to take it as another holder, and releases it: every command of `lease.lua`.
async fn hand_over(client: &RedisClient, keys: &Keys) -> Result<(), DryRunError> {
    let key = keys.lease();
    let lasts = Duration::from_secs(DRY_RUN_TTL_S);
    let (one, other) = (Lease::new("one", lasts), Lease::new("other", lasts));
    let handed_over = async {
        one.acquire(&mut client.connection(), &key).await?;
        other.acquire(&mut client.connection(), &key).await?;
        one.release(&mut client.connection(), &key).await
    };
    handed_over.await.map_err(|source| DryRunError::Lease { key: key.clone(), source })
}

/// Adds the only entry of the batch. `dry_run.lua` explains why.
async fn add_entry(client: &RedisClient, keys: &Keys) -> RedisResult<Batch> {
    let mut call = SCRIPT.call().key(keys.stream());
    for key in [keys.outbox(), keys.refused(), keys.checkpoint(), keys.totals()] {
        call = call.key(key);
    }
    let (id, now): (String, i64) = call.arg(DRY_RUN_TTL_S).run(client).await?;
    Ok(batch_of(id.parse().unwrap_or(StreamId::ZERO), UnixMs(now)))
}

fn batch_of(to: StreamId, now: UnixMs) -> Batch {
    let alert = Sample::example().alert(Percent::new(100).expect("a legal threshold"), now);
    let of = MetricPeriod { metric: alert.metric.clone(), period: alert.period };
    let subject = alert.subject.clone();
    let mut batch = Batch::new(DeploymentId::from_stored("probe"), StreamId::ZERO);
    (batch.to, batch.entries, batch.read_at, batch.arrived, batch.counted) = (to, 1, now, now, 1);
    let id = EventIdDigest::derive(&subject, &of.metric, b"probe");
    batch.event_ids.insert(window_of(now), id.as_bytes().to_vec());
    let (reason, detail) = (RefusalReason::BadUnits, "probe".to_owned());
    batch.refused.push(RefusedEvent { entry: to, reason, detail, fields: Vec::new() });
    batch.alerts.push(NewAlert { group: 0, row: 0, record: RaisedRecord::after(None, alert) });
    let bucket = keys::bucket(subject.as_str());
    batch.metrics.push(of.clone());
    let rows = vec![Row { subject, before: 0, total: 1 }];
    batch.groups.push(CounterGroup { of, bucket, ttl_s: Some(DRY_RUN_TTL_S), rows });
    batch
}

/// Deletes every key of the dry run by name.
async fn delete_keys(client: &RedisClient, keys: &Keys, batch: &Batch) -> RedisResult<()> {
    let mut command = redis::cmd("UNLINK");
    command.arg(keys.stream()).arg(keys.checkpoint()).arg(keys.outbox()).arg(keys.refused()).arg(keys.totals());
    for window in batch.event_ids.keys() {
        command.arg(keys.event_ids(*window));
    }
    for CounterGroup { of, bucket, .. } in &batch.groups {
        command.arg(keys.usage(&of.metric, of.period, *bucket)).arg(keys.raised(&of.metric, of.period, *bucket));
        command.arg(keys.metrics(of.period));
    }
    for alert in &batch.alerts {
        command.arg(keys.flag(&alert.record.alert.key()));
    }
    client.query(&command).await
}
