//! The subjects that used most of a metric in a period, or are nearest to their limits.
//!
//! There is no index for this: it scans the counters of the period. A ranking by percent also reads the settings of
//! every subject.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use redis::{FromRedisValue, RedisResult, Value};
use schemars::JsonSchema;
use serde::Serialize;

use super::SubjectSettings;
use super::forecast::{ForecastView, LimitInUse, read_forecasts};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::counter_scan::{CounterScan, SubjectCount};
use crate::redis_client::{Partition, Partitions};
use crate::subjects::cache::{added_from, ask_added};
use crate::subjects::record::{NAME, PLAN, THRESHOLDS, limit_field};
use crate::subjects::{Plans, StoredLevel, StoredLevels};
use crate::types::alert::percent_of_limit;
use crate::types::text_form::{parsed_text_enum, text_enum};
use crate::types::timestamp::Rfc3339;
use crate::types::{
    BillingDay, DisplayName, LimitUnits, Metric, MetricFormat, Period, PeriodSpan, Subject, Threshold, UnixMs, Window,
};
use crate::zones::Zone;

/// Maximum number of subjects in a ranking.
pub const TOP_MAX: usize = 1000;
/// Number of subjects whose settings are read with one call.
pub(super) const SETTINGS_AT_ONCE: usize = 1000;

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Top")]
pub struct TopView {
    pub metric: Metric,
    #[serde(flatten)]
    pub format: MetricFormat,
    pub window: Window,
    pub period: Period,
    pub by: RankingOrder,
    pub read_at: Rfc3339,
    /// Number of subjects with a count in the period; under a subject, of those below it.
    pub examined: usize,
    /// The subjects, the first one first.
    #[schemars(length(max = TOP_MAX))]
    pub subjects: Vec<RankedSubjectView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RankedSubject")]
pub struct RankedSubjectView {
    pub subject: Subject,
    /// Its display name; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<DisplayName>,
    /// The plan, today.
    pub plan: String,
    pub used: u64,
    /// Units, with those of grants; null if there is no limit, or it can't be read.
    pub limit: Option<u64>,
    /// How much of the limit is used, percent; null without a limit, or if it is 0.
    #[schemars(range(min = 0))]
    pub used_percent: Option<f64>,
    /// Whether and when the limit will be reached; absent without a limit, and for a period that is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastView>,
    /// The thresholds of the limit, for bars.
    #[serde(skip)]
    pub thresholds: Vec<Threshold>,
}

text_enum! {
    /// What a ranking goes by.
    pub enum RankingOrder {
        /// Units used.
        Used = "used",
        /// Units used of the limit. Subjects without a limit are left out.
        Percent = "percent",
    }
}

parsed_text_enum!(RankingOrder, "an order");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopRequest {
    pub of: MetricPeriod,
    pub by: RankingOrder,
    /// Only subjects below this one.
    pub under: Option<Subject>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopPeriodError {
    #[error("{period} is a period of the window {}, not of {window}", period.window())]
    OtherWindow { period: Period, window: Window },
    #[error("the time of the server's clock, {0}, is in no period")]
    NoPeriod(UnixMs),
}

/// The requested period: the given one, or the present one of the window in UTC; a day by default.
pub fn period(window: Option<Window>, period: Option<Period>, now: UnixMs) -> Result<Period, TopPeriodError> {
    match (window, period) {
        (Some(window), Some(period)) if period.window() != window => {
            Err(TopPeriodError::OtherWindow { period, window })
        }
        (_, Some(period)) => Ok(period),
        (window, None) => {
            let window = window.unwrap_or(Window::Day);
            let current = PeriodSpan::containing(window, Zone::UTC, BillingDay::FIRST, now);
            current.map(|span| span.period).ok_or(TopPeriodError::NoPeriod(now))
        }
    }
}

/// Ranks at most `limit` subjects of all partitions. Reads every counter of the period, in slices.
pub async fn read(partitions: &Partitions, plans: &Plans, request: &TopRequest, limit: usize) -> RedisResult<TopView> {
    let TopRequest { of, by, under } = request;
    // Settings of subjects belong to no partition.
    let first = partitions.first();
    let read_at = Rfc3339(first.client.server_time().await?);
    let (mut ranking, mut examined) = (Ranking::new(limit.min(TOP_MAX)), 0);
    for partition in partitions.of_subject_or_all(under.as_ref()) {
        let mut scan = CounterScan::new(of.clone());
        while let Some(mut counts) = scan.next(partition).await? {
            if let Some(branch) = under {
                let separator = partition.keys.separator();
                counts.retain(|count| separator.is_below(count.subject.as_str(), branch.as_str()));
            }
            examined += counts.len();
            match by {
                RankingOrder::Used => counts.into_iter().for_each(|count| ranking.offer(count.used.into(), count)),
                RankingOrder::Percent => ranking.offer_by_percent(first, plans, of, &counts).await?,
            }
        }
    }
    let ranked = ranking.into_counts();
    let mut subjects = Vec::with_capacity(ranked.len());
    for part in ranked.chunks(SETTINGS_AT_ONCE) {
        let plans_and_limits = plans_and_limits(first, plans, of, part).await?;
        subjects.extend(part.iter().zip(plans_and_limits).map(|(count, of_subject)| {
            let SubjectCount { subject, used } = count.clone();
            let used_percent = of_subject.limit.and_then(|limit| percent_of_limit(used, limit));
            let PlanAndLimit { name, plan, limit, thresholds } = of_subject;
            RankedSubjectView { subject, name, plan, used, limit, used_percent, forecast: None, thresholds }
        }));
    }
    let MetricPeriod { metric, period } = of.clone();
    let limited = subjects.iter().filter_map(|RankedSubjectView { subject, used, limit, .. }| {
        Some(LimitInUse { subject, metric: &metric, period, used: *used, limit: (*limit)? })
    });
    let forecasts = read_forecasts(partitions, plans, &limited.collect::<Vec<_>>(), read_at.0).await?;
    for (of, forecast) in subjects.iter_mut().filter(|of| of.limit.is_some()).zip(forecasts) {
        of.forecast = forecast;
    }
    let format = plans.format_of(&metric);
    Ok(TopView { metric, format, window: period.window(), period, by: *by, read_at, examined, subjects })
}

/// The name, plan and limit of a subject.
pub(super) struct PlanAndLimit {
    pub(super) name: Option<DisplayName>,
    pub(super) plan: String,
    pub(super) limit: Option<u64>,
    pub(super) thresholds: Vec<Threshold>,
}

pub(super) async fn plans_and_limits(
    Partition { client, keys }: &Partition,
    plans: &Plans,
    of: &MetricPeriod,
    counts: &[SubjectCount],
) -> RedisResult<Vec<PlanAndLimit>> {
    let names = [NAME.to_owned(), PLAN.to_owned(), THRESHOLDS.to_owned(), limit_field(&of.metric)];
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for count in counts {
        pipeline.cmd("HMGET").arg(keys.subject(&count.subject)).arg(&names);
        ask_added(&mut pipeline, keys, &count.subject);
    }
    let replies: Vec<RedisResult<Value>> = client.pipe(&pipeline).await?;
    let mut replies = replies.into_iter();
    let of_subject = |count: &SubjectCount| {
        // A key of another type has no readable limit.
        let values = replies.next().and_then(|reply| Vec::<Option<Vec<u8>>>::from_redis_value(reply.ok()?).ok());
        let set = names.iter().zip(values.unwrap_or_default());
        let fields = set.filter_map(|(name, value)| Some((name.clone().into_bytes(), value?))).collect();
        let added = added_from(replies.next())?;
        // The levels above would only decide the zone.
        let stored = StoredLevels::of_subject(StoredLevel { subject: count.subject.clone(), fields, added });
        let settings = SubjectSettings::read(&stored, plans);
        let limit = settings.limit_of(&of.metric, of.period);
        let SubjectSettings { name, plan, thresholds, .. } = settings;
        Ok(PlanAndLimit { name, plan, limit: limit.map(LimitUnits::get), thresholds })
    };
    counts.iter().map(of_subject).collect()
}

/// The highest-ranked of the offered subjects.
struct Ranking {
    limit: usize,
    /// The highest score first, then by subject.
    ranked: BTreeSet<(Reverse<u128>, Subject)>,
    counts: HashMap<Subject, (u128, u64)>,
}

impl Ranking {
    fn new(limit: usize) -> Self {
        Self { limit, ranked: BTreeSet::new(), counts: HashMap::new() }
    }

    fn offer(&mut self, score: u128, SubjectCount { subject, used }: SubjectCount) {
        let is_full = self.ranked.len() >= self.limit;
        if is_full && self.ranked.last().is_none_or(|(Reverse(last), _)| *last > score) {
            return;
        }
        // A scan may return a subject twice.
        if let Some((before, _)) = self.counts.insert(subject.clone(), (score, used)) {
            self.ranked.remove(&(Reverse(before), subject.clone()));
        }
        self.ranked.insert((Reverse(score), subject));
        if self.ranked.len() > self.limit
            && let Some((_, last)) = self.ranked.pop_last()
        {
            self.counts.remove(&last);
        }
    }

    async fn offer_by_percent(
        &mut self,
        first: &Partition,
        plans: &Plans,
        of: &MetricPeriod,
        counts: &[SubjectCount],
    ) -> RedisResult<()> {
        for part in counts.chunks(SETTINGS_AT_ONCE) {
            for (count, of_subject) in part.iter().zip(plans_and_limits(first, plans, of, part).await?) {
                let Some(limit) = of_subject.limit.filter(|limit| *limit > 0) else { continue };
                // No floating point: the order of two subjects must not depend on rounding.
                self.offer((u128::from(count.used) << 64) / u128::from(limit), count.clone());
            }
        }
        Ok(())
    }

    fn into_counts(mut self) -> Vec<SubjectCount> {
        let mut count = |subject: Subject| {
            let (_, used) = self.counts.remove(&subject)?;
            Some(SubjectCount { subject, used })
        };
        self.ranked.into_iter().filter_map(|(_, subject)| count(subject)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A subject that is missing, or listed twice because its hash was resized meanwhile, makes the list worthless.
        #[test]
        fn a_ranking_is_the_beginning_of_all_in_order(
            offered in proptest::collection::vec((0_u64..20, 0_u64..20), 0..60), limit in 1_usize..8
        ) {
            let mut ranking = Ranking::new(limit);
            let mut all: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
            for (name, used) in offered {
                // A count only grows during the scan.
                let used = *all.entry(format!("{name:02}")).and_modify(|before| *before = used.max(*before)).or_insert(used);
                let subject = Subject::parse(format!("{name:02}").as_bytes()).expect("legal");
                ranking.offer(used.into(), SubjectCount { subject, used });
            }
            let mut expected: Vec<(Reverse<u64>, String)> = all.into_iter().map(|(name, used)| (Reverse(used), name)).collect();
            expected.sort();
            expected.truncate(limit);
            let listed: Vec<(Reverse<u64>, String)> =
                ranking.into_counts().into_iter().map(|count| (Reverse(count.used), count.subject.to_string())).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
