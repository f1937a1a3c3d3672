//! Reads and writes the grants of subjects; the wrapper of `grant_store.lua`.
//!
//! A change is computed from the stored grants and from counters, and is written only if neither has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use redis::{RedisResult, Value};

use super::batch::MetricPeriod;
use super::grants::{CurrentUsage, SubjectGrants, to_json};
use super::read_totals::{CounterQuery, ask_counters, counters_from};
use crate::redis_client::{Partition, Script};
use crate::subjects::Profile;
use crate::subjects::record::SubjectField;
use crate::types::{GrantNotice, LimitUnits, Metric, StreamId, Subject, keys, nonce};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("grant_store.lua")));

/// The grants of a subject, with the counters that they pay for.
#[derive(Debug, Clone)]
pub struct StoredGrants {
    /// Whose they are.
    pub subject: Subject,
    /// All that are stored.
    pub grants: SubjectGrants,
    /// The committed units of each group.
    pub used: BTreeMap<MetricPeriod, u64>,
}

/// A change to write.
#[derive(Debug)]
pub struct GrantChange<'a> {
    /// What was read.
    pub before: &'a StoredGrants,
    /// The grants after the change.
    pub after: &'a SubjectGrants,
    /// The checkpoint to which the counters belong; `None` if it does not matter.
    pub checkpoint: Option<StreamId>,
    /// The notices to raise.
    pub notices: &'a [GrantNotice],
}

impl GrantChange<'_> {
    /// The used metrics whose limit the change lowers. Their thresholds must be judged: a gateway that refuses further
    /// requests sends no event.
    fn metrics_with_lower_limit(&self) -> BTreeSet<&Metric> {
        let (before, after) = (self.before.grants.added(), self.after.added());
        let is_lower =
            |of: &&MetricPeriod| after.units_of(&of.metric, of.period) < before.units_of(&of.metric, of.period);
        let used = self.before.used.iter().filter(|(_, used)| **used > 0).map(|(of, _)| of);
        used.filter(is_lower).map(|of| &of.metric).collect()
    }
}

/// The reply of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantReply {
    /// Everything is written.
    Written,
    /// The grants or a counter have changed: nothing is written.
    Changed,
    /// Another commit came first: nothing is written.
    Stale,
}

/// The counts and the settings of a subject.
#[derive(Debug, Clone, Copy)]
pub struct UsageOf<'a> {
    /// The committed units of each group.
    pub used: &'a BTreeMap<MetricPeriod, u64>,
    /// The settings.
    pub profile: &'a Profile,
}

impl CurrentUsage for UsageOf<'_> {
    fn used(&self, of: &MetricPeriod) -> u64 {
        self.used.get(of).copied().unwrap_or(0)
    }

    fn base(&self, of: &MetricPeriod) -> Option<LimitUnits> {
        let limits = self.profile.limits_of(&of.metric).iter().filter(|_| self.profile.has_known_limits());
        limits.into_iter().find(|limit| limit.window == of.period.window()).map(|limit| limit.units)
    }
}

/// Reads the grants of a subject, and the counters of their groups and of the one in `also`.
///
/// # Errors
///
/// The error of Redis; `WRONGTYPE` also for a field that is no grant.
pub async fn read(
    Partition { client, keys }: &Partition,
    subject: Subject,
    also: Option<&MetricPeriod>,
) -> RedisResult<StoredGrants> {
    let key = keys.grants(&subject);
    let fields: Vec<SubjectField> = client.query(redis::cmd("HGETALL").arg(&key)).await?;
    let grants = SubjectGrants::from_stored(&key, fields)?;
    let of: BTreeSet<&MetricPeriod> = grants.groups().chain(also).collect();
    let mut used = BTreeMap::new();
    if !of.is_empty() {
        let bucket = keys::bucket(subject.as_str());
        let queries: Vec<CounterQuery<'_>> =
            of.iter().map(|of| CounterQuery { of, bucket, subject: &subject }).collect();
        let mut pipeline = redis::pipe();
        ask_counters(pipeline.ignore_errors(), keys, &queries);
        let replies: Vec<RedisResult<Value>> = client.pipe(&pipeline).await?;
        let totals = counters_from(&mut replies.into_iter(), keys, &queries)?;
        used = of.into_iter().cloned().zip(totals).collect();
    }
    Ok(StoredGrants { subject, grants, used })
}

/// Writes a change in one step. If it lowers the limit of a used metric, an event that counts nothing has its
/// thresholds judged.
///
/// # Errors
///
/// The error of Redis or of the connection; then the change may be written.
pub async fn write(Partition { client, keys }: &Partition, change: GrantChange<'_>) -> RedisResult<GrantReply> {
    let StoredGrants { subject, grants, used } = change.before;
    let fields = change.after.changes(&nonce::nonce());
    let mut call = SCRIPT.call().key(keys.checkpoint()).key(keys.grants_due());
    call = call.key(keys.grants(subject)).key(keys.outbox()).key(keys.stream());
    call = call.arg(subject.as_str()).arg(grants.version());
    call = call.arg(change.checkpoint.map(|id| id.to_string()).unwrap_or_default());
    call = call.arg(due_argument(change.after, fields.is_empty));
    let judged = change.metrics_with_lower_limit();
    call = call.arg(fields.set.len()).arg(fields.removed.len()).arg(change.notices.len()).arg(judged.len());
    for (of, used) in used {
        call = call.key(keys.usage(&of.metric, of.period, keys::bucket(subject.as_str()))).arg(*used);
    }
    for (name, value) in &fields.set {
        call = call.arg(name).arg(value);
    }
    for name in &fields.removed {
        call = call.arg(name);
    }
    for notice in change.notices {
        call = call.arg(to_json(notice));
    }
    for metric in judged {
        call = call.arg(metric.as_str());
    }
    let (reply,): (String,) = call.run(client).await?;
    match reply.as_str() {
        "written" => Ok(GrantReply::Written),
        "changed" => Ok(GrantReply::Changed),
        "stale" => Ok(GrantReply::Stale),
        _ => Err((redis::ErrorKind::UnexpectedReturnType, "grant_store.lua answered", reply).into()),
    }
}

fn due_argument(grants: &SubjectGrants, is_empty: bool) -> String {
    match grants.due() {
        _ if is_empty => "none".to_owned(),
        Some(due) => due.0.to_string(),
        None => "inf".to_owned(),
    }
}
