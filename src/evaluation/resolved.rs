//! Whether the end of alerts is still true when it is sent to a contact, and whether the contact got the alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::RedisResult;

use super::alert_ends::{known_thresholds, state_of};
use super::notices::StoredNoticeJudge;
use crate::ledger::alert_ends::{self, AlertGroup, EndsReply};
use crate::ledger::alert_judge::{EndsVerdict, QuotaState};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::usage_profiles;
use crate::outbox::{ENDED_DELIVERY_TTL, RECORD_OUTCOME_TIMEOUT, ResolvedVerdict, alert_log};
use crate::redis_client::Partition;
use crate::types::{
    Alert, AlertEnd, AlertEnds, AlertId, ContactId, DeliveryId, DeliveryState, EndReason, ResolvedNotice,
    ResolvedScope, UnixMs,
};

/// How long an alert that has no delivery yet may be on its way: an entry of the outbox that nobody can read stays
/// there for ever.
const FAN_OUT_MAX_MS: i64 = 3_600_000;
/// How long after an end was raised the outcome of an attempt of a withdrawn one may still be recorded: the attempt
/// began before, and leases are shorter than an hour.
const OUTCOME_MAX: Duration = RECORD_OUTCOME_TIMEOUT.saturating_mul(2);

impl StoredNoticeJudge {
    pub(super) async fn judge_resolved(
        &self,
        notice: &ResolvedNotice,
        (contact, sent_together): (&ContactId, &[&AlertId]),
        now: UnixMs,
    ) -> RedisResult<ResolvedVerdict> {
        let told_to = (contact, sent_together);
        let ResolvedNotice { scope, subject, metric, period, alerts: covered, .. } = notice;
        let partition = self.partitions.partition_of(subject);
        let erasures = usage_profiles::mark(partition).await?.erasure_epoch;
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        let profile = self.settings_of(partition, subject).await?;
        let mut thresholds = known_thresholds(&self.plans, profile.as_deref());
        thresholds.extend(&notice.thresholds);
        let mut group: Vec<AlertGroup> = match notice.reason {
            // The period is over, for all alerts.
            EndReason::Reset => alert_ends::read_each(partition, subject, &thresholds, &[of]).await?,
            // An alert at a threshold that was taken out meanwhile may be open.
            _ => alert_ends::read_whole(partition, subject, &of).await?.into_iter().collect(),
        };
        alert_ends::read_counts(partition, &mut group).await?;
        let group = group.pop();
        let ends = group.as_ref().map_or_else(|| AlertEnds::none(subject.clone()), AlertGroup::ends);
        let is_withdrawn = notice.id != ResolvedNotice::id_of(*scope, covered, &ends.withdrawn(*scope, covered));
        // Without the records nobody knows whether it was withdrawn, and the period was over two days ago. An incident
        // is closed whenever.
        let is_too_late = group.is_none() && *scope == ResolvedScope::Quota;
        if is_too_late || group.is_some() && is_withdrawn {
            return Ok(ResolvedVerdict::Never);
        }
        let told = match unheard(partition, &ends, notice, contact, now).await? {
            None => return Ok(ResolvedVerdict::Later),
            Some(unheard) if unheard.is_empty() => return Ok(ResolvedVerdict::Never),
            Some(unheard) => unheard,
        };
        let alerts = group.iter().flat_map(|group| &group.records);
        let alerts: BTreeMap<&AlertId, &Alert> = alerts
            .flat_map(|record| record.earlier.iter().chain([&record.alert]))
            .map(|alert| (&alert.id, alert))
            .collect();
        let told_in = |id: &AlertId| ends.ends.get(id)?.told_in;
        let this = covered.iter().filter_map(told_in).max();
        let is_newer = |id: &&AlertId| !covered.contains(id) && told_in(id).is_none_or(|end| Some(end) > this);
        let newer = alerts.keys().copied().filter(is_newer).filter(|_| notice.only_alert().is_none());
        let newer: Vec<&AlertId> = newer.collect();
        let newer = states(partition, (&newer, &alerts), told_to, now).await?;
        if newer.contains(&Some(DeliveryState::Delivered)) {
            return Ok(ResolvedVerdict::Never);
        }
        let states = states(partition, (&told, &alerts), told_to, now).await?;
        let is_on_its_way = states.contains(&Some(DeliveryState::Pending))
            || newer.contains(&Some(DeliveryState::Pending))
            || states.contains(&None) && is_fanning_out(partition, notice, now).await?;
        if is_on_its_way {
            return Ok(ResolvedVerdict::Later);
        }
        let delivered = told.into_iter().zip(states).filter(|(_, state)| *state == Some(DeliveryState::Delivered));
        let delivered: Vec<&AlertId> = delivered.map(|(id, _)| id).collect();
        if delivered.is_empty() {
            return Ok(ResolvedVerdict::Never);
        }
        let Some(group) = &group else { return Ok(ResolvedVerdict::True(Box::new(notice.clone()))) };
        let state = state_of(group, profile.as_deref(), now);
        let mut judged = state.judge(&ends, &group.records);
        if let Some(mut present) = ended(&judged, state, notice) {
            // What this contact never got is not told as reached.
            let got = delivered.iter().filter_map(|id| Some(alerts.get(id)?.threshold)).collect::<BTreeSet<_>>();
            if !got.is_empty() {
                present.thresholds.retain(|threshold| got.contains(threshold));
            }
            return Ok(ResolvedVerdict::True(Box::new(present)));
        }
        if !judged.ended.is_empty() {
            // The loop of ends tells those first.
            return Ok(ResolvedVerdict::Later);
        }
        judged.ends.withdraw(notice);
        let written = alert_ends::write(partition, erasures, group, &judged, (&thresholds, &[]), now).await?;
        Ok(if written == EndsReply::Written { ResolvedVerdict::Never } else { ResolvedVerdict::Later })
    }
}

/// The alerts of the notice without those whose end the contact heard before it was withdrawn; `None` while nobody
/// knows whether it heard such an end.
async fn unheard<'a>(
    partition: &Partition,
    ends: &AlertEnds,
    ResolvedNotice { scope, alerts, raised_at, .. }: &'a ResolvedNotice,
    contact: &ContactId,
    now: UnixMs,
) -> RedisResult<Option<Vec<&'a AlertId>>> {
    let withdrawn: Vec<&str> = ends.withdrawn(*scope, alerts).into_iter().collect();
    let ids: Vec<DeliveryId> = withdrawn.iter().map(|end| DeliveryId::of_notification(end, contact)).collect();
    let found = stored_deliveries(partition, &ids).await?;
    // One without a lease is judged again before it would be sent, and then it ends. A lease that is over ends it only
    // once another worker takes it.
    let has_outcome = now.since(raised_at.0) > OUTCOME_MAX;
    if !has_outcome && found.iter().flatten().any(|of| of.state == DeliveryState::Pending && of.is_leased) {
        return Ok(None);
    }
    let is_heard = |of: StoredDelivery| of.state == DeliveryState::Delivered;
    let heard = withdrawn.into_iter().zip(found).filter(|(_, of)| of.is_some_and(is_heard));
    let heard: BTreeSet<&str> = heard.map(|(end, _)| end).collect();
    let told = |alert: &AlertId| ends.ends.get(alert).map_or(&[][..], |noted| noted.withdrawn(*scope));
    let is_unheard = |alert: &&AlertId| told(alert).iter().all(|end| !heard.contains(end.as_str()));
    Ok(Some(alerts.iter().filter(is_unheard).collect()))
}

/// The notice as it is true now; `None` while an alert of it is open.
fn ended(judged: &EndsVerdict<'_>, state: QuotaState, notice: &ResolvedNotice) -> Option<ResolvedNotice> {
    let ends: Option<Vec<AlertEnd>> = notice.alerts.iter().map(|alert| judged.ends.end_of(alert)).collect();
    let last = ends.and_then(|ends| ends.into_iter().max_by_key(|end| end.at));
    let last = last.filter(|_| judged.is_over || notice.only_alert().is_some());
    last.map(|end| ResolvedNotice { reason: end.reason, resolved_at: end.at, used: state.used, ..notice.clone() })
}

/// The states of the deliveries of these alerts to the contact, by the log of alerts if they have expired; `None` of
/// one that does not exist. Those that leave together with the end are delivered when it is.
async fn states(
    partition: &Partition,
    (asked, known): (&[&AlertId], &BTreeMap<&AlertId, &Alert>),
    (contact, sent_together): (&ContactId, &[&AlertId]),
    now: UnixMs,
) -> RedisResult<Vec<Option<DeliveryState>>> {
    let ids: Vec<DeliveryId> = asked.iter().map(|alert| DeliveryId::derive(alert, contact)).collect();
    let stored = stored_deliveries(partition, &ids).await?;
    let mut states: Vec<Option<DeliveryState>> = stored.into_iter().map(|of| Some(of?.state)).collect();
    for (state, _) in states.iter_mut().zip(asked).filter(|(_, alert)| sent_together.contains(alert)) {
        *state = Some(DeliveryState::Delivered);
    }
    for ((state, id), alert) in states.iter_mut().zip(&ids).zip(asked).filter(|((state, _), _)| state.is_none()) {
        let raised = known.get(alert).map(|alert| alert.raised_at_ms);
        if let Some(raised) = raised.filter(|raised| now.since(*raised) >= ENDED_DELIVERY_TTL)
            && alert_log::was_delivered(partition, id, raised, now).await?
        {
            *state = Some(DeliveryState::Delivered);
        }
    }
    Ok(states)
}

/// A delivery as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredDelivery {
    pub(super) state: DeliveryState,
    /// Whether an attempt may be in progress or its outcome not recorded: also after the end of the lease, until
    /// another worker takes it.
    is_leased: bool,
}

pub(super) async fn stored_deliveries(
    Partition { client, keys }: &Partition,
    ids: &[DeliveryId],
) -> RedisResult<Vec<Option<StoredDelivery>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = redis::pipe();
    for id in ids {
        pipeline.cmd("HMGET").arg(keys.delivery(id)).arg(&["state", "lease_token"]);
    }
    let stored: Vec<(Option<String>, Option<String>)> = client.pipe(&pipeline).await?;
    let delivery = |(state, token): (Option<String>, Option<String>)| {
        Some(StoredDelivery { state: DeliveryState::from_stored(&state?)?, is_leased: token.is_some() })
    };
    Ok(stored.into_iter().map(delivery).collect())
}

/// Whether an alert of the notice may still be in the outbox: the newest ones may leave it before older ones.
async fn is_fanning_out(
    Partition { client, keys }: &Partition,
    notice: &ResolvedNotice,
    now: UnixMs,
) -> RedisResult<bool> {
    if now > notice.raised_at.0.plus(FAN_OUT_MAX_MS) {
        return Ok(false);
    }
    let waiting: u64 = client.query(redis::cmd("XLEN").arg(keys.outbox())).await?;
    Ok(waiting > 0)
}
