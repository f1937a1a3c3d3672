//! Whether and when a subject will reach its limits: what is shown beside its usage.

use std::collections::BTreeMap;

use chrono::TimeZone as _;
use futures_util::future::try_join_all;
use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::SubjectSettings;
use crate::forecast::window::LimitInPeriod;
use crate::forecast::{ForecastState, UsageProfile, WindowForecast};
use crate::ledger::{daily_usage, usage_profiles};
use crate::redis_client::{Partition, Partitions};
use crate::subjects::{Plans, StoredLevels};
use crate::types::timestamp::Rfc3339;
use crate::types::usage_notice::times_usual;
use crate::types::{Day, DaySpan, Metric, MetricFormat, Period, PeriodSpan, Subject, UnixMs};
use crate::zones::Zone;

/// Whether and when a limit will be reached in its period.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Forecast")]
pub struct ForecastView {
    /// Whether it will be reached, in a word.
    pub state: ForecastState,
    /// Of reaching the limit; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub probability: Option<f64>,
    /// When it will be reached, rounded to ten minutes; only if possible or likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_at: Option<Rfc3339>,
    /// In nine of ten cases it is reached later than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_at: Option<Rfc3339>,
    /// In nine of ten cases it is reached earlier than this; absent if that is after the period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_at: Option<Rfc3339>,
    /// Usage as a multiple of the usual by now.
    #[serde(skip)]
    times_usual: f64,
    #[serde(skip)]
    zone: Zone,
    #[serde(skip)]
    period: Period,
}

/// What is stored of a subject's usage in a metric.
#[derive(Debug, Clone, Default)]
pub struct KnownUsage {
    /// What is usual.
    pub profile: Option<UsageProfile>,
    /// Units of each day, with today.
    pub days: BTreeMap<Day, u64>,
}

impl KnownUsage {
    /// Nothing is known.
    pub const NOTHING: Self = Self { profile: None, days: BTreeMap::new() };
}

/// Reads what is known of subjects of a partition in metrics, with two requests.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn read_known(
    partition: &Partition,
    of: &[(&Subject, &Metric)],
    now: UnixMs,
) -> RedisResult<Vec<KnownUsage>> {
    let profiles = usage_profiles::read_each(partition, of).await?;
    let days = daily_usage::read_each(partition, of, now).await?;
    let known = profiles.into_iter().zip(days);
    Ok(known.map(|(profile, days)| KnownUsage { profile: profile.read(), days }).collect())
}

/// A limit, and how much of it is used.
#[derive(Debug)]
pub struct LimitInUse<'a> {
    /// Whose limit.
    pub subject: &'a Subject,
    /// Of which metric.
    pub metric: &'a Metric,
    /// In which period.
    pub period: Period,
    /// Units.
    pub used: u64,
    /// Units.
    pub limit: u64,
}

/// The forecasts of limits in periods that `now` is in, each in the zone of its subject, in their order. Three requests
/// for each partition that has one of the subjects.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn read_forecasts(
    partitions: &Partitions,
    plans: &Plans,
    of: &[LimitInUse<'_>],
    now: UnixMs,
) -> RedisResult<Vec<Option<ForecastView>>> {
    let in_partition = |partition: &Partition| {
        let is_here = |of: &LimitInUse| {
            of.period.window().has_forecast() && partitions.partition_of(of.subject).number() == partition.number()
        };
        of.iter().enumerate().filter(|(_, of)| is_here(of)).unzip()
    };
    let reading = partitions.iter().map(|partition| (partition, in_partition(partition)));
    let reading = reading.map(|(partition, (at, here)): (_, (Vec<usize>, Vec<&LimitInUse<'_>>))| async move {
        let forecasts = if here.is_empty() { Vec::new() } else { read_in(partition, plans, &here, now).await? };
        RedisResult::Ok(at.into_iter().zip(forecasts))
    });
    let mut forecasts: Vec<Option<ForecastView>> = of.iter().map(|_| None).collect();
    for (at, forecast) in try_join_all(reading).await?.into_iter().flatten() {
        forecasts[at] = forecast;
    }
    Ok(forecasts)
}

/// The forecasts of limits in one partition.
async fn read_in(
    partition: &Partition,
    plans: &Plans,
    of: &[&LimitInUse<'_>],
    now: UnixMs,
) -> RedisResult<Vec<Option<ForecastView>>> {
    let subjects: Vec<&Subject> = of.iter().map(|of| of.subject).collect();
    let stored = StoredLevels::read_each(&partition.client, &partition.keys, &subjects).await?;
    let asked: Vec<(&Subject, &Metric)> = of.iter().map(|of| (of.subject, of.metric)).collect();
    let known = read_known(partition, &asked, now).await?;
    let forecast = |((of, stored), known): ((&&LimitInUse<'_>, RedisResult<StoredLevels>), KnownUsage)| {
        let SubjectSettings { zone, billing, .. } = SubjectSettings::read(&stored.ok()?, plans);
        let span = PeriodSpan::containing(of.period.window(), zone, billing, now);
        let span = span.filter(|span| span.period == of.period)?;
        ForecastView::new(&known, zone, span, now, of.used, of.limit)
    };
    Ok(of.iter().zip(stored).zip(known).map(forecast).collect())
}

impl ForecastView {
    /// The forecast of a limit; `None` without a limit, or for a period that `now` is not in.
    pub fn new(known: &KnownUsage, zone: Zone, span: PeriodSpan, now: UnixMs, used: u64, limit: u64) -> Option<Self> {
        if !span.contains(now) {
            return None;
        }
        let today = DaySpan::containing(zone, now).map(|today| today.day);
        let used_today = today.and_then(|today| known.days.get(&today)).copied().unwrap_or(0);
        let days = &known.days;
        let of = LimitInPeriod { span, zone, now, used, used_today, limit, days, likely_from: None };
        let WindowForecast { state, probability, expected_at, earliest_at, latest_at, usual_by_now } =
            WindowForecast::new(known.profile.as_ref(), of);
        let probability = probability.map(|probability| (probability * 100.0).round() / 100.0);
        let [expected_at, earliest_at, latest_at] = [expected_at, earliest_at, latest_at].map(|at| at.map(Rfc3339));
        let times_usual = times_usual(used, usual_by_now);
        Some(Self { state, probability, expected_at, earliest_at, latest_at, times_usual, zone, period: span.period })
    }

    /// A sample for templates: with these times, or without any.
    pub fn sample(state: ForecastState, at: Option<Rfc3339>) -> Self {
        let (zone, period) = (Zone::UTC, Period::ALL_TIME);
        Self {
            state,
            probability: None,
            expected_at: at,
            earliest_at: at,
            latest_at: at,
            times_usual: 1.0,
            zone,
            period,
        }
    }

    /// A sentence for people, without a full stop; `None` unless it is possible or likely.
    pub fn sentence(&self, subject: &Subject, metric: &Metric, format: &MetricFormat, limit: u64) -> Option<String> {
        let verb = match self.state {
            ForecastState::Possible => ["may reach", "may reach"],
            ForecastState::Likely => ["reaches", "probably reaches"],
            _ => return None,
        };
        let (limit, metric, window) = (format.amount(limit), format.name_of(metric), self.period.window());
        let usual = format!("by now it has used {:.1} times its usual", self.times_usual);
        Some(match (self.expected_at, self.earliest_at, self.latest_at) {
            (Some(at), Some(earliest), Some(latest)) => {
                let range = format!(" (likely between {} and {})", self.clock(earliest), self.clock(latest));
                let range = if earliest == latest { "" } else { &range };
                let at = self.clock(at);
                format!(
                    "At this pace {subject} {} its {limit} {metric} a {window} at about {at}{range}: {usual}",
                    verb[0]
                )
            }
            (_, Some(earliest), _) => format!(
                "{subject} {} its {limit} {metric} in this {window}, not before {}: {usual}",
                verb[1],
                self.clock(earliest)
            ),
            _ => format!("{subject} {} its {limit} {metric} in this {window}: {usual}", verb[1]),
        })
    }

    /// The state in a word, and when, in UTC.
    pub fn summary(&self) -> String {
        let at = self.expected_at.map(|at| format!(" {}", Self { zone: Zone::UTC, ..self.clone() }.clock(at)));
        format!("{}{}", self.state.as_str(), at.unwrap_or_default())
    }

    /// A time in the subject's zone, with its date if the period has several.
    fn clock(&self, Rfc3339(at): Rfc3339) -> String {
        let form = if self.period.day().is_some() { "%H:%M" } else { "%Y-%m-%d %H:%M" };
        let Some(utc) = at.to_utc() else { return at.to_string() };
        self.zone.from_utc_datetime(&utc.naive_utc()).format(form).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ranking would compare times of different zones.
    #[test]
    fn a_summary_is_in_utc() {
        let at = Rfc3339(UnixMs(1_795_250_400_000));
        let (zone, period) = ("Europe/Paris".parse().expect("a zone"), Day::in_utc(at.0).expect("a day").into());
        let forecast = ForecastView { zone, period, ..ForecastView::sample(ForecastState::Likely, Some(at)) };
        assert_eq!((forecast.clock(at), forecast.summary()), ("09:40".to_owned(), "likely 08:40".to_owned()));
    }
}
