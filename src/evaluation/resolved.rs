//! Whether the end of alerts is still true when it is sent to a contact, and whether the contact got the alerts.

use redis::RedisResult;

use super::alert_ends::state_of;
use super::notices::StoredNoticeJudge;
use crate::ledger::alert_ends::{self, AlertGroup};
use crate::ledger::batch::MetricPeriod;
use crate::outbox::ResolvedVerdict;
use crate::redis_client::Partition;
use crate::subjects::StoredLevels;
use crate::types::{AlertId, ContactId, DeliveryId, DeliveryState, ResolvedNotice, UnixMs};

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
        let group = alert_ends::read(partition, subject, &of).await?;
        let present = match &group {
            Some(group) => self.ended(partition, group, notice, now).await?,
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

    /// The notice as it is true now; `None` while an alert of it is open.
    async fn ended(
        &self,
        partition: &Partition,
        group: &AlertGroup,
        notice: &ResolvedNotice,
        now: UnixMs,
    ) -> RedisResult<Option<ResolvedNotice>> {
        let stored = StoredLevels::read(&partition.client, &partition.keys, &group.subject).await.ok();
        let level = stored.and_then(|stored| stored.settings(&self.plans).0.into_iter().next());
        let state = state_of(group, level.as_ref().map(|level| &*level.profile), now);
        let judged = state.judge(&group.ends(), &group.records);
        let ends = notice.alerts.iter().map(|alert| judged.ends.end_of(alert));
        let ends: Option<Vec<_>> = ends.collect();
        let last = ends.and_then(|ends| ends.into_iter().max_by_key(|end| end.at));
        let last = last.filter(|_| judged.is_over || notice.only_alert().is_some());
        Ok(last.map(|end| ResolvedNotice {
            reason: end.reason,
            resolved_at: end.at,
            used: state.used,
            ..notice.clone()
        }))
    }
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
