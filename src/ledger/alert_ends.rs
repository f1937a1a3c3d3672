//! Stores the ends of alerts beside their records: the wrapper of `alert_ends.lua`, and reads.
//!
//! [`crate::evaluation`] alone writes them, beside the commits. A write succeeds only if records and ends are unchanged
//! since they were judged, and the count is still below the thresholds. So an end can't overlook a new crossing, and
//! two daemons can't tell one end twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use redis::RedisResult;

use super::alert_judge::EndsVerdict;
use super::batch::MetricPeriod;
use super::query::{StoredAlerts, StoredEnds, StoredRecord, records_of, run};
use crate::redis_client::{Partition, Script};
use crate::types::{
    Alert, AlertEnds, AlertStatus, Keys, Month, RaisedRecord, ResolvedNotice, Subject, Threshold, UnixMs, keys,
};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("alert_ends.lua")));

/// Lifetime of a month of the log until its retention is set: 14 months, as in `schedule.lua`.
const LOG_TTL_S: u64 = 37_324_800;

/// The alerts of a subject, metric and period, with what decides about their ends.
#[derive(Debug, Clone)]
pub struct AlertGroup {
    /// The subject.
    pub subject: Subject,
    /// Metric and period.
    pub of: MetricPeriod,
    /// The records.
    pub records: Vec<RaisedRecord>,
    /// The lengths of their stored texts, bytes.
    lengths: Vec<usize>,
    /// The stored ends; `None` if there are none.
    pub stored: Option<StoredEnds>,
    /// Units used.
    pub used: u64,
}

/// Whether ends were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndsReply {
    /// They are stored, and the notices are in the outbox.
    Written,
    /// Something has changed since it was read, or a subject was erased: nothing is stored; read again.
    Changed,
}

impl AlertGroup {
    /// The ends that are stored.
    pub fn ends(&self) -> AlertEnds {
        self.stored.as_ref().map_or_else(|| AlertEnds::none(self.subject.clone()), |stored| stored.ends.clone())
    }
}

/// The stored alerts of a metric and period by subject, without their counts.
pub fn groups(of: &MetricPeriod, alerts: StoredAlerts) -> Vec<AlertGroup> {
    let mut groups: BTreeMap<Subject, AlertGroup> = BTreeMap::new();
    for StoredRecord { record, length } in alerts.records {
        let subject = record.alert.subject.clone();
        let new = || AlertGroup {
            subject: subject.clone(),
            of: of.clone(),
            records: Vec::new(),
            lengths: Vec::new(),
            stored: None,
            used: 0,
        };
        let group = groups.entry(subject.clone()).or_insert_with(new);
        group.records.push(record);
        group.lengths.push(length);
    }
    for stored in alerts.ends {
        if let Some(group) = groups.get_mut(&stored.ends.subject) {
            group.stored = Some(stored);
        }
    }
    groups.into_values().collect()
}

/// Reads the alerts of a subject for each of these metrics and periods, as far as there are some, without its counts.
/// Alerts of other thresholds than these stay unknown, so that one call looks up a few fields and searches no hash.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn read_each(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    thresholds: &BTreeSet<Threshold>,
    asked: &[MetricPeriod],
) -> RedisResult<Vec<AlertGroup>> {
    let mut pipeline = redis::pipe();
    for MetricPeriod { metric, period } in asked {
        pipeline.cmd("HMGET").arg(keys.raised(metric, *period, keys::bucket(subject.as_str())));
        pipeline.arg(Keys::ends_field(subject));
        for threshold in thresholds {
            pipeline.arg(Keys::raised_field(*threshold, subject));
        }
    }
    let found: Vec<Vec<Option<String>>> = run(client, &pipeline).await?;
    let of_each = asked.iter().zip(found).flat_map(|(of, texts)| {
        let mut stored = StoredAlerts::default();
        texts.into_iter().flatten().for_each(|text| stored.add(text));
        groups(of, stored)
    });
    Ok(of_each.collect())
}

/// Reads all alerts of a subject, metric and period, also those at thresholds that were taken out of plans and
/// subjects, without its count. Searches a hash.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn read_whole(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    of: &MetricPeriod,
) -> RedisResult<Option<AlertGroup>> {
    let found = records_of(client, keys, subject, std::slice::from_ref(of)).await?;
    Ok(found.into_iter().flat_map(|stored| groups(of, stored)).next())
}

/// Reads the counts of groups.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn read_counts(Partition { client, keys }: &Partition, groups: &mut [AlertGroup]) -> RedisResult<()> {
    let mut pipeline = redis::pipe();
    for AlertGroup { subject, of, .. } in groups.iter() {
        let key = keys.usage(&of.metric, of.period, keys::bucket(subject.as_str()));
        pipeline.cmd("HGET").arg(key).arg(subject.as_str());
    }
    let counts: Vec<Option<u64>> = run(client, &pipeline).await?;
    groups.iter_mut().zip(counts).for_each(|(group, used)| group.used = used.unwrap_or(0));
    Ok(())
}

/// Stores what was judged about a group, with the notices that it raises. `thresholds` are those at which it may
/// have alerts: a record of one of them may be new. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; also if the partition was moved to another deployment.
pub async fn write(
    Partition { client, keys }: &Partition,
    erasure_epoch: u64,
    group: &AlertGroup,
    judged: &EndsVerdict<'_>,
    (thresholds, notices): (&BTreeSet<Threshold>, &[ResolvedNotice]),
    now: UnixMs,
) -> RedisResult<EndsReply> {
    let AlertGroup { subject, of: MetricPeriod { metric, period }, records, lengths, stored, .. } = group;
    let bucket = keys::bucket(subject.as_str());
    let Some(month) = Month::containing(now) else { return Ok(EndsReply::Changed) };
    let mut call = SCRIPT.call().key(keys.checkpoint()).key(keys.raised(metric, *period, bucket));
    call = call.key(keys.usage(metric, *period, bucket)).key(keys.outbox()).key(keys.alert_log(month));
    let open_from = judged.open_from.map(|units| units.to_string()).unwrap_or_default();
    call = call.arg(erasure_epoch).arg(subject.as_str()).arg(open_from).arg(Keys::ends_field(subject));
    call = call.arg(stored.as_ref().map_or("", |stored| &stored.text)).arg(json(&judged.ends));
    call = call.arg(now.0).arg(LOG_TTL_S);
    let missing = thresholds.iter().filter(|one| records.iter().all(|record| record.alert.threshold != **one));
    let missing: Vec<&Threshold> = missing.collect();
    let changed: Vec<&&Alert> = judged.ended.iter().chain(&judged.reopened).collect();
    call = call.arg(records.len() + missing.len()).arg(notices.len()).arg(changed.len());
    for (record, length) in records.iter().zip(lengths) {
        call = call.arg(Keys::raised_field(record.alert.threshold, subject)).arg(*length);
    }
    for threshold in missing {
        call = call.arg(Keys::raised_field(*threshold, subject)).arg(0);
    }
    for notice in notices {
        call = call.arg(json(notice));
    }
    for alert in changed {
        call = call.arg(alert.id.as_str()).arg(json(&AlertStatus::from(judged.ends.end_of(&alert.id))));
    }
    let reply: String = call.run(client).await?;
    Ok(if reply == "written" { EndsReply::Written } else { EndsReply::Changed })
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain strings and numbers serialize")
}
