//! One pass over the counters of the days that were in progress since the pass before.
//!
//! A subject whose count has not changed costs two reads. A pass may stop anywhere and begin again: profiles store the
//! counts that they have seen, and the mark that there was usage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::RedisResult;

use super::notices::{ActiveSubject, raise_due};
use super::silence::{SilenceSearch, counts_since};
use crate::forecast::window::hour_of;
use crate::forecast::{DayCount, UsageProfile};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::counter_scan::{CounterScan, SubjectCount};
use crate::ledger::daily_usage::archived_metrics;
use crate::ledger::query::metrics_of;
use crate::ledger::usage_profiles::{self, FoundProfile, PassMark, ProfilesReply};
use crate::redis_client::Partition;
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::{Day, DaySpan, Metric, Period, Subject, UnixMs, keys};

/// Hours from UTC of the westernmost and the easternmost zone.
const WEST_MS: i64 = 12 * 3_600_000;
const EAST_MS: i64 = 14 * 3_600_000;
/// Maximum number of dates of a pass: counters of earlier ones have expired.
const DAYS_MAX: usize = 16;
/// Without a pass before, what is counted was used in this time.
const FIRST_MS: i64 = 3_600_000;
/// What is used within this time after midnight closes no day: events of the day before may come until the next pass.
const SETTLED_MS: i64 = 1_800_000;
/// In each pass one of this number of buckets is searched for subjects that used nothing for a long time.
const IDLE_BUCKETS: i64 = 24;

/// A pass in progress.
#[derive(Debug)]
pub struct HourlyPass<'a> {
    partition: &'a Partition,
    plans: &'a Plans,
    /// Server time at which it began.
    began: UnixMs,
    /// Server time at which the pass before began.
    since: UnixMs,
    /// The time from which silence of a subject counts.
    silence_counts_since: UnixMs,
    /// Whether something was used since the pass before. This one, or one that was cut off, has found it.
    has_usage: bool,
    /// The counters of days; the last ones are read next.
    left: Vec<MetricPeriod>,
    scan: Option<CounterScan>,
    /// The buckets that are still to be searched for idle and silent subjects.
    idle: Vec<(Metric, u8)>,
}

/// What a slice of a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassSlice {
    /// Number of counters that were read.
    pub counters: usize,
    /// Number of profiles that were stored.
    pub stored: usize,
    /// Number of profiles that could not be read, and begin anew.
    pub unreadable: usize,
    /// Number of notices that were raised.
    pub notices: usize,
}

/// A subject whose count has changed.
struct Observed<'a> {
    subject: &'a Subject,
    settings: Arc<Profile>,
    profile: UsageProfile,
    used_today: u64,
    /// Whether the day is today.
    is_current: bool,
}

impl<'a> HourlyPass<'a> {
    /// Begins a pass at this server time, after one that began at the time of the mark.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn begin(
        partition: &'a Partition,
        plans: &'a Plans,
        began: UnixMs,
        mark: PassMark,
    ) -> RedisResult<HourlyPass<'a>> {
        let since = mark.passed.unwrap_or(began.plus(-FIRST_MS)).min(began);
        let periods: Vec<Period> = days_between(since, began).into_iter().map(Period::from).collect();
        let mut left = metrics_of(&partition.client, &partition.keys, &periods).await?;
        let bucket_of_hour = began.0.div_euclid(3_600_000).rem_euclid(IDLE_BUCKETS);
        let is_due = |bucket: &u8| i64::from(*bucket) % IDLE_BUCKETS == bucket_of_hour;
        let mut metrics: BTreeSet<Metric> = left.iter().map(|of| of.metric.clone()).collect();
        let tells_silence = plans.longest_silence().is_some();
        if tells_silence {
            metrics.extend(archived_metrics(&partition.client, &partition.keys).await?);
        }
        let buckets = || (0..=u8::MAX).filter(|bucket| tells_silence || is_due(bucket));
        let idle = metrics.iter().flat_map(|metric| buckets().map(|bucket| (metric.clone(), bucket))).collect();
        let silence_counts_since = counts_since(mark, began);
        // A day must be learned before the next one begins.
        left.sort_by(|a, b| (b.period, &b.metric).cmp(&(a.period, &a.metric)));
        let (scan, has_usage) = (None, mark.used > mark.passed);
        Ok(Self { partition, plans, began, since, silence_counts_since, has_usage, left, scan, idle })
    }

    /// Takes the next counters; `None` at the end of the pass. Bounded work.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn next(&mut self) -> RedisResult<Option<PassSlice>> {
        let Some(of) = self.left.last().cloned() else { return self.search_idle().await };
        // Before the counters: an erasure after it makes the write stale.
        let mark = usage_profiles::mark(self.partition).await?;
        let scan = self.scan.get_or_insert_with(|| CounterScan::new(of.clone()));
        let Some(counts) = scan.next(self.partition).await? else {
            self.left.pop();
            self.scan = None;
            return Ok(Some(PassSlice::default()));
        };
        let mut buckets: BTreeMap<u8, Vec<SubjectCount>> = BTreeMap::new();
        let mut slice = PassSlice { counters: counts.len(), ..PassSlice::default() };
        for count in counts {
            buckets.entry(keys::bucket(count.subject.as_str())).or_default().push(count);
        }
        let Some(day) = of.period.day() else { return Ok(Some(slice)) };
        for (bucket, counts) in buckets {
            let observed = self.observe(&of.metric, bucket, day, &counts, &mut slice).await?;
            // Before the profiles: a pass that is cut off here judges the same counts again.
            let active = observed.iter().filter(|of| of.is_current).map(|observed| {
                let Observed { subject, settings, profile, used_today, .. } = observed;
                ActiveSubject { subject, metric: &of.metric, settings, profile, used_today: *used_today }
            });
            let active: Vec<ActiveSubject> = active.collect();
            slice.notices += raise_due(self.partition, mark.erasure_epoch, &active, self.began).await?;
            if !observed.is_empty() {
                // After an erasure the next pass looks again.
                let profiles: Vec<(&Subject, &UsageProfile)> =
                    observed.iter().map(|of| (of.subject, &of.profile)).collect();
                let mark = PassMark { used: Some(self.began), resumed: Some(self.silence_counts_since), ..mark };
                usage_profiles::write(self.partition, mark, &of.metric, bucket, &profiles).await?;
            }
            slice.stored += observed.len();
            self.has_usage |= !observed.is_empty();
        }
        Ok(Some(slice))
    }

    /// The changed profiles of a bucket, given the counts of a day.
    async fn observe<'c>(
        &self,
        metric: &Metric,
        bucket: u8,
        day: Day,
        counts: &'c [SubjectCount],
        slice: &mut PassSlice,
    ) -> RedisResult<Vec<Observed<'c>>> {
        let Ok(number) = i32::try_from(day.since_epoch()) else { return Ok(Vec::new()) };
        let subjects: Vec<&Subject> = counts.iter().map(|count| &count.subject).collect();
        let found = usage_profiles::read(self.partition, metric, bucket, &subjects).await?;
        let is_new = |(count, found): &(&SubjectCount, FoundProfile)| match found {
            FoundProfile::Read(profile) => !profile.knows(number, count.used),
            FoundProfile::Missing | FoundProfile::Unreadable => true,
        };
        let changed: Vec<_> = counts.iter().zip(found).filter(is_new).collect();
        let subjects: Vec<&Subject> = changed.iter().map(|(count, _)| &count.subject).collect();
        let settings = StoredLevels::read_each(&self.partition.client, &self.partition.keys, &subjects).await?;
        let observed = changed.into_iter().zip(settings).filter_map(|((count, found), stored)| {
            // Nobody knows the day of a subject whose settings can't be read.
            let settings = stored.ok()?.own_profile(self.plans);
            let span = DaySpan::for_day(settings.zone(), day)?;
            let is_unreadable = found == FoundProfile::Unreadable;
            let profile = self.observed(found.read(), &span, number, count.used)?;
            slice.unreadable += usize::from(is_unreadable);
            let is_current = span.start <= self.began && self.began < span.end && profile.today() == number;
            Some(Observed { subject: &count.subject, settings, profile, used_today: count.used, is_current })
        });
        Ok(observed.collect())
    }

    /// The profile after the count of a day; `None` if it must not be changed.
    fn observed(&self, profile: Option<UsageProfile>, span: &DaySpan, day: i32, units: u64) -> Option<UsageProfile> {
        // It is over and learned: this pass repeats one that was cut off.
        if profile.as_ref().is_some_and(|profile| day < profile.today()) && span.end <= self.began {
            return None;
        }
        let is_today = profile.as_ref().is_some_and(|profile| profile.today() == day);
        let begins_at = if profile.is_some() { span.start.plus(SETTLED_MS) } else { span.start };
        if self.began < begins_at || self.since >= span.end && !is_today {
            return None;
        }
        let mut profile = profile.unwrap_or_else(|| UsageProfile::beginning(day));
        let (since, hour) = (hour_of(span, self.since), hour_of(span, self.began));
        profile.observe(DayCount { day, since, hour, units });
        Some(profile)
    }

    /// Stores that the pass has ended.
    ///
    /// # Errors
    ///
    /// As [`usage_profiles::write()`].
    pub async fn end(self, erasure_epoch: u64) -> RedisResult<ProfilesReply> {
        usage_profiles::end_pass(self.partition, erasure_epoch, self.began).await
    }

    /// Removes subjects that used nothing for a long time, and tells of those that became silent. While the whole
    /// stream is silent, that is for its operator.
    async fn search_idle(&mut self) -> RedisResult<Option<PassSlice>> {
        let (Some((metric, bucket)), Some(today)) = (self.idle.pop(), Day::in_utc(self.began)) else {
            return Ok(None);
        };
        let Self { partition, plans, began: now, silence_counts_since: counts_since, .. } = *self;
        let erasures = usage_profiles::mark(partition).await?.erasure_epoch;
        let found = usage_profiles::remove_idle(partition, &metric, bucket, today).await?;
        let mut slice = PassSlice { counters: found.len(), ..PassSlice::default() };
        if self.has_usage {
            let search = SilenceSearch { partition, plans, now, counts_since, erasures };
            slice.notices = search.raise(&metric, &found).await?;
        }
        Ok(Some(slice))
    }
}

/// The dates that were in progress in some zone between two times, the newest if there are too many.
fn days_between(since: UnixMs, now: UnixMs) -> Vec<Day> {
    let (Some(first), Some(last)) = (Day::in_utc(since.plus(-WEST_MS)), Day::in_utc(now.plus(EAST_MS))) else {
        return Vec::new();
    };
    let newest = (0..).map_while(|back| last.before(back)).take(DAYS_MAX);
    newest.take_while(|day| *day >= first).collect()
}
