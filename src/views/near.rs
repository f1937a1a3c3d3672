//! The subjects that are near to a limit, or above it: those with alerts in periods that go on. Every subject above its
//! lowest threshold has a record of an alert, so counting updates no index for this list.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert_outcomes::AlertDeliveriesView;
use super::forecast::{ForecastView, LimitInUse, read_forecasts};
use super::top::{PlanAndLimit, SETTINGS_AT_ONCE, plans_and_limits};
use super::{Cursor, Observer, alerts};
use crate::forecast::ForecastState;
use crate::ledger::batch::MetricPeriod;
use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::raised_scan::{self, RaisedPosition};
use crate::subjects::Plans;
use crate::types::alert::used_percent;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, AlertId, AlertThreshold, DisplayName, Metric, MetricUnit, Percent, Period, Subject, UnixMs, Window, keys,
};

/// Number of limits in a slice, those with the highest share, that are ordered by their forecasts: more would make the
/// page slow.
const FORESEEN_MAX: usize = 500;
/// The share from which a limit without a forecast is as urgent as one that will probably be reached.
const ALMOST_USED_UP_PERMILLE: u64 = 950;

/// Subjects near to a limit, in one slice of the recorded alerts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "NearList")]
pub struct NearView {
    /// Within the slice: those without a forecast that have used 95 % or more; those that will probably reach their
    /// limit, by the expected time; the others below it, the highest percentage first; those that have reached it.
    /// Forecasts order the 500 highest percentages below a limit.
    pub subjects: Vec<NearSubjectView>,
    /// Number of recorded alerts in the slice.
    pub examined: usize,
    /// What `after` takes to get the following ones; null at the end. A subject whose usage grows meanwhile may have
    /// moved to an earlier part.
    pub next: Option<String>,
    pub read_at: Rfc3339,
}

/// What a subject has used of a limit.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "NearSubject")]
pub struct NearSubjectView {
    pub subject: Subject,
    /// Its display name; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<DisplayName>,
    /// The plan, today.
    pub plan: String,
    pub metric: Metric,
    #[serde(flatten)]
    pub unit: MetricUnit,
    pub window: Window,
    pub period: Period,
    pub used: u64,
    /// Units, with those of grants.
    #[schemars(range(min = 1))]
    pub limit: u64,
    /// Percent, rounded down to one decimal.
    #[schemars(range(min = 0))]
    pub used_percent: f64,
    /// When the count begins again; null for a total.
    pub resets_at: Option<Rfc3339>,
    /// Whether and when the limit will be reached; absent if it is, and in a window without forecasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastView>,
    /// The thresholds that were reached in this period, ascending.
    #[schemars(length(min = 1))]
    pub reached: Vec<ReachedThresholdView>,
}

/// The newest alert of a threshold, and who was notified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ReachedThreshold")]
pub struct ReachedThresholdView {
    pub alert_id: AlertId,
    pub threshold: AlertThreshold,
    pub raised_at: Rfc3339,
    #[serde(flatten)]
    pub deliveries: AlertDeliveriesView,
}

/// Which subjects are listed.
#[derive(Debug, Clone, Default)]
pub struct NearFilter {
    pub metric: Option<Metric>,
    pub window: Option<Window>,
    /// Only those that have used at least this part of the limit.
    pub percent: Option<Percent>,
}

/// The position of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NearCursor {
    slice: Option<RaisedPosition>,
    after: Option<Place>,
}

/// The order within a slice: by urgency, then by name.
type Place = (Urgency, Subject, Metric, Period);

/// The expected time of reaching the limit, and permille of the limit, highest first.
type Urgency = (NearState, UnixMs, Reverse<u64>);

/// In the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum NearState {
    /// Little is left of its limit, and nobody knows when it is reached.
    AlmostUsedUp,
    /// It will probably reach its limit.
    RunsOut,
    /// It is below its limit.
    Below,
    /// It has reached its limit.
    UsedUp,
}

/// A subject and a limit.
#[derive(Debug)]
pub struct NearRow {
    pub count: SubjectCount,
    of: MetricPeriod,
    name: Option<DisplayName>,
    plan: String,
    limit: u64,
    /// Ascending by the count that reaches them; at least one.
    alerts: Vec<Alert>,
    forecast: Option<ForecastView>,
}

/// A slice of the records.
#[derive(Debug)]
pub struct NearSlice {
    /// In the order of the list.
    pub rows: Vec<NearRow>,
    pub examined: usize,
    pub next: Option<RaisedPosition>,
}

impl NearRow {
    pub fn permille(&self) -> u64 {
        permille(self.count.used, self.limit)
    }

    pub fn is_below(&self) -> bool {
        self.count.used < self.limit
    }

    fn place(&self) -> Place {
        let urgency = urgency(self.count.used, self.limit, self.forecast.as_ref());
        (urgency, self.count.subject.clone(), self.of.metric.clone(), self.of.period)
    }
}

fn permille(used: u64, limit: u64) -> u64 {
    u64::try_from(u128::from(used) * 1000 / u128::from(limit)).unwrap_or(u64::MAX)
}

fn urgency(used: u64, limit: u64, forecast: Option<&ForecastView>) -> Urgency {
    let permille = permille(used, limit);
    let state = match forecast.map_or(ForecastState::Unknown, |of| of.state) {
        _ if limit <= used => NearState::UsedUp,
        ForecastState::Possible | ForecastState::Likely => NearState::RunsOut,
        ForecastState::Unknown if permille >= ALMOST_USED_UP_PERMILLE => NearState::AlmostUsedUp,
        _ => NearState::Below,
    };
    let expected_at = forecast.and_then(|of| of.expected_at).filter(|_| state == NearState::RunsOut);
    (state, expected_at.map_or(UnixMs::MAX, |at| at.0), Reverse(permille))
}

/// Brings the rows of several slices into the order of one.
pub fn sort(subjects: &mut [NearSubjectView]) {
    subjects.sort_by_key(|row| urgency(row.used, row.limit, row.forecast.as_ref()));
}

impl Observer {
    /// Reads at most `limit` subjects. A page may be shorter, or empty, although more follow.
    pub async fn near(&self, filter: &NearFilter, from: NearCursor, limit: usize) -> RedisResult<NearView> {
        let now = self.partitions.first().client.server_time().await?;
        let NearCursor { slice, after } = from;
        let NearSlice { mut rows, examined, next } = self.near_slice(filter, slice.clone(), now).await?;
        rows.retain(|row| after.as_ref().is_none_or(|after| *after < row.place()));
        let next = match rows.get(limit) {
            Some(_) => Some(NearCursor { slice, after: limit.checked_sub(1).map(|last| rows[last].place()) }),
            None => next.map(|slice| NearCursor { slice: Some(slice), after: None }),
        };
        rows.truncate(limit);
        self.foresee(&mut rows, now).await?;
        let subjects = self.near_views(&rows).await?;
        let next = next.map(|next| Cursor(next).to_string());
        Ok(NearView { subjects, examined, next, read_at: Rfc3339(now) })
    }

    /// The rows, with who was notified.
    pub(super) async fn near_views(&self, rows: &[NearRow]) -> RedisResult<Vec<NearSubjectView>> {
        let raised: Vec<&Alert> = rows.iter().flat_map(|row| &row.alerts).collect();
        let mut deliveries = self.outcomes(&raised).await?.deliveries.into_iter();
        Ok(rows.iter().map(|row| NearSubjectView::new(row, &self.plans, deliveries.by_ref())).collect())
    }

    /// Adds the missing forecasts of limits that are not reached.
    async fn foresee(&self, rows: &mut [NearRow], now: UnixMs) -> RedisResult<()> {
        let is_missing = |row: &&mut NearRow| row.is_below() && row.forecast.is_none();
        let mut missing: Vec<&mut NearRow> = rows.iter_mut().filter(is_missing).collect();
        let limits = missing.iter().map(|row| LimitInUse {
            subject: &row.count.subject,
            metric: &row.of.metric,
            period: row.of.period,
            used: row.count.used,
            limit: row.limit,
        });
        let forecasts = read_forecasts(&self.partitions, &self.plans, &limits.collect::<Vec<_>>(), now).await?;
        missing.iter_mut().zip(forecasts).for_each(|(row, forecast)| row.forecast = forecast);
        Ok(())
    }

    /// Reads a slice of the records, with the counts and limits of now, and the forecasts of the highest shares.
    pub async fn near_slice(
        &self,
        filter: &NearFilter,
        from: Option<RaisedPosition>,
        now: UnixMs,
    ) -> RedisResult<NearSlice> {
        let mut periods = alerts::open_periods(now);
        periods.retain(|period| filter.window.is_none_or(|window| window == period.window()));
        let slice = raised_scan::read_slice(&self.partitions, &periods, filter.metric.as_ref(), from).await?;
        let examined = slice.alerts.records.len();
        let mut reached: BTreeMap<MetricPeriod, BTreeMap<Subject, Vec<Alert>>> = BTreeMap::new();
        let raised = slice.alerts.records.into_iter().map(|stored| stored.record.alert);
        for alert in raised.filter(|alert| alert.resets_at.is_none_or(|end| now < end.0)) {
            let of = MetricPeriod { metric: alert.metric.clone(), period: alert.period };
            reached.entry(of).or_default().entry(alert.subject.clone()).or_default().push(alert);
        }
        let mut rows = Vec::new();
        for (of, subjects) in reached {
            rows.extend(self.near_of(of, subjects).await?);
        }
        rows.retain(|row| filter.percent.is_none_or(|percent| row.permille() >= u64::from(percent.get()) * 10));
        rows.sort_by_cached_key(NearRow::place);
        let foreseen = rows.len().min(FORESEEN_MAX);
        self.foresee(&mut rows[..foreseen], now).await?;
        rows.sort_by_cached_key(NearRow::place);
        Ok(NearSlice { rows, examined, next: slice.next })
    }

    /// Adds count and limit. Leaves out subjects whose limit was removed meanwhile.
    async fn near_of(&self, of: MetricPeriod, subjects: BTreeMap<Subject, Vec<Alert>>) -> RedisResult<Vec<NearRow>> {
        let first = self.partitions.first();
        let mut pipeline = redis::pipe();
        for subject in subjects.keys() {
            let keys = &self.partitions.partition_of(subject).keys;
            let key = keys.usage(&of.metric, of.period, keys::bucket(subject.as_str()));
            pipeline.cmd("HGET").arg(key).arg(subject.as_str());
        }
        let used: Vec<Option<u64>> = first.client.pipe(&pipeline).await?;
        let counts: Vec<SubjectCount> = subjects
            .keys()
            .zip(used)
            .map(|(subject, used)| SubjectCount { subject: subject.clone(), used: used.unwrap_or(0) })
            .collect();
        let mut settings = Vec::with_capacity(counts.len());
        for part in counts.chunks(SETTINGS_AT_ONCE) {
            settings.extend(plans_and_limits(first, &self.plans, &of, part).await?);
        }
        let row = |((mut alerts, count), PlanAndLimit { name, plan, limit, .. }): (
            (Vec<Alert>, SubjectCount),
            PlanAndLimit,
        )| {
            let limit = limit.filter(|limit| *limit > 0)?;
            alerts.sort_by_key(|alert| (alert.threshold_units, alert.threshold));
            Some(NearRow { count, of: of.clone(), name, plan, limit, alerts, forecast: None })
        };
        Ok(subjects.into_values().zip(counts).zip(settings).filter_map(row).collect())
    }
}

impl NearSubjectView {
    /// `deliveries` begins with those of the row's alerts.
    fn new(row: &NearRow, plans: &Plans, deliveries: impl Iterator<Item = AlertDeliveriesView>) -> Self {
        let reached = row.alerts.iter().zip(deliveries).map(|(alert, deliveries)| ReachedThresholdView {
            alert_id: alert.id.clone(),
            threshold: alert.threshold.into(),
            raised_at: Rfc3339(alert.raised_at_ms),
            deliveries,
        });
        Self {
            subject: row.count.subject.clone(),
            name: row.name.clone(),
            plan: row.plan.clone(),
            metric: row.of.metric.clone(),
            unit: plans.format_of(&row.of.metric).unit(),
            window: row.of.period.window(),
            period: row.of.period,
            used: row.count.used,
            limit: row.limit,
            used_percent: used_percent(row.count.used, row.limit),
            resets_at: row.alerts.last().and_then(|alert| alert.resets_at),
            forecast: row.forecast.clone(),
            reached: reached.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has run out already would hide who runs out next.
    #[test]
    fn those_that_run_out_first_come_first() {
        let foreseen = |state, at: Option<i64>| Some(ForecastView::sample(state, at.map(UnixMs).map(Rfc3339)));
        let in_order = [
            ("almost", 951, None),
            ("soon", 400, foreseen(ForecastState::Possible, Some(1))),
            ("later", 700, foreseen(ForecastState::Likely, Some(2))),
            ("in this period", 800, foreseen(ForecastState::Likely, None)),
            ("unlikely", 999, foreseen(ForecastState::Unlikely, None)),
            ("no forecast", 949, None),
            ("most", 2_000, None),
            ("used up", 1_000, foreseen(ForecastState::Reached, None)),
        ];
        let mut sorted: Vec<_> = in_order.iter().rev().collect();
        sorted.sort_by_key(|(_, used, forecast)| urgency(*used, 1_000, forecast.as_ref()));
        let names = |of: &[&(&'static str, u64, Option<ForecastView>)]| of.iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(names(&sorted), names(&in_order.iter().collect::<Vec<_>>()));
    }
}
