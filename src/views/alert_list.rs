//! The recorded alerts of all subjects, with who was notified of each.

use std::cmp::Reverse;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert_outcomes::{AlertDeliveriesView, AlertOutcome, AlertOutcomes};
use super::{AlertFilter, Cursor, Observer, alerts};
use crate::ledger::raised_scan::{self, RaisedPosition, RaisedSlice};
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, AlertId, Metric, Percent, Subject, UnixMs, Window};

/// Number of alerts whose deliveries are read at once in the search for those that reached nobody.
const JUDGED_AT_ONCE: usize = 200;
/// Maximum number of them for one page.
const JUDGED_MAX: usize = 1_000;

/// Alerts of all subjects, in one slice of those that are recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NotifiedAlertList")]
pub struct NotifiedAlertsView {
    /// The newest first, within the slice: of all alerts if there are at most 5,000.
    pub alerts: Vec<NotifiedAlertView>,
    /// Number of recorded alerts in the slice.
    pub examined: usize,
    /// What `after` takes to get the following ones; null at the end.
    pub next: Option<String>,
    pub read_at: Rfc3339,
}

/// An alert, and who was notified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NotifiedAlert")]
pub struct NotifiedAlertView {
    #[serde(flatten)]
    pub alert: Alert,
    #[serde(flatten)]
    pub deliveries: AlertDeliveriesView,
}

/// Which alerts are listed.
#[derive(Debug, Clone, Default)]
pub struct NotifiedAlertFilter {
    pub subject: Option<Subject>,
    pub metric: Option<Metric>,
    pub window: Option<Window>,
    /// Only thresholds at or above this part of the limit.
    pub percent: Option<Percent>,
    pub since: Option<UnixMs>,
    pub outcome: Option<AlertOutcome>,
}

/// The position of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotifiedAlertCursor {
    slice: Option<RaisedPosition>,
    after: Option<Place>,
}

/// The order within a slice: the newest first, then by id.
type Place = (Reverse<UnixMs>, AlertId);

fn place(alert: &Alert) -> Place {
    (Reverse(alert.raised_at_ms), alert.id.clone())
}

impl Observer {
    /// Reads at most `limit` alerts. A page may be shorter, or empty, although more follow.
    pub async fn alerts(
        &self,
        filter: &NotifiedAlertFilter,
        from: NotifiedAlertCursor,
        limit: usize,
    ) -> RedisResult<NotifiedAlertsView> {
        let now = self.partitions.first().client.server_time().await?;
        let NotifiedAlertCursor { slice, after } = from;
        let (mut raised, next) = self.raised(filter, slice.clone(), now).await?;
        let examined = raised.len();
        raised.retain(|alert| filter.takes(alert) && after.as_ref().is_none_or(|after| *after < place(alert)));
        let (mut listed, mut judged) = (Vec::new(), 0);
        while listed.len() < limit && judged < JUDGED_MAX.min(raised.len()) {
            let wanted = if filter.outcome.is_some() { JUDGED_AT_ONCE } else { limit - listed.len() };
            let part: Vec<&Alert> = raised[judged..].iter().take(wanted).collect();
            let AlertOutcomes { deliveries, .. } = self.outcomes(&part).await?;
            for (alert, deliveries) in part.into_iter().zip(deliveries) {
                if listed.len() == limit {
                    break;
                }
                judged += 1;
                if filter.outcome.is_none_or(|outcome| outcome == deliveries.outcome) {
                    listed.push(NotifiedAlertView { alert: alert.clone(), deliveries });
                }
            }
        }
        let next = match judged < raised.len() {
            true => Some(NotifiedAlertCursor { slice, after: judged.checked_sub(1).map(|last| place(&raised[last])) }),
            false => next.map(|slice| NotifiedAlertCursor { slice: Some(slice), after: None }),
        };
        let next = next.map(|next| Cursor(next).to_string());
        Ok(NotifiedAlertsView { alerts: listed, examined, next, read_at: Rfc3339(now) })
    }

    /// The alerts of a slice, newest first: of a subject, all.
    pub(super) async fn raised(
        &self,
        filter: &NotifiedAlertFilter,
        from: Option<RaisedPosition>,
        now: UnixMs,
    ) -> RedisResult<(Vec<Alert>, Option<RaisedPosition>)> {
        let mut periods = alerts::kept_periods(now);
        periods.retain(|period| filter.window.is_none_or(|window| window == period.window()));
        let (mut raised, next) = match &filter.subject {
            Some(subject) => {
                let of_subject = AlertFilter { subject: Some(subject.clone()), since: filter.since };
                let partition = self.partitions.partition_of(subject);
                let mut raised = alerts::of_periods(partition, &periods, &of_subject, now).await?;
                raised.retain(|alert| filter.metric.as_ref().is_none_or(|metric| *metric == alert.metric));
                (raised, None)
            }
            None => {
                let slice = raised_scan::read_slice(&self.partitions, &periods, filter.metric.as_ref(), from).await?;
                let RaisedSlice { alerts, next } = slice;
                (alerts.into_stated(now), next)
            }
        };
        self.plans.add_units(&mut raised);
        raised.sort_by_cached_key(place);
        Ok((raised, next))
    }
}

impl NotifiedAlertFilter {
    fn takes(&self, alert: &Alert) -> bool {
        self.percent.is_none_or(|percent| u64::from(percent.get()) <= alert.threshold_share())
            && self.since.is_none_or(|since| since <= alert.raised_at_ms)
    }
}
