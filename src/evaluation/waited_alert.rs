//! Whether an alert that waited for a digest, or for the end of a quiet time, is still true.

use std::collections::BTreeSet;

use redis::RedisResult;

use super::alert_ends::state_of;
use super::notices::StoredNoticeJudge;
use crate::ledger::alert_ends;
use crate::ledger::batch::MetricPeriod;
use crate::types::{Alert, EndReason, UnixMs};

impl StoredNoticeJudge {
    /// Whether neither a higher limit nor a credit has ended it. That its period is over makes it no less true: a
    /// digest may be longer than an hour.
    pub(super) async fn judge_alert(&self, alert: &Alert, now: UnixMs) -> RedisResult<bool> {
        let Alert { id, subject, metric, period, threshold, .. } = alert;
        let partition = self.partitions.partition_of(subject);
        let of = MetricPeriod { metric: metric.clone(), period: *period };
        let mut groups = alert_ends::read_each(partition, subject, &BTreeSet::from([*threshold]), &[of]).await?;
        alert_ends::read_counts(partition, &mut groups).await?;
        // Without the record, the period was over two days ago.
        let Some(group) = groups.pop() else { return Ok(true) };
        // Without readable settings, the alert is told.
        let profile = self.settings_of(partition, subject).await?;
        let state = state_of(&group, profile.as_deref(), now);
        let end = state.judge(&group.ends(), &group.records).ends.end_of(id);
        Ok(end.is_none_or(|end| end.reason == EndReason::Reset))
    }
}
