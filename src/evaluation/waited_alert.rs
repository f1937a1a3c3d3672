//! Whether an alert that was not told at once is still worth telling.

use redis::RedisResult;

use super::alert_ends::{known_thresholds, state_of};
use super::notices::StoredNoticeJudge;
use super::resolved::stored_deliveries;
use crate::ledger::alert_ends;
use crate::ledger::batch::MetricPeriod;
use crate::outbox::{AlertVerdict, RESOLVED_AFTER};
use crate::types::{Alert, ContactId, DeliveryId, DeliveryState, EndReason, UnixMs};

impl StoredNoticeJudge {
    /// Whether neither a higher limit nor a credit has ended it, and `contact`, if there is one, has got no alert of a
    /// higher threshold that was raised since. That its period is over makes it no less true: a digest may be longer
    /// than an hour. If nobody has stored the end, nobody would notice that the alert is open again: it waits until
    /// then, and until the end has lasted.
    pub(super) async fn judge_alert(
        &self,
        alert: &Alert,
        contact: Option<&ContactId>,
        now: UnixMs,
    ) -> RedisResult<AlertVerdict> {
        let Alert { id, subject, metric, period, threshold, .. } = alert;
        let partition = self.partitions.partition_of(subject);
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        let profile = self.settings_of(partition, subject).await?;
        let mut thresholds = known_thresholds(&self.plans, profile.as_deref());
        thresholds.insert(*threshold);
        let mut groups = alert_ends::read_each(partition, subject, &thresholds, &[of]).await?;
        alert_ends::read_counts(partition, &mut groups).await?;
        // Without the records, the period was over two days ago.
        let Some(group) = groups.pop() else { return Ok(AlertVerdict::True) };
        // Without readable settings, the alert is told.
        let state = state_of(&group, profile.as_deref(), now);
        let stored = group.ends();
        let end = state.judge(&stored, &group.records).ends.end_of(id);
        if end.is_some_and(|end| end.reason != EndReason::Reset) {
            let has_lasted = stored.end_of(id).is_some_and(|end| now.since(end.at.0) >= RESOLVED_AFTER);
            return Ok(if has_lasted { AlertVerdict::Never } else { AlertVerdict::Later });
        }
        let Some(contact) = contact else { return Ok(AlertVerdict::True) };
        let raised = group.records.iter().flat_map(|record| record.earlier.iter().chain([&record.alert]));
        let is_higher =
            |other: &&Alert| other.threshold_units > alert.threshold_units && other.raised_at_ms >= alert.raised_at_ms;
        let higher: Vec<DeliveryId> =
            raised.filter(is_higher).map(|other| DeliveryId::derive(&other.id, contact)).collect();
        let found = stored_deliveries(partition, &higher).await?;
        let has_got_one = found.iter().flatten().any(|of| of.state == DeliveryState::Delivered);
        Ok(if has_got_one { AlertVerdict::Never } else { AlertVerdict::True })
    }
}
