//! What the reading routes answer: views of subjects and of counters, within a timeout.
//!
//! Has a connection of its own, so that a long list never delays a delivery. Read next: [`crate::views`], the views.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;

use super::problem::{CALL_TIMEOUT, Problem, within};
use super::top_cache::TopCache;
use crate::ledger::batch::MetricPeriod;
use crate::subjects::Plans;
use crate::types::{Day, Metric, Period, Subject, UnixMs, Window};
use crate::views::history::{DayRange, HistoryRequest};
use crate::views::top::{RankingOrder, TOP_MAX, TopRequest};
use crate::views::usage::UsageRequest;
use crate::views::{
    AlertFilter, AlertView, HistoryView, SubjectCursor, SubjectSettings, SubjectSlice, SubjectView, TopView, UsageView,
    alerts, history, subject, subject_list, top, usage,
};
use crate::wire::{Partition, Partitions};

/// A ranking of a million subjects by percent takes some seconds, and callers wait for one another.
const TOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads for the API.
#[derive(Debug)]
pub struct ReadService {
    parts: ReadParts,
    top: TopCache,
}

/// What the service needs.
#[derive(Debug)]
pub struct ReadParts {
    /// Redis, on connections for these reads alone.
    pub partitions: Partitions,
    /// The plans in effect.
    pub plans: Plans,
    /// How long after its day an event may arrive.
    pub late_max: Duration,
    /// How many days of history are kept.
    pub history_days: u32,
}

impl ReadService {
    /// Creates the service. Connects nowhere yet.
    #[must_use]
    pub fn new(parts: ReadParts) -> Self {
        Self { parts, top: TopCache::default() }
    }

    /// What a subject used, now or on a day.
    pub async fn usage(&self, subject: Subject, day: Option<Day>) -> Result<UsageView, Problem> {
        let ReadParts { partitions, plans, late_max, .. } = &self.parts;
        let Partition { client, keys } = partitions.of(&subject);
        let read = async {
            let settings = SubjectSettings::read(&subject::read_fields(client, keys, &subject).await?, plans);
            let now = client.server_time().await?;
            let request = UsageRequest { subject, settings, day, now, late_max: *late_max };
            RedisResult::Ok((usage::read(client, keys, request).await?, now))
        };
        let (usage, now) = within(CALL_TIMEOUT, read).await?;
        usage.ok_or_else(|| no_period(now))
    }

    /// What a subject used on each day.
    pub async fn history(
        &self,
        subject: Subject,
        metric: Option<Metric>,
        range: DayRange,
    ) -> Result<HistoryView, Problem> {
        let ReadParts { partitions, plans, late_max, history_days } = &self.parts;
        let Partition { client, keys } = partitions.of(&subject);
        let read = async {
            let settings = SubjectSettings::read(&subject::read_fields(client, keys, &subject).await?, plans);
            let now = client.server_time().await?;
            let (late_max, days) = (*late_max, *history_days);
            let request = HistoryRequest { subject, settings, metric, range, now, late_max, days };
            RedisResult::Ok((history::read(client, keys, request).await?, now))
        };
        let (history, now) = within(CALL_TIMEOUT, read).await?;
        history.ok_or_else(|| no_period(now))
    }

    /// The subjects that used most of a metric in a period, or most of their limit; as read within the last seconds.
    pub async fn top(
        &self,
        metric: Metric,
        window: Option<Window>,
        period: Option<Period>,
        by: RankingOrder,
    ) -> Result<Arc<TopView>, Problem> {
        let ReadParts { partitions, plans, .. } = &self.parts;
        let now = within(CALL_TIMEOUT, partitions.first().client.server_time()).await?;
        let period = top::period(window, period, now);
        let period = period.map_err(|error| Problem::bad_request(format!("period: {error}")))?;
        let request = TopRequest { of: MetricPeriod { metric, period }, by };
        let read = top::read(partitions, plans, &request, TOP_MAX);
        within(TOP_TIMEOUT, self.top.get_or_read(&request, read)).await
    }

    /// A page of the subjects for which something is set.
    pub async fn subjects(&self, after: SubjectCursor, limit: usize) -> Result<SubjectSlice, Problem> {
        let ReadParts { partitions, plans, .. } = &self.parts;
        let Partition { client, keys } = partitions.first();
        within(CALL_TIMEOUT, subject_list::read(client, keys, plans, after, limit)).await
    }

    /// What is set for a subject; `None` where nothing is.
    pub async fn subject(&self, subject: &Subject) -> Result<Option<SubjectView>, Problem> {
        let ReadParts { partitions, plans, .. } = &self.parts;
        let Partition { client, keys } = partitions.of(subject);
        let read = async {
            RedisResult::Ok((subject::read_fields(client, keys, subject).await?, client.server_time().await?))
        };
        let (fields, now) = within(CALL_TIMEOUT, read).await?;
        Ok((!fields.is_empty()).then(|| SubjectView::read(subject.as_str().as_bytes(), &fields, plans, now)))
    }

    /// Every alert of a subject that is still kept, in the order of time.
    pub async fn alerts(&self, subject: Subject) -> Result<Vec<AlertView>, Problem> {
        let Partition { client, keys } = self.parts.partitions.of(&subject);
        let filter = AlertFilter { subject: Some(subject), since: None };
        let read = async {
            let periods = alerts::kept_periods(client.server_time().await?);
            alerts::of_periods(client, keys, &periods, &filter).await
        };
        within(CALL_TIMEOUT, read).await
    }
}

/// No period holds the day that was asked for, or what the server's clock shows.
fn no_period(now: UnixMs) -> Problem {
    Problem::bad_request(format!("day: no period holds that day, or the {now} that Redis' clock shows"))
}
