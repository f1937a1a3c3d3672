//! Erasure: everything that is stored of a subject is removed, and said in numbers.
//!
//! Each step can be repeated, so an erasure that dies half way is begun again. The settings go before the rest: until
//! they have gone, new deliveries could be made by them. The subject is metered on: usage that is counted later begins
//! at zero, under the default plan. Its events in the stream, and digests of their ids, are left to expire.

use std::time::Duration;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::forget::{self, ForgottenCounts};
use crate::ledger::query;
use crate::outbox::forget::{ForgottenDeliveries, forget_alerts, forget_deliveries, forget_failures};
use crate::outbox::forget_in_digests::forget_in_digests;
use crate::outbox::subject_deliveries::deliveries_of;
use crate::redis_client::{Partition, Partitions};
use crate::subjects::Plans;
use crate::types::Subject;
use crate::verification::{ForgottenRequests, forget_requests};
use crate::views::{alerts, subject as subjects};

/// How often the deliveries of a subject are looked for: its settings have gone, so that few more can be made.
const PASSES_MAX: usize = 10;

/// What was removed of a subject.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErasedSubject {
    pub subject: Subject,
    pub removed: ErasedCounts,
}

/// How much was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErasedCounts {
    /// Fields of the settings, the contacts among them.
    pub settings: u64,
    /// Counters, one for each metric and period.
    pub counters: u64,
    /// Records of raised alerts.
    pub alerts: u64,
    /// Flags of alerts.
    pub flags: u64,
    /// Metrics with a history.
    pub history: u64,
    /// Refused events.
    pub refused: u64,
    /// Alerts that had no delivery yet.
    pub undelivered_alerts: u64,
    /// Deliveries, whatever their state.
    pub deliveries: u64,
    /// Those of them that were pending.
    pub pending_deliveries: u64,
    /// Codes that were sent to contacts.
    pub verification_codes: u64,
    /// Confirm links that were sent to contacts.
    pub verification_links: u64,
    /// Windows of the limiters of `/v1/check`.
    pub limiters: u64,
}

/// Removes everything that is stored of a subject, if events of this age are counted. Repeatable; says what this call
/// removed.
///
/// # Errors
///
/// What Redis or the connection said; a part may be removed.
pub async fn erase(
    partitions: &Partitions,
    plans: &Plans,
    event_age_max: Duration,
    subject: &Subject,
) -> RedisResult<ErasedSubject> {
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
    removed.limiters = forget::limiters(partition, subject, &metrics).await?;
    removed.undelivered_alerts = forget_alerts(partition, subject).await?;
    // Those that are made while others are removed come in the next pass.
    for _ in 0..PASSES_MAX {
        let found = deliveries_of(partition, Some(subject)).await?;
        if found.is_empty() {
            break;
        }
        let ForgottenDeliveries { removed: gone, pending } = forget_deliveries(partition, subject, &found).await?;
        removed.deliveries += gone;
        removed.pending_deliveries += pending;
    }
    // Digests name subjects of all partitions, and lie in the first.
    let digests = deliveries_of(partitions.first(), None).await?;
    forget_in_digests(partitions.first(), subject, &digests).await?;
    // Nothing is left by which a message could be sent.
    let ForgottenRequests { codes, links } = forget_requests(partitions, subject).await?;
    (removed.verification_codes, removed.verification_links) = (codes, links);
    forget_failures(partition, subject).await?;
    removed.history = forget::history(partition, subject).await?;
    // An event in the wrong partition was refused there.
    for partition in partitions.iter() {
        removed.refused += forget::refused(partition, subject).await?;
    }
    Ok(ErasedSubject { subject: subject.clone(), removed })
}
