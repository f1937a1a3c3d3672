//! Whether an alert that was not told at once is still worth telling.

use redis::RedisResult;

use super::alert_ends::{known_thresholds, state_of};
use super::notices::StoredNoticeJudge;
use super::resolved::stored_deliveries;
use crate::ledger::alert_ends;
use crate::ledger::batch::MetricPeriod;
use crate::types::{Alert, ContactId, DeliveryId, DeliveryState, EndReason, UnixMs};

impl StoredNoticeJudge {
    /// Whether neither a higher limit nor a credit has ended it, and `contact`, if there is one, has got no alert of a
    /// higher threshold that was raised since. That its period is over makes it no less true: a digest may be longer
    /// than an hour.
    pub(super) async fn judge_alert(
        &self,
        alert: &Alert,
        contact: Option<&ContactId>,
        now: UnixMs,
    ) -> RedisResult<bool> {
        let Alert { id, subject, metric, period, threshold, .. } = alert;
        let partition = self.partitions.partition_of(subject);
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        let profile = self.settings_of(partition, subject).await?;
        let mut thresholds = known_thresholds(&self.plans, profile.as_deref());
        thresholds.insert(*threshold);
        let mut groups = alert_ends::read_each(partition, subject, &thresholds, &[of]).await?;
        alert_ends::read_counts(partition, &mut groups).await?;
        // Without the records, the period was over two days ago.
        let Some(group) = groups.pop() else { return Ok(true) };
        // Without readable settings, the alert is told.
        let state = state_of(&group, profile.as_deref(), now);
        let end = state.judge(&group.ends(), &group.records).ends.end_of(id);
        if end.is_some_and(|end| end.reason != EndReason::Reset) {
            return Ok(false);
        }
        let Some(contact) = contact else { return Ok(true) };
        let raised = group.records.iter().flat_map(|record| record.earlier.iter().chain([&record.alert]));
        let is_higher =
            |other: &&Alert| other.threshold_units > alert.threshold_units && other.raised_at_ms >= alert.raised_at_ms;
        let higher: Vec<DeliveryId> =
            raised.filter(is_higher).map(|other| DeliveryId::derive(&other.id, contact)).collect();
        let found = stored_deliveries(partition, &higher).await?;
        Ok(found.iter().flatten().all(|of| of.state != DeliveryState::Delivered))
    }
}
