//! Erasure: removes all stored data of a subject and returns the numbers.
//!
//! Every step is repeatable, so an erasure that fails half-way can be started again. Settings are removed first,
//! because they could create new deliveries. The subject is still metered: later usage begins at zero, under the
//! default plan. The subject's events in the stream, and digests of their ids, expire by themselves.

pub mod branch;

use std::collections::BTreeSet;
use std::time::Duration;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::children;
use crate::ledger::forget::{self, ForgottenCounts};
use crate::ledger::grants_due;
use crate::ledger::query;
use crate::outbox::forget::{ForgottenDeliveries, forget_deliveries, forget_failures, forget_outbox_entries};
use crate::outbox::forget_in_digests::forget_in_digests;
use crate::outbox::subject_deliveries::deliveries_of;
use crate::redis_client::{Partition, Partitions};
use crate::subjects::Plans;
use crate::types::Subject;
use crate::verification::{ForgottenRequests, forget_requests};
use crate::views::{alerts, subject as subjects};

impl ErasedCounts {
    fn add(&mut self, other: &Self) {
        let Self { settings, counters, alerts, flags, history, refused, undelivered_alerts, deliveries, .. } = self;
        *settings += other.settings;
        *counters += other.counters;
        *alerts += other.alerts;
        *flags += other.flags;
        *history += other.history;
        *refused += other.refused;
        *undelivered_alerts += other.undelivered_alerts;
        *deliveries += other.deliveries;
        self.pending_deliveries += other.pending_deliveries;
        self.verification_codes += other.verification_codes;
        self.verification_links += other.verification_links;
        self.limiters += other.limiters;
        self.grants += other.grants;
    }
}

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
    /// Refused events.
    pub refused: u64,
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
    let mut removed = ErasedCounts::default();
    // The deepest levels first: if it fails, the lists of children still name what is left.
    for one in below.iter().rev().chain([subject]) {
        removed.add(&erase(partitions, plans, event_age_max, one).await?);
    }
    Ok(ErasedSubject { subject: subject.clone(), subjects: below.len() as u64 + 1, removed })
}

async fn erase(
    partitions: &Partitions,
    plans: &Plans,
    event_age_max: Duration,
    subject: &Subject,
) -> RedisResult<ErasedCounts> {
    let partition = partitions.partition_of(subject);
    let Partition { client, keys } = partition;
    let begun = client.server_time().await?;
    let periods = alerts::stored_periods(begun, event_age_max);
    let fields = subjects::read_fields(partition, subject).await?;
    let mut removed = ErasedCounts { settings: fields.len() as u64, ..ErasedCounts::default() };
    let () = client.query(redis::cmd("DEL").arg(keys.subject(subject))).await?;
    let used = query::metrics_of(client, keys, &periods).await?;
    let mut metrics = forget::metrics(partition, &used).await?;
    metrics.extend(plans.limited_by_rates());
    let counts: ForgottenCounts = forget::counts(partition, subject, used).await?;
    (removed.counters, removed.alerts, removed.flags) = (counts.counters, counts.records, counts.flags);
    removed.grants = grants_due::forget(partition, subject).await?;
    removed.limiters = forget::limiters(partition, subject, &metrics).await?;
    removed.undelivered_alerts = forget_outbox_entries(partition, subject).await?;
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
    // Digests name subjects of all partitions and are in the first one.
    let digests = deliveries_of(partitions.first(), None).await?;
    forget_in_digests(partitions.first(), subject, &digests).await?;
    // Nothing is left that could send a message.
    let ForgottenRequests { codes, links } = forget_requests(partitions, subject).await?;
    (removed.verification_codes, removed.verification_links) = (codes, links);
    forget_failures(partition, subject).await?;
    children::forget(partition, subject).await?;
    removed.history = forget::history(partition, subject).await?;
    // A partition refuses events of other partitions, with their subject.
    for partition in partitions.iter() {
        removed.refused += forget::refused(partition, subject).await?;
    }
    Ok(removed)
}
