//! Whether the end of alerts is still true when it is sent to a contact, and whether the contact got the alerts.

use redis::RedisResult;

use super::alert_ends::{known_thresholds, state_of};
use super::notices::StoredNoticeJudge;
use crate::ledger::alert_ends::{self, AlertGroup};
use crate::ledger::alert_judge::QuotaState;
use crate::ledger::batch::MetricPeriod;
use crate::outbox::ResolvedVerdict;
use crate::redis_client::Partition;
use crate::subjects::StoredLevels;
use crate::types::{AlertEnd, AlertId, ContactId, DeliveryId, DeliveryState, ResolvedNotice, UnixMs};

/// How long an alert that has no delivery yet may be on its way: an entry of the outbox that nobody can read stays
/// there for ever.
const FAN_OUT_MAX_MS: i64 = 3_600_000;

impl StoredNoticeJudge {
    pub(super) async fn judge_resolved(
        &self,
        notice: &ResolvedNotice,
        contact: &ContactId,
        now: UnixMs,
    ) -> RedisResult<ResolvedVerdict> {
        let ResolvedNotice { subject, metric, period, .. } = notice;
        let partition = self.partitions.partition_of(subject);
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        // Records that have expired belong to a period that was over long ago.
        let stored = StoredLevels::read(&partition.client, &partition.keys, subject).await.ok();
        let level = stored.and_then(|stored| stored.settings(&self.plans).0.into_iter().next());
        let profile = level.map(|level| level.profile);
        let mut thresholds = known_thresholds(&self.plans, profile.as_deref());
        thresholds.extend(&notice.thresholds);
        let mut group = alert_ends::read_each(partition, subject, &thresholds, &[of]).await?;
        alert_ends::read_counts(partition, &mut group).await?;
        let group = group.pop();
        let present = match &group {
            Some(group) => ended(group, state_of(group, profile.as_deref(), now), notice),
            None => Some(notice.clone()),
        };
        let alerts = group.iter().flat_map(|group| &group.records);
        let alerts = alerts.flat_map(|record| record.earlier.iter().chain([&record.alert]));
        let ends = group.as_ref().map(AlertGroup::ends);
        let told_at = |id: &AlertId| ends.as_ref().and_then(|ends| ends.ends.get(id)?.told_at);
        let is_newer =
            |id: &&AlertId| !notice.alerts.contains(id) && told_at(id).is_none_or(|told| told > notice.raised_at);
        let newer: Vec<&AlertId> =
            alerts.map(|alert| &alert.id).filter(is_newer).filter(|_| notice.only_alert().is_none()).collect();
        let told: Vec<&AlertId> = notice.alerts.iter().collect();
        let newer = states(partition, &newer, contact).await?;
        if newer.contains(&Some(DeliveryState::Delivered)) {
            return Ok(ResolvedVerdict::Never);
        }
        let told = states(partition, &told, contact).await?;
        let delivered = told.contains(&Some(DeliveryState::Delivered));
        let is_on_its_way = told.contains(&Some(DeliveryState::Pending))
            || newer.contains(&Some(DeliveryState::Pending))
            || told.contains(&None) && is_fanning_out(partition, notice, now).await?;
        Ok(match present {
            _ if is_on_its_way => ResolvedVerdict::Later,
            _ if !delivered => ResolvedVerdict::Never,
            Some(present) => ResolvedVerdict::True(Box::new(present)),
            None => ResolvedVerdict::Later,
        })
    }
}

/// The notice as it is true now; `None` while an alert of it is open.
fn ended(group: &AlertGroup, state: QuotaState, notice: &ResolvedNotice) -> Option<ResolvedNotice> {
    let judged = state.judge(&group.ends(), &group.records);
    let ends: Option<Vec<AlertEnd>> = notice.alerts.iter().map(|alert| judged.ends.end_of(alert)).collect();
    let last = ends.and_then(|ends| ends.into_iter().max_by_key(|end| end.at));
    let last = last.filter(|_| judged.is_over || notice.only_alert().is_some());
    last.map(|end| ResolvedNotice { reason: end.reason, resolved_at: end.at, used: state.used, ..notice.clone() })
}

/// The states of the deliveries of these alerts to the contact; `None` of one that does not exist.
async fn states(
    Partition { client, keys }: &Partition,
    alerts: &[&AlertId],
    contact: &ContactId,
) -> RedisResult<Vec<Option<DeliveryState>>> {
    if alerts.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = redis::pipe();
    for alert in alerts {
        pipeline.cmd("HGET").arg(keys.delivery(&DeliveryId::derive(alert, contact))).arg("state");
    }
    let states: Vec<Option<String>> = client.pipe(&pipeline).await?;
    Ok(states.into_iter().map(|state| DeliveryState::from_stored(&state?)).collect())
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
