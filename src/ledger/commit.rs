//! The wrapper of `commit.lua`: commits a batch atomically.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};

use crate::redis_client::{RedisClient, Script, script};
use crate::types::{Alert, Keys, Period, StreamId, Subject, UnixMs, keys};

use super::batch::{Batch, CounterGroup, NewAlert};
use super::children;
use super::commit_settings::{CommitSettings, FORMAT, READ_AGE_MAX_MS, REFUSED_KEPT};
use super::grants_due::time_of;
use super::totals::{COUNTER_TTL_S, SPREAD_S, ttl_s};

/// Commits batches of one partition.
#[derive(Debug)]
pub struct Committer {
    keys: Keys,
    script: Script,
    settings: CommitSettings,
}

/// The script's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitReply {
    /// The batch is stored, except for alerts whose flag existed already: their indexes in [`Batch::alerts`].
    Committed {
        /// The alerts that were not raised.
        not_raised: Vec<usize>,
        /// Running time of the script, or CPU time of the server process during it; `None` if neither is known.
        ran: Option<Duration>,
        /// When grants must be looked at next.
        grants_due: Option<UnixMs>,
    },
    /// Grants expired before the last event arrived, and nobody has settled them.
    GrantsDue,
    /// Another commit came first, counters were removed, or the server holds another deployment; with the stored
    /// checkpoint.
    Stale(StreamId),
    /// The batch was read from another server process.
    Replaced,
    /// The batch's last entry is not in the stream.
    Lost,
    /// The stream was recreated and has entries before the checkpoint that were never read.
    Recreated,
    /// The batch was read too long ago.
    Old,
    /// A counter differs from the worker's value.
    Drift(Drift),
}

/// A counter that another program changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The hash of the counter.
    pub key: String,
    /// The subject of the counter.
    pub subject: String,
    /// The stored value.
    pub held: String,
}

impl Committer {
    /// A committer for the partition with these keys.
    pub fn new(keys: Keys, settings: CommitSettings) -> Self {
        Self { keys, script: Script::with_prelude(include_str!("commit.lua")), settings }
    }

    /// The settings of this committer.
    pub const fn settings(&self) -> &CommitSettings {
        &self.settings
    }

    /// Applies a batch.
    ///
    /// Repeatable: after a success the same batch returns [`CommitReply::Stale`] and changes nothing. `commit.lua`
    /// explains why.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection. If the connection broke, the batch may have been applied; the stored
    /// checkpoint tells. If a key has another type ([`crate::redis_client::ErrorKind::WrongType`]) or the user lacks a
    /// right, nothing was written.
    pub async fn commit(&self, client: &RedisClient, batch: &Batch) -> RedisResult<CommitReply> {
        let reply: Value = script::run(client, &self.script, &self.command(batch)).await?;
        decode(reply)
    }

    fn command(&self, batch: &Batch) -> Cmd {
        let keys = &self.keys;
        let rows: usize = batch.groups.iter().map(|group| group.rows.len()).sum();
        let sets = metric_sets(batch);
        let children = children_of(batch);
        let key_count =
            6 + batch.groups.len() + 2 * batch.alerts.len() + batch.event_ids.len() + sets.len() + children.len();
        // An estimate of the number of words to write.
        let words = 4 + key_count + 4 * batch.groups.len() + 2 * rows + 9 * batch.alerts.len();
        let mut command = Cmd::with_capacity(words, 24 * words);
        command.arg("EVALSHA").arg(self.script.sha1()).arg(key_count);
        command.arg(keys.stream()).arg(keys.checkpoint()).arg(keys.outbox()).arg(keys.refused()).arg(keys.totals());
        command.arg(keys.grants_due());
        for CounterGroup { of, bucket, .. } in &batch.groups {
            command.arg(keys.usage(&of.metric, of.period, *bucket));
        }
        for alert in &batch.alerts {
            let Alert { metric, period, .. } = &alert.record.alert;
            command.arg(keys.flag(&alert.record.alert.key()));
            command.arg(keys.raised(metric, *period, batch.groups[alert.group].bucket));
        }
        for window in batch.event_ids.keys() {
            command.arg(keys.event_ids(*window));
        }
        for period in sets.keys() {
            command.arg(keys.metrics(*period));
        }
        for parent in children.keys() {
            command.arg(children::key(keys, parent));
        }
        command.arg(self.scalars(batch, sets.len(), children.len()));
        batch.groups.iter().for_each(|group| add_group(&mut command, group));
        batch.alerts.iter().for_each(|alert| add_alert(&mut command, batch, alert));
        add_refused(&mut command, batch);
        for digests in batch.event_ids.values() {
            command.arg(digests);
        }
        for (period, metrics) in &sets {
            let ttl_s = ttl_s(*period, batch.read_at).map(|ttl_s| ttl_s + SPREAD_S * u64::from(keys::BUCKETS));
            command.arg(ttl_argument(ttl_s)).arg(metrics.len()).arg(metrics);
        }
        for children in children.values() {
            command.arg(children.len()).arg(children);
        }
        command
    }

    /// The script's first argument.
    fn scalars(&self, batch: &Batch, metric_sets: usize, child_sets: usize) -> Vec<u8> {
        let Self { settings, .. } = self;
        let (from, to) = (batch.from.to_string(), batch.to.to_string());
        let fingerprint = settings.plans.fingerprint();
        let server = batch.server.as_deref().unwrap_or_default();
        let readers = keys::reader_channel(server);
        let separator = self.keys.separator().to_string();
        let texts = [
            ("separator", separator.as_str()),
            ("from", from.as_str()),
            ("to", &to),
            ("format", FORMAT),
            ("fingerprint", &fingerprint),
            ("instance", batch.instance.as_str()),
            ("server", server),
            ("readers", &readers),
        ];
        let numbers = [
            ("erasure_epoch", batch.erasure_epoch),
            ("entries", batch.entries),
            ("arrived", u64::try_from(batch.arrived.0).unwrap_or(0)),
            ("read_at", u64::try_from(batch.read_at.0).unwrap_or(0)),
            ("behind_ms", u64::try_from(batch.behind_for.as_millis()).unwrap_or(u64::MAX)),
            ("age_max", READ_AGE_MAX_MS),
            ("partitions", settings.partitions.into()),
            ("counted", batch.counted),
            ("duplicates", batch.duplicates),
            ("refused_max", REFUSED_KEPT),
            ("ttl", COUNTER_TTL_S),
            ("groups", batch.groups.len() as u64),
            ("alerts", batch.alerts.len() as u64),
            ("refused", batch.refused.len() as u64),
            ("id_lists", batch.event_ids.len() as u64),
            ("metric_sets", metric_sets as u64),
            ("child_sets", child_sets as u64),
            ("children_days", settings.children_days.into()),
        ];
        packed(&texts, &numbers).expect("a vector takes what is written to it")
    }
}

fn packed(texts: &[(&str, &str)], numbers: &[(&str, u64)]) -> Result<Vec<u8>, rmp::encode::ValueWriteError> {
    let mut bytes = Vec::with_capacity(512);
    rmp::encode::write_map_len(&mut bytes, u32::try_from(texts.len() + numbers.len()).unwrap_or(u32::MAX))?;
    for (name, text) in texts {
        rmp::encode::write_str(&mut bytes, name)?;
        rmp::encode::write_str(&mut bytes, text)?;
    }
    for (name, number) in numbers {
        rmp::encode::write_str(&mut bytes, name)?;
        rmp::encode::write_uint(&mut bytes, *number)?;
    }
    Ok(bytes)
}

fn add_group(command: &mut Cmd, group: &CounterGroup) {
    // A random row, so that a counter changed by hand does not stay unnoticed for long.
    let compared = rand::random_range(0..group.rows.len());
    let ttl_s = if group.of.period.has_end() { Some(group.ttl_s.unwrap_or(0)) } else { None };
    command.arg(ttl_argument(ttl_s)).arg(compared + 1).arg(group.rows[compared].before).arg(group.rows.len());
    for row in &group.rows {
        command.arg(row.subject.as_str()).arg(row.total);
    }
}

fn add_alert(command: &mut Cmd, batch: &Batch, new: &NewAlert) {
    let group = &batch.groups[new.group];
    let row = &group.rows[new.row];
    let Alert { id, window, period, threshold, .. } = &new.record.alert;
    // The same lifetime as the counter that is written with it.
    let record_ttl_s = ttl_s(*period, batch.read_at).map(|ttl_s| ttl_s + SPREAD_S * u64::from(group.bucket));
    command.arg(new.group + 1).arg(row.subject.as_str()).arg(row.before);
    command.arg(id.as_str()).arg(ttl_argument(window.flag_ttl_s())).arg(ttl_argument(record_ttl_s));
    command.arg(Keys::raised_field(*threshold, &row.subject));
    let alert = to_json(&new.record.alert);
    // The record lists the earlier alerts of the threshold. If there are none, the record is the alert itself.
    command.arg(if new.record.earlier.is_empty() { alert.clone() } else { to_json(&new.record) }).arg(alert);
}

/// A TTL as an argument of the script.
fn ttl_argument(ttl_s: Option<u64>) -> String {
    ttl_s.map_or_else(|| "none".to_owned(), |ttl_s| ttl_s.to_string())
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain strings and numbers serialise")
}

fn add_refused(command: &mut Cmd, batch: &Batch) {
    for refused in &batch.refused {
        command.arg(6 + refused.fields.len());
        command.arg("entry").arg(refused.entry.to_string());
        command.arg("reason").arg(refused.reason.as_str()).arg("detail").arg(&refused.detail);
        for field in &refused.fields {
            command.arg(field);
        }
    }
}

/// The possibly new metrics, by period.
fn metric_sets(batch: &Batch) -> BTreeMap<Period, Vec<&str>> {
    let mut sets: BTreeMap<Period, Vec<&str>> = BTreeMap::new();
    for of in &batch.metrics {
        sets.entry(of.period).or_default().push(of.metric.as_str());
    }
    sets
}

/// The subjects that may be new to the level above them, by that level.
fn children_of(batch: &Batch) -> BTreeMap<&Subject, Vec<&str>> {
    let mut children: BTreeMap<&Subject, Vec<&str>> = BTreeMap::new();
    for (parent, child) in &batch.children {
        children.entry(parent).or_default().push(child.as_str());
    }
    children
}

fn decode(reply: Value) -> RedisResult<CommitReply> {
    let parts: Vec<Value> = redis::from_redis_value(reply)?;
    let mut parts = parts.into_iter();
    let mut text = || -> RedisResult<String> { Ok(redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?) };
    Ok(match text()?.as_str() {
        "committed" => {
            let not_raised: Vec<usize> = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
            let ran_us: u64 = redis::from_redis_value(parts.next().unwrap_or(Value::Int(0)))?;
            let due: Option<String> = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
            CommitReply::Committed {
                // The script counts from 1.
                not_raised: not_raised.into_iter().map(|at| at.saturating_sub(1)).collect(),
                ran: (ran_us > 0).then(|| Duration::from_micros(ran_us)),
                grants_due: due.as_deref().and_then(time_of),
            }
        }
        "stale" => CommitReply::Stale(text()?.parse().map_err(|_| unexpected("a checkpoint that is no stream id"))?),
        "due" => CommitReply::GrantsDue,
        "replaced" => CommitReply::Replaced,
        "lost" => CommitReply::Lost,
        "recreated" => CommitReply::Recreated,
        "old" => CommitReply::Old,
        "drift" => CommitReply::Drift(Drift { key: text()?, subject: text()?, held: text()? }),
        _ => return Err(unexpected("an unknown reply")),
    })
}

fn unexpected(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, "commit.lua answered", what.to_owned()))
}
