//! Erasure: removes all stored data of a subject and returns the numbers.
//!
//! Every step is repeatable, so an erasure that fails half-way can be started again. Settings are removed first,
//! because they could create new deliveries. The subject is still metered: later usage begins at zero, under the
//! default plan. The subject's events in the stream, and digests of their ids, expire by themselves.

pub mod branch;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::batch::MetricPeriod;
use crate::ledger::children;
use crate::ledger::erasures;
use crate::ledger::forget::{self, ForgottenCounts};
use crate::ledger::grants_due;
use crate::ledger::query;
use crate::ledger::usage_notices;
use crate::outbox::alert_log::forget_in_log;
use crate::outbox::forget::{ForgottenDeliveries, forget_deliveries, forget_failures, forget_outbox_entries};
use crate::outbox::forget_in_alerts::forget_in_alerts;
use crate::outbox::forget_in_digests::forget_in_digests;
use crate::outbox::subject_deliveries::deliveries_of;
use crate::redis_client::{Partition, Partitions};
use crate::signing::portal_gate;
use crate::subjects::Plans;
use crate::types::{Branch, Subject};
use crate::verification::{ForgottenRequests, forget_requests};
use crate::views::{alerts, subject as subjects};

/// Maximum number of passes over the deliveries of a subject: its settings are gone, so few new ones can appear.
const PASSES_MAX: usize = 10;

/// Number of removed items.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErasedSubject {
    pub subject: Subject,
    /// Number of subjects: this one and all below it of which something may have been stored.
    pub subjects: u64,
    pub removed: ErasedCounts,
}

/// Number of removed items by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErasedCounts {
    /// Fields of the settings, including contacts.
    pub settings: u64,
    /// Counters, one per metric and period.
    pub counters: u64,
    /// Records of raised alerts.
    pub alerts: u64,
    /// Flags of alerts.
    pub flags: u64,
    /// Metrics with a history.
    pub history: u64,
    /// Profiles of usual usage, one per metric.
    pub profiles: u64,
    /// Refused events.
    pub refused: u64,
    /// Entries of the log of actions.
    pub actions: u64,
    /// Entries of the log of alerts.
    pub log_entries: u64,
    /// Alerts without a delivery.
    pub undelivered_alerts: u64,
    /// Deliveries in any state.
    pub deliveries: u64,
    /// Pending ones among the deliveries.
    pub pending_deliveries: u64,
    /// Codes sent to contacts.
    pub verification_codes: u64,
    /// Confirm links sent to contacts.
    pub verification_links: u64,
    /// Windows of the limiters of `/v1/check`.
    pub limiters: u64,
    /// Grants, in any state.
    pub grants: u64,
}

/// What was removed, such as `3 settings, 12 counters`, or `nothing was stored`.
impl fmt::Display for ErasedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        let removed = counts.as_object().into_iter().flatten().filter(|(_, count)| **count != 0);
        let removed: Vec<String> = removed.map(|(kind, count)| format!("{count} {}", kind.replace('_', " "))).collect();
        f.write_str(if removed.is_empty() { "nothing was stored".to_owned() } else { removed.join(", ") }.as_str())
    }
}

/// Removes all stored data of a subject and of the subjects `below` it, for this maximum age of counted events.
/// Repeatable; returns what this call removed.
///
/// # Errors
///
/// The error of Redis or of the connection; some data may already be removed.
pub async fn erase_branch(
    partitions: &Partitions,
    plans: &Plans,
    event_age_max: Duration,
    subject: &Subject,
    below: &BTreeSet<Subject>,
) -> RedisResult<ErasedSubject> {
    let erased = remove_branch(partitions, plans, event_age_max, subject, below).await;
    // Also if a part is left.
    let counted = erasures::add(partitions.first()).await;
    erased.and_then(|erased| counted.map(|()| erased))
}

async fn remove_branch(
    partitions: &Partitions,
    plans: &Plans,
    event_age_max: Duration,
    subject: &Subject,
    below: &BTreeSet<Subject>,
) -> RedisResult<ErasedSubject> {
    let mut removed = ErasedCounts::default();
    // The deepest levels first: if it fails, the lists of children still name what is left.
    let gone: Vec<&Subject> = below.iter().rev().chain([subject]).collect();
    for one in &gone {
        let partition = partitions.partition_of(one);
        removed.settings += subjects::read_fields(partition, one).await?.len() as u64;
        let () = partition.client.query(redis::cmd("DEL").arg(partition.keys.subject(one))).await?;
    }
    let branch = Branch::new(subject.clone(), partitions.first().keys.separator());
    // A tree is in one partition. Before subjects were paths, each had a partition of its own, and a partition refuses
    // events of other partitions, with their subject.
    for partition in partitions.iter() {
        erase_counts(partition, plans, event_age_max, &gone, &mut removed).await?;
        removed.undelivered_alerts += forget_outbox_entries(partition, &branch).await?;
        erase_in_alerts(partition, event_age_max, subject, &branch).await?;
        for one in &gone {
            erase_deliveries(partition, one, &mut removed).await?;
            forget_failures(partition, one).await?;
            removed.history += forget::history(partition, one).await?;
        }
        removed.refused += forget::refused(partition, &branch).await?;
        removed.log_entries += forget_in_log(partition, &branch).await?;
    }
    removed.actions += forget::actions(partitions.first(), &branch).await?;
    // Digests name subjects of all partitions and are in the first one.
    let digests = deliveries_of(partitions.first(), None).await?;
    forget_in_digests(partitions.first(), &branch, &digests).await?;
    portal_gate::revoke(partitions.first(), subject).await?;
    for one in &gone {
        // Nothing is left that could send a message.
        let ForgottenRequests { codes, links } = forget_requests(partitions, one).await?;
        removed.verification_codes += codes;
        removed.verification_links += links;
        for partition in partitions.iter() {
            children::forget(partition, one).await?;
        }
    }
    Ok(ErasedSubject { subject: subject.clone(), subjects: gone.len() as u64, removed })
}

/// Removes the counters, with records and flags, and the windows of limiters.
async fn erase_counts(
    partition: &Partition,
    plans: &Plans,
    event_age_max: Duration,
    gone: &[&Subject],
    removed: &mut ErasedCounts,
) -> RedisResult<()> {
    let used = stored_counters(partition, event_age_max).await?;
    let mut metrics = forget::metrics(partition, &used).await?;
    metrics.extend(plans.limited_by_rates());
    for one in gone {
        let ForgottenCounts { counters, records, flags } = forget::counts(partition, one, &used).await?;
        removed.counters += counters;
        removed.alerts += records;
        removed.flags += flags;
        removed.limiters += forget::limiters(partition, one, &metrics).await?;
        removed.flags += usage_notices::forget(partition, one, &used, &metrics).await?;
        removed.profiles += forget::profiles(partition, one, &metrics).await?;
        removed.grants += grants_due::forget(partition, one).await?;
    }
    Ok(())
}

/// Removes the names of the branch from the alerts of the levels above it.
async fn erase_in_alerts(
    partition: &Partition,
    event_age_max: Duration,
    subject: &Subject,
    branch: &Branch,
) -> RedisResult<()> {
    let above = partition.keys.separator().ancestors(subject);
    forget_in_alerts(partition, &above, branch).await?;
    for level in &above {
        // Read again: an alert may have been the first of its period.
        forget::in_records(partition, level, &stored_counters(partition, event_age_max).await?, branch).await?;
    }
    Ok(())
}

async fn stored_counters(partition: &Partition, event_age_max: Duration) -> RedisResult<Vec<MetricPeriod>> {
    let Partition { client, keys } = partition;
    let periods = alerts::stored_periods(client.server_time().await?, event_age_max);
    query::metrics_of(client, keys, &periods).await
}

async fn erase_deliveries(partition: &Partition, subject: &Subject, removed: &mut ErasedCounts) -> RedisResult<()> {
    // The next pass finds deliveries that were created meanwhile.
    for _ in 0..PASSES_MAX {
        let found = deliveries_of(partition, Some(subject)).await?;
        if found.is_empty() {
            break;
        }
        let ForgottenDeliveries { removed: gone, pending } = forget_deliveries(partition, subject, &found).await?;
        removed.deliveries += gone;
        removed.pending_deliveries += pending;
    }
    Ok(())
}
