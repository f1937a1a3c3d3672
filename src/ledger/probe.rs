//! A dry run of the commit, and of the lease before it, at start, so that a missing permission shows there and not in
//! the middle of the traffic.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{RedisError, RedisResult};

use crate::throttle::Lease;
use crate::types::{
    Alert, AlertId, AlertKey, Day, Instance, Keys, Metric, PARTITIONS_MAX, PartitionNumber, Percent, Period,
    RaisedRecord, RefusalReason, StreamId, Subject, UnixMs, keys,
};
use crate::wire::{ErrorKind, Partition, Partitions, RedisClient, Script, error_kind};

use super::batch::{Batch, CounterGroup, MetricPeriod, NewAlert, RefusedEvent, Row};
use super::commit::{CommitAnswer, Committer};
use super::commit_settings::CommitSettings;
use super::event_ids::{EventIdDigest, NewEventIds, window_of};
use super::tidy::{Tidier, TidyWarning};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("probe.lua")));

/// Probe keys are removed at once; if the daemon dies in between they go by themselves.
const PROBE_TTL_S: u64 = 60;

/// Why the dry run failed.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
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
    /// A command that is optional while running, but configured.
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

/// Commits one made-up batch under keys of its own: a counter, an alert, a refusal, an event id, the group, trimming;
/// and hands a lease over. Leaves nothing behind.
///
/// # Errors
///
/// [`ProbeError`], naming what the user may not do.
pub async fn dry_run(
    client: &RedisClient,
    keys: &Keys,
    settings: &CommitSettings,
    nonce: &str,
) -> Result<(), ProbeError> {
    let keys = keys.probe(nonce);
    let key = keys.stream().to_owned();
    let redis = |source| ProbeError::Redis { key: key.clone(), source };
    hand_over(client, &keys).await?;
    let batch = add_probe_entry(client, &keys).await.map_err(redis)?;
    let answer = Committer::new(keys.clone(), settings.clone()).commit(client, &batch).await;
    let windows: Vec<u64> = batch.event_ids.iter().map(|ids| ids.window).collect();
    let tidied = Tidier::new(keys.clone(), settings.trim).tidy(client, &windows).await;
    let swept = delete_probe_keys(client, &keys, &batch).await;
    match answer.map_err(redis)? {
        CommitAnswer::Committed { .. } => {
            for warning in tidied.map_err(redis)? {
                if let TidyWarning::CommandRefused { what, error } = warning {
                    return Err(ProbeError::Refused { key, what, error });
                }
            }
            swept.map_err(redis)
        }
        answer => Err(ProbeError::Answer { key, answer: format!("{answer:?}") }),
    }
}

/// Takes a lease, fails to take it as another, and lets it go: every command of `lease.lua`.
async fn hand_over(client: &RedisClient, keys: &Keys) -> Result<(), ProbeError> {
    let key = keys.lease();
    let lasts = Duration::from_secs(PROBE_TTL_S);
    let (one, other) = (Lease::new("one", lasts), Lease::new("other", lasts));
    let handed_over = async {
        one.acquire(client, &key).await?;
        other.acquire(client, &key).await?;
        one.release(client, &key).await
    };
    handed_over.await.map_err(|source| ProbeError::Lease { key: key.clone(), source })
}

/// Adds the one entry to which the probe batch refers. The argument is in `probe.lua`.
async fn add_probe_entry(client: &RedisClient, keys: &Keys) -> RedisResult<Batch> {
    let mut call = SCRIPT.call().key(keys.stream());
    for key in [keys.outbox(), keys.refused(), keys.checkpoint(), keys.totals()] {
        call = call.key(key);
    }
    let (id, now): (String, i64) = call.arg(PROBE_TTL_S).run(client).await?;
    Ok(probe_batch(id.parse().unwrap_or(StreamId::ZERO), UnixMs(now)))
}

fn probe_batch(to: StreamId, now: UnixMs) -> Batch {
    let subject = Subject::parse(b"probe").expect("a legal subject");
    let percent = Percent::new(100).expect("a legal threshold");
    let period: Period = Day::in_utc(now).expect("the server's clock shows a year of four digits").into();
    let of = MetricPeriod { metric: Metric::default(), period };
    let mut batch = Batch::new(Instance::from_stored("probe"), StreamId::ZERO);
    (batch.to, batch.entries, batch.read_at, batch.counted) = (to, 1, now, 1);
    let mut ids = NewEventIds::new(window_of(now));
    ids.push(EventIdDigest::of(&subject, &of.metric, b"probe"));
    batch.event_ids.push(ids);
    batch.refused.push(RefusedEvent {
        entry: to,
        reason: RefusalReason::BadUnits,
        detail: "probe".into(),
        fields: Vec::new(),
    });
    let key = AlertKey { subject: &subject, metric: &of.metric, period, percent, units: 1 };
    let alert = Alert {
        id: AlertId::of(&batch.instance, &key),
        subject: subject.clone(),
        metric: of.metric.clone(),
        window: period.window(),
        period,
        threshold_percent: percent,
        threshold_units: 1,
        limit: 1,
        plan: "probe".into(),
        timezone: "UTC".into(),
        resets_at_ms: now,
        used_before: 0,
        used: 1,
        first_entry: to,
        last_entry: to,
        raised_at_ms: now,
        higher_percents: Vec::new(),
    };
    batch.alerts.push(NewAlert { group: 0, row: 0, record: RaisedRecord::after(None, alert) });
    let bucket = keys::bucket(subject.as_str());
    batch.metrics.push(of.clone());
    batch.groups.push(CounterGroup {
        of,
        bucket,
        ttl_s: Some(PROBE_TTL_S),
        rows: vec![Row { subject, before: 0, total: 1 }],
    });
    batch
}

/// Removes every key that the dry run made, by name.
async fn delete_probe_keys(client: &RedisClient, keys: &Keys, batch: &Batch) -> RedisResult<()> {
    let mut command = redis::cmd("UNLINK");
    command.arg(keys.stream()).arg(keys.checkpoint()).arg(keys.outbox()).arg(keys.refused()).arg(keys.totals());
    for ids in &batch.event_ids {
        command.arg(keys.event_ids(ids.window));
    }
    for CounterGroup { of, bucket, .. } in &batch.groups {
        command.arg(keys.usage(&of.metric, of.period, *bucket)).arg(keys.raised(&of.metric, of.period, *bucket));
        command.arg(keys.metrics(of.period));
    }
    for alert in &batch.alerts {
        command.arg(keys.flag(&alert.alert().key()));
    }
    client.query(&command).await
}

/// What the last daemon left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPartitions {
    /// Of each partition.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// State of another number of partitions.
    pub others: Option<OtherPartitions>,
    /// Streams of another number of partitions, of which nothing was counted: nobody reads them.
    pub unread: Vec<String>,
}

/// A checkpoint of another number of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherPartitions {
    /// Its key.
    pub checkpoint: String,
    /// How many partitions it counts.
    pub count: u32,
}

/// Whether the stored layout is one that this daemon knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// `format` of the checkpoint.
    pub format: Option<String>,
    /// `partitions` of the checkpoint.
    pub partitions: Option<u32>,
    /// `fingerprint` of the checkpoint.
    pub fingerprint: Option<String>,
    /// `moved_to` of the checkpoint: where a migration has taken everything.
    pub moved_to: Option<String>,
    /// `migration` of the checkpoint: how far a migration to here is.
    pub migration: Option<String>,
    /// The first of the partition's keys that holds something else.
    pub misplaced: Option<WrongKeyType>,
}

/// A key that is not of the type that it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongKeyType {
    /// The key.
    pub key: String,
    /// Its type, as Redis names it.
    pub found: String,
    /// What it must be.
    pub wanted: &'static str,
}

/// Reads what the last daemon left in the checkpoints, and looks whether the partitions' keys are what they must be.
pub async fn stored_partitions(partitions: &Partitions) -> RedisResult<StoredPartitions> {
    let mut checkpoints = Vec::new();
    for Partition { client, keys } in partitions.iter() {
        checkpoints.push(stored(client, keys).await?);
    }
    let (others, unread) = others(partitions).await?;
    Ok(StoredPartitions { checkpoints, others, unread })
}

async fn stored(client: &RedisClient, keys: &Keys) -> RedisResult<StoredCheckpoint> {
    let misplaced = misplaced(client, keys).await?;
    if misplaced.is_some() {
        return Ok(StoredCheckpoint { misplaced, ..StoredCheckpoint::default() });
    }
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg(&["format", "partitions", "fingerprint", "moved_to", "migration"]);
    let (format, partitions, fingerprint, moved_to, migration) = client.query(&command).await?;
    Ok(StoredCheckpoint { format, partitions, fingerprint, moved_to, migration, misplaced })
}

/// Looks for the checkpoints that another number of partitions would have left under other names, and for its streams.
/// A checkpoint that counts one partition and bears a number belongs to another stream, which is called so.
async fn others(partitions: &Partitions) -> RedisResult<(Option<OtherPartitions>, Vec<String>)> {
    let Partition { client, keys } = partitions.first();
    let several = PartitionNumber::all(PARTITIONS_MAX);
    let all = several.chain([PartitionNumber::first(1)]).map(|partition| keys.of_sibling(partition));
    let others: Vec<Keys> =
        all.filter(|other| partitions.iter().all(|own| own.keys.stream() != other.stream())).collect();
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for other in &others {
        pipeline.cmd("HGET").arg(other.checkpoint()).arg("partitions");
        pipeline.cmd("EXISTS").arg(other.stream());
    }
    let replies: Vec<RedisResult<Option<u32>>> = client.pipe(&pipeline).await?;
    let mut answers = Vec::new();
    for reply in replies {
        match reply {
            Ok(answer) => answers.push(answer),
            // What is there is not ours, and a user who may not look has never written there.
            Err(error) if matches!(error_kind(&error), ErrorKind::WrongType | ErrorKind::Denied) => answers.push(None),
            Err(error) => return Err(error),
        }
    }
    let mut unread = Vec::new();
    for (other, answers) in others.iter().zip(answers.chunks_exact(2)) {
        match answers {
            [Some(count), _] if (*count == 1) == (other.partition().count() == 1) => {
                return Ok((Some(OtherPartitions { checkpoint: other.checkpoint(), count: *count }), Vec::new()));
            }
            [None, Some(1)] => unread.push(other.stream().to_owned()),
            _ => {}
        }
    }
    Ok((None, unread))
}

async fn misplaced(client: &RedisClient, keys: &Keys) -> RedisResult<Option<WrongKeyType>> {
    let wanted = [
        (keys.stream().to_owned(), "stream"),
        (keys.checkpoint(), "hash"),
        (keys.outbox(), "stream"),
        (keys.refused(), "stream"),
        (keys.totals(), "hash"),
        (keys.lease(), "string"),
        (keys.destinations(), "zset"),
        (keys.destinations_unhealthy(), "zset"),
        (keys.deliveries(), "zset"),
        (keys.dead(), "zset"),
    ];
    let mut pipeline = redis::pipe();
    for (key, _) in &wanted {
        pipeline.cmd("TYPE").arg(key);
    }
    let found: Vec<String> = client.pipe(&pipeline).await?;
    let mut pairs = wanted.into_iter().zip(found).filter(|((_, wanted), found)| found != "none" && found != wanted);
    Ok(pairs.next().map(|((key, wanted), found)| WrongKeyType { key, found, wanted }))
}
