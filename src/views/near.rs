//! The subjects that are near to a limit, or above it: those with alerts in periods that go on. Every subject above its
//! lowest threshold has a record of an alert, so counting updates no index for this list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::alert_outcomes::AlertDeliveriesView;
use super::forecast::{ForecastView, LimitInUse, read_forecasts};
use super::near_ranking::{NearCursor, NearFilter, NearRanking, NearRow, NearSlice};
use super::top::{PlanAndLimit, SETTINGS_AT_ONCE, plans_and_limits};
use super::{Cursor, Observer, alerts};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::raised_scan::{self, RaisedPosition};
use crate::outbox::{CountingLag, counting_lag};
use crate::subjects::Plans;
use crate::types::alert::used_percent;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, AlertId, AlertThreshold, DisplayName, Metric, MetricUnit, Period, Subject, UnixMs, Window, keys,
};

/// Number of limits in a slice, those with the highest share, that are ordered by their forecasts: more would make the
/// page slow.
const FORESEEN_MAX: usize = 500;
/// Number of rows whose deliveries are read at once.
const NOTIFIED_AT_ONCE: usize = 5_000;

/// Subjects near to a limit, ranked. A request for the beginning examines 10,000 recorded alerts and continues where
/// the one before stopped, until all are examined. The requests after that list this ranking while they make a newer
/// one.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "NearList")]
pub struct NearView {
    /// Of what is examined: those without a forecast that have used 95 % or more; those that will probably reach their
    /// limit, by the expected time; the others below it, the highest percentage first; those that have reached it. Of
    /// the last and of all before it, at most 5,000. Forecasts order the 500 highest percentages in 5,000 alerts.
    pub subjects: Vec<NearSubjectView>,
    /// Number of recorded alerts that are examined.
    pub examined: usize,
    /// Whether these are all.
    pub is_complete: bool,
    /// Whether subjects are left out because there are more than 5,000 of a kind: a filter shows others.
    pub is_cut: bool,
    /// What `after` takes to get the following ones; null at the end. A subject whose usage grows meanwhile may have
    /// moved to an earlier part.
    pub next: Option<String>,
    /// When the first of them was read; their usage and limits are at least as new.
    pub ranked_at: Rfc3339,
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

/// Which part of the list is read.
#[derive(Debug)]
pub struct NearRequest {
    /// The beginning without it.
    pub after: Option<NearCursor>,
    pub limit: usize,
    pub reading: NearReading,
}

/// How much of the records a request for the beginning examines, in slices of some 5,000.
#[derive(Debug, Clone, Copy)]
pub struct NearReading {
    /// Maximum number of slices while the ranking is incomplete.
    pub slices: usize,
    /// Whether it waits while other requests examine some. Otherwise it lists what they have found.
    pub waits: bool,
}

impl NearReading {
    /// For a page.
    pub const SHORT: Self = Self { slices: 2, waits: false };
    /// For a file or a command, as much as ten pages: some 100,000 alerts, in a second.
    pub const LONG: Self = Self { slices: 20, waits: true };
}

impl Observer {
    /// Reads subjects of the ranking. A request for its beginning first examines more of the records.
    pub async fn near(&self, filter: &NearFilter, page: NearRequest) -> RedisResult<NearView> {
        let now = self.partitions.first().client.server_time().await?;
        let NearRequest { after, limit, reading } = page;
        let ranking = self.ranking(filter, reading, after.is_none(), now).await?;
        let NearRanking { examined, is_complete, is_cut, began, .. } = *ranking;
        let after = after.map(|NearCursor(place)| place);
        let mut rows: Vec<NearRow> = ranking.rows_after(after.as_ref(), now).take(limit + 1).cloned().collect();
        drop(ranking);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|last| Cursor(NearCursor(last.place())).to_string());
        self.retain_counted(&mut rows).await?;
        self.foresee(&mut rows, now).await?;
        let subjects = self.near_views(&rows).await?;
        let (ranked_at, read_at) = (Rfc3339(began), Rfc3339(now));
        Ok(NearView { subjects, examined, is_complete, is_cut, next, ranked_at, read_at })
    }

    /// The best ranking that is known. For its beginning it first examines more slices of the records: until all are
    /// examined, then one at a time for a newer ranking.
    pub(super) async fn ranking(
        &self,
        filter: &NearFilter,
        reading: NearReading,
        is_beginning: bool,
        now: UnixMs,
    ) -> RedisResult<Arc<NearRanking>> {
        let shared = self.near.get(filter);
        let slices = if is_beginning || shared.best().examined == 0 { reading.slices } else { 0 };
        let lag = if slices > 0 { counting_lag::of_any(&self.partitions).await? } else { CountingLag::None };
        for _ in 0..slices {
            let best = shared.best();
            let is_enough = best.is_complete || best.examined > 0 && !reading.waits;
            let mut walk = match shared.walk.try_lock() {
                Ok(walk) => walk,
                Err(_) if is_enough => break,
                Err(_) => shared.walk.lock().await,
            };
            if !walk.is_due(lag) {
                break;
            }
            let began = Instant::now();
            let slice = self.near_slice(filter, walk.position(), now).await?;
            walk.add(slice, began.elapsed(), now);
            shared.publish(&walk);
            if shared.best().is_complete {
                break;
            }
        }
        Ok(shared.best())
    }

    /// Leaves out subjects that were erased since they were ranked.
    pub(super) async fn retain_counted(&self, rows: &mut Vec<NearRow>) -> RedisResult<()> {
        let used = self.used(rows.iter().map(|row| (&row.of, &row.count.subject))).await?;
        let mut used = used.into_iter();
        rows.retain(|_| used.next().is_some_and(|is_there| is_there.is_some()));
        Ok(())
    }

    /// The counters, those that are there.
    async fn used(&self, counters: impl Iterator<Item = (&MetricPeriod, &Subject)>) -> RedisResult<Vec<Option<u64>>> {
        let mut pipeline = redis::pipe();
        for (of, subject) in counters {
            let keys = &self.partitions.partition_of(subject).keys;
            let key = keys.usage(&of.metric, of.period, keys::bucket(subject.as_str()));
            pipeline.cmd("HGET").arg(key).arg(subject.as_str());
        }
        self.partitions.first().client.pipe(&pipeline).await
    }

    /// The rows, with who was notified.
    pub(super) async fn near_views(&self, rows: &[NearRow]) -> RedisResult<Vec<NearSubjectView>> {
        let mut views = Vec::with_capacity(rows.len());
        for part in rows.chunks(NOTIFIED_AT_ONCE) {
            let raised: Vec<&Alert> = part.iter().flat_map(|row| &row.alerts).collect();
            let mut deliveries = self.outcomes(&raised).await?.deliveries.into_iter();
            views.extend(part.iter().map(|row| NearSubjectView::new(row, &self.plans, deliveries.by_ref())));
        }
        Ok(views)
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
    async fn near_slice(
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
        Ok(NearSlice { rows, examined, next: slice.next })
    }

    /// Adds count and limit. Leaves out subjects whose limit was removed meanwhile.
    async fn near_of(&self, of: MetricPeriod, subjects: BTreeMap<Subject, Vec<Alert>>) -> RedisResult<Vec<NearRow>> {
        let first = self.partitions.first();
        let used = self.used(subjects.keys().map(|subject| (&of, subject))).await?;
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
